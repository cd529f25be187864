package configs

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// kind is how the text of a key is read, and the word for it in the reference.
type kind string

const (
	aText     kind = "text"
	aBool     kind = "true or false"
	aSize     kind = "size"     // bytes, int64
	aDuration kind = "duration" // time.Duration
	aNumber   kind = "number"   // float64
	aCount    kind = "whole number"
	aShare    kind = "share" // float64, more than 0 and at most 1
	anAddress kind = "address"
	aPath     kind = "path"
	aLocation kind = "path or URL"
	textList  kind = "list of texts"
	itemList  kind = "list"
	aTable    kind = "table"
	aSchema   kind = "text or table"
)

func (k kind) parse(folder, text string) (any, error) {
	switch k {
	case aBool:
		return parseBool(text)
	case aSize:
		return ParseSize(text)
	case aDuration:
		return parseDuration(text)
	case aNumber:
		return strconv.ParseFloat(text, 64)
	case aCount:
		return parseCount(text)
	case aShare:
		return parseShare(text)
	case anAddress:
		return text, checkAddress(text)
	case aPath:
		return parsePath(folder, text)
	case aLocation:
		return parseLocation(folder, text)
	default:
		return text, nil
	}
}

// parsePath reads a path on this machine. A URL would make a folder of that name, and nobody would look for it there.
func parsePath(folder, text string) (string, error) {
	if strings.Contains(text, "://") {
		return "", fmt.Errorf("%q is a URL: a path on this machine is needed here", text)
	}
	return resolve(folder, text), nil
}

// Other spellings (yes, on, 1) mean different things to different readers of YAML, so they are refused.
func parseBool(text string) (bool, error) {
	switch text {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither true nor false", text)
}

var units = map[string]float64{
	"": 1, "B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}

// ParseSize reads bytes such as "8GiB", "500MB", "1.5 GiB" or "1048576".
func ParseSize(text string) (int64, error) {
	digits := strings.TrimRight(text, "kKMGTiB ")
	factor, known := units[strings.TrimSpace(text[len(digits):])]
	n, err := strconv.ParseFloat(digits, 64)
	if !known || err != nil || strings.Trim(digits, "0123456789.") != "" {
		return 0, fmt.Errorf("%q is not a size such as 8GiB or 500MB", text)
	}
	if n *= factor; n >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is too large", text)
	}
	return int64(n), nil
}

// maxCount is more than there is of anything that is counted here.
const maxCount = 1 << 20

func parseCount(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > maxCount {
		return 0, fmt.Errorf("%q is not a whole number from 0 to %d", text, maxCount)
	}
	return int(n), nil
}

// parseShare reads a part of something. Percents and sizes are refused: the whole is not known before the gateway runs.
func parseShare(text string) (float64, error) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n > 0 && n <= 1) || strings.Trim(text, "0123456789.") != "" {
		return 0, fmt.Errorf("%q is not a share such as 0.5, which is half: it is to be more than 0 and at most 1", text)
	}
	return n, nil
}

func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a duration such as 30s, 1m30s or 2h", text)
	}
	return d, nil
}

// maxSocket is what every system allows for the path of a socket file, in bytes.
const maxSocket = 100

func checkAddress(text string) error {
	if file, ok := strings.CutPrefix(text, "unix:"); ok {
		if !filepath.IsAbs(file) || len(file) > maxSocket {
			return fmt.Errorf("%q: a socket file needs an absolute path of at most %d bytes, as in unix:/run/headrace.sock", text, maxSocket)
		}
		return nil
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return fmt.Errorf("%q is neither HOST:PORT nor unix:/PATH", text)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q: the port must be a number up to 65535", text)
	}
	if strings.ContainsAny(host, " /@") {
		return fmt.Errorf("%q: a host without scheme and path is needed", text)
	}
	return nil
}

// isLocal reports whether an address can only be reached from this machine. Names other than localhost are not looked
// up: what they mean may change.
func isLocal(addr string) bool {
	if strings.HasPrefix(addr, "unix:") {
		return true
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

func resolve(folder, file string) string {
	if file == "" || folder == "" || filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(folder, file)
}

// misspelt is what was probably to be a URL.
var misspelt = regexp.MustCompile(`^(file|s3|gs|azblob):`)

// parseLocation reads where a dataset's files are.
func parseLocation(folder, text string) (string, error) {
	scheme, _, remote := strings.Cut(text, "://")
	switch {
	case text == "":
		return "", errors.New("must not be empty")
	case !remote && misspelt.MatchString(text):
		return "", fmt.Errorf("%q: a URL has :// behind its scheme, as in s3://BUCKET/PREFIX or file:///data; a folder of that name is ./%s", text, text)
	case !remote:
		return resolve(folder, text), nil
	case scheme != "file" && scheme != "s3" && scheme != "gs" && scheme != "azblob":
		return "", fmt.Errorf("%q: a path or a file://, s3://, gs:// or azblob:// URL is needed", text)
	}
	u, err := url.Parse(text)
	if scheme != "file" {
		if err != nil || u.Host == "" {
			return "", fmt.Errorf("%q: the bucket's name comes right after the scheme, as in %s://BUCKET/PREFIX", text, scheme)
		}
		return text, nil
	}
	if err != nil || u.Host != "" && u.Host != "localhost" || !strings.HasPrefix(u.Path, "/") {
		return "", fmt.Errorf("%q: a file URL needs an absolute path, as in file:///data/images", text)
	}
	return text, nil
}

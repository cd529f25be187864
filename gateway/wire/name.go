package wire

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName is the most bytes a dataset's name may have.
const maxName = 1_024

// badName is the one answer to every bad name, so that none tells what exists.
const badName = "not a dataset's name: names are segments joined by single slashes, at most 1024 bytes of printable " +
	"UTF-8, without empty segments, '.', '..', backslashes or percent-encoded characters"

// DatasetName joins a descriptor's path, one segment an element or the whole name in one, to the name of a dataset.
// Whatever could mean another place than it says is refused with the same text.
func DatasetName(path []string) (string, error) {
	name := strings.Join(path, "/")
	if len(path) > 1 && strings.Count(name, "/") != len(path)-1 || !isName(name) {
		return "", fmt.Errorf("%w: %s", ErrRequest, badName)
	}
	return name, nil
}

func isName(s string) bool {
	if len(s) > maxName || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return false
	}
	lower := strings.ToLower(s)
	for _, encoded := range []string{`\`, "%2f", "%5c", "%2e", "%00", "%25"} {
		if strings.Contains(lower, encoded) {
			return false
		}
	}
	for segment := range strings.SplitSeq(s, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
	}
	return true
}

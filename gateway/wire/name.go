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
const badName = "not a dataset's name: names are segments joined by single slashes, at most 1024 bytes of UTF-8, " +
	"without control characters, backslashes, percent-encoded characters, empty segments, '.' and '..'"

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
	if strings.Contains(s, `\`) || encoded(s) {
		return false
	}
	for segment := range strings.SplitSeq(s, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
	}
	return true
}

// encoded tells whether something would still decode s: the text could then pass here and mean another place there.
func encoded(s string) bool {
	for i := range len(s) - 2 {
		if s[i] == '%' && isHex(strings.ToLower(s[i+1:i+3]), 2) {
			return true
		}
	}
	return false
}

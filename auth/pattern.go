package auth

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ErrPattern is a dataset pattern that cannot be read.
var ErrPattern = errors.New("malformed dataset pattern")

// maxPattern bounds patterns and the names they are compared with, in bytes.
const maxPattern = 1024

// Pattern names datasets. It is anchored at both ends: `*` stands for one path segment or a part of it (possibly
// nothing), `**` for any number of whole segments (possibly none), every other character for itself. So `a/**` is `a`
// and all below it. The zero value matches nothing.
type Pattern struct {
	text     string
	segments []string
}

// ParsePattern reads a pattern. Errors match ErrPattern and name what is wrong, not the pattern.
func ParsePattern(text string) (Pattern, error) {
	if len(text) > maxPattern {
		return Pattern{}, fmt.Errorf("%w: longer than %d bytes", ErrPattern, maxPattern)
	}
	if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return Pattern{}, fmt.Errorf("%w: bad UTF-8 or a control character", ErrPattern)
	}
	segments, ok := split(text)
	if !ok {
		return Pattern{}, fmt.Errorf("%w: an empty segment, `.` or `..`", ErrPattern)
	}
	for _, s := range segments {
		if s != "**" && strings.Contains(s, "**") {
			return Pattern{}, fmt.Errorf("%w: `**` must be a whole segment", ErrPattern)
		}
	}
	return Pattern{text: text, segments: segments}, nil
}

// String is the text that the pattern was read from.
func (p Pattern) String() string { return p.text }

// Match reports whether the pattern covers the dataset. Its time grows at most with the product of both lengths.
func (p Pattern) Match(dataset string) bool {
	if len(p.segments) == 0 || len(dataset) > maxPattern {
		return false
	}
	segments, ok := split(dataset)
	return ok && wild(p.segments, segments, func(s string) bool { return s == "**" }, matchSegment)
}

func everything() Pattern { return Pattern{text: "**", segments: []string{"**"}} }

func matchSegment(pattern, segment string) bool {
	return wild([]byte(pattern), []byte(segment),
		func(b byte) bool { return b == '*' },
		func(p, s byte) bool { return p == s })
}

// split cuts a name into its segments; false if one is empty or would climb.
func split(name string) ([]string, bool) {
	segments := strings.Split(name, "/")
	for _, s := range segments {
		if s == "" || s == "." || s == ".." {
			return nil, false
		}
	}
	return segments, true
}

// wild compares text with a pattern in which some elements stand for any run. Only the last such element is ever
// retried: when the part behind it fits, an earlier one could gain nothing by taking more. That keeps it quadratic at
// worst where naive recursion is exponential.
func wild[E any](pattern, text []E, star func(E) bool, same func(p, t E) bool) bool {
	p, retryP, retryT := 0, -1, 0
	for t := 0; t < len(text); {
		switch {
		case p < len(pattern) && star(pattern[p]):
			retryP, retryT = p, t
			p++
		case p < len(pattern) && same(pattern[p], text[t]):
			p++
			t++
		case retryP >= 0:
			retryT++
			p, t = retryP+1, retryT
		default:
			return false
		}
	}
	for p < len(pattern) && star(pattern[p]) {
		p++
	}
	return p == len(pattern)
}

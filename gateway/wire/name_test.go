package wire

import (
	"errors"
	"strings"
	"testing"
)

func TestDatasetName(t *testing.T) {
	long := strings.Repeat("a", maxName)
	for want, path := range map[string][]string{
		"imagenet":            {"imagenet"},
		"team/imagenet/train": {"team", "imagenet", "train"},
		"team/imagenet":       {"team/imagenet"},
		"a..b/..c/d.":         {"a..b", "..c", "d."},
		"100%/ü 猫":            {"100%", "ü 猫"},
		long:                  {long},
	} {
		if got, err := DatasetName(path); err != nil || got != want {
			t.Errorf("%q: %q, %v", path, got, err)
		}
	}
}

// Names that could lead out of what is served all get one answer, whatever lies there.
func TestB62_NamesThatLeaveGetOneAnswer(t *testing.T) {
	_, one := DatasetName(nil)
	for _, path := range [][]string{
		{},
		{""},
		{"", ""},
		{"/"},
		{"/etc/passwd"},
		{"a/"},
		{"a//b"},
		{"a", "", "b"},
		{"a", ""},
		{"", "a"},
		{".."},
		{"../data-secret"},
		{"a/../b"},
		{"a", ".."},
		{"."},
		{"./a"},
		{"a/."},
		{"a", ".", "b"},
		{"a", "b/c"},
		{"a/b", "c"},
		{"a%2fb"},
		{"a%2Fb"},
		{"%2e%2e/a"},
		{"a%5cb"},
		{"a%00"},
		{"a%252fb"},
		{`a\b`},
		{`..\a`},
		{"a\x00b"},
		{"a\nb"},
		{"a\x7f"},
		{"a\u0085b"},
		{"a\xffb"},
		{strings.Repeat("a", maxName+1)},
	} {
		_, err := DatasetName(path)
		if !errors.Is(err, ErrRequest) || err.Error() != one.Error() {
			t.Errorf("%q: %v", path, err)
		}
	}
	for _, name := range []string{"..", "/etc", "a%2fb", "a\\u0000b", "link/"} {
		if _, err := Parse([]byte(`{"dataset":"` + name + `"}`)); !errors.Is(err, ErrRequest) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

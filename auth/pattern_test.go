package auth

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestPatterns(t *testing.T) {
	for pattern, names := range map[string]struct{ yes, no string }{
		"imagenet/train": {"imagenet/train", "imagenet imagenet/train/x imagenet/trai Imagenet/train ximagenet/train"},
		"imagenet/*":     {"imagenet/train imagenet/val", "imagenet imagenet/a/b other/train imagenet2/a"},
		"imagenet/**":    {"imagenet imagenet/train imagenet/a/b/c", "imagenet2 imagenet2/a x/imagenet"},
		"**":             {"a a/b a/b/c", ""},
		"*":              {"a abc", "a/b"},
		"**/train":       {"train a/train a/b/train", "a/train/b atrain"},
		"a/**/b":         {"a/b a/x/b a/x/y/b a/b/b", "a b a/b/c xa/b"},
		"a/**/b/**/c":    {"a/b/c a/x/b/y/c a/b/b/c/c", "a/c a/b a/c/b"},
		"user-*":         {"user- user-1", "user user-1/x xuser-1"},
		"*-*/v*":         {"a-b/v1 -/v", "ab/v1 a-b/1"},
		"a*a":            {"aa aba aaa", "a ab"},
		"**/*":           {"a a/b", ""},
		"*/**":           {"a a/b", ""},
		"a.b":            {"a.b", "axb"},
		"[ab]?":          {"[ab]?", "a b ac"},
		"bücher/*":       {"bücher/ä", "bucher/a"},
	} {
		p, err := ParsePattern(pattern)
		if err != nil || p.String() != pattern {
			t.Fatal(pattern, err)
		}
		for name := range strings.FieldsSeq(names.yes) {
			if !p.Match(name) {
				t.Errorf("%s does not match %s", pattern, name)
			}
		}
		for name := range strings.FieldsSeq(names.no + " /a a/ a//b ../a a/. a/.. imagenet/../a") {
			if p.Match(name) {
				t.Errorf("%s matches %s", pattern, name)
			}
		}
		if p.Match("") {
			t.Errorf("%s matches nothing", pattern)
		}
	}
	if (Pattern{}).Match("a") {
		t.Error("the zero pattern matches")
	}
}

func TestMalformedPatterns(t *testing.T) {
	for _, text := range []string{
		"", "/", "/a", "a/", "a//b", ".", "a/..", "../a", "***", "a**", "**a/b", "a\x00", "a\n", "\xff",
		strings.Repeat("a", maxPattern+1),
	} {
		if _, err := ParsePattern(text); !errors.Is(err, ErrPattern) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

// A pattern that costs naive matchers centuries takes no time.
func TestPatternsAreFast(t *testing.T) {
	began := time.Now()
	for _, c := range [][2]string{
		{strings.Repeat("*a", 500) + "b", strings.Repeat("a", 1000)},
		{strings.Repeat("**/a/", 200) + "b", strings.Repeat("a/", 500) + "c"},
	} {
		if must(ParsePattern(c[0])).Match(c[1]) {
			t.Error("matched")
		}
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("took %s", took)
	}
}

// oracle says the same by way of an anchored regular expression.
func oracle(pattern, name string) bool {
	e := "^"
	for s := range strings.SplitSeq(pattern, "/") {
		if s == "**" {
			e += "(?:[^/]+/)*"
			continue
		}
		e += strings.ReplaceAll(regexp.QuoteMeta(s), `\*`, "[^/]*") + "/"
	}
	return regexp.MustCompile("(?s)" + e + "$").MatchString(name + "/")
}

func TestPatternsAgreeWithRegularExpressions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"**", "*", "a", "b", "a*", "*b", "a*b*", "ab"}), 1, 6).Draw(t, "pattern"), "/")
		name := strings.Join(rapid.SliceOfN(rapid.StringMatching(`[ab]{1,4}`), 1, 6).Draw(t, "name"), "/")
		if got, want := must(ParsePattern(pattern)).Match(name), oracle(pattern, name); got != want {
			t.Fatalf("%s against %s: %v, want %v", pattern, name, got, want)
		}
	})
}

func TestPolicy(t *testing.T) {
	grant := func(pattern string, columns ...string) Grant { return Grant{must(ParsePattern(pattern)), columns} }
	p := &Principal{Grants: []Grant{grant("images/**"), grant("users/*", "age"), grant("users/eu", "name"), grant("both", "x"), grant("both")}}
	for dataset, want := range map[string]string{
		"images/a": "all", "users/us": "age", "users/eu": "age name", "both": "all", "users": "hidden", "users/eu/x": "hidden", "": "hidden",
	} {
		c, ok := ByGrants{}.Columns(p, dataset)
		if ok != (want != "hidden") || c.All() != (want == "all") {
			t.Errorf("%s: %v %v", dataset, c, ok)
		}
		for _, column := range []string{"age", "name", "x", "Age", ""} {
			allowed := want == "all" || column != "" && strings.Contains(" "+want+" ", " "+column+" ")
			if c.Has(column) != allowed {
				t.Errorf("%s, column %q: %v", dataset, column, c.Has(column))
			}
		}
	}
	for _, nobody := range []*Principal{nil, {}} {
		if c, ok := (ByGrants{}).Columns(nobody, "images/a"); ok || c.All() || c.Has("a") {
			t.Error("nobody may read")
		}
	}
}

func TestModeNone(t *testing.T) {
	p, err := None{}.Verify(t.Context(), "")
	if err != nil || p.Tenant != "local" || !p.Expires.IsZero() {
		t.Fatal(p, err)
	}
	if c, ok := (ByGrants{}).Columns(p, "any/thing"); !ok || !c.All() {
		t.Error("not everything is granted")
	}
}

func TestDetailOfOtherErrors(t *testing.T) {
	if Detail(nil) != "" || Detail(errors.New("x")) != "x" || Detail(&refusal{"y"}) != "y" {
		t.Error("wrong detail")
	}
}

package storage

import (
	"strings"
	"testing"
)

func TestSelects(t *testing.T) {
	for _, tt := range []struct {
		files, exclude, key string
		want                bool
	}{
		{"", "", "a.parquet", true},
		{"", "", "x/y/a.pq", true},
		{"", "", "A.PARQUET", true},
		{"", "", "a.arrow", true},
		{"", "", "a.arrows", true},
		{"", "", "a.feather", true},
		{"", "", "a.ipc", true},
		{"", "", "a.csv", false},
		{"", "", "parquet", false},
		{"", "", "a.parquet.crc", false},
		{"", "", "_metadata", false},
		{"", "", "_x.parquet", false},
		{"", "", "x/.x.parquet", false},
		{"*.bin", "", "a.bin", true},
		{"*.bin", "", "x/a.bin", false},
		{"*.bin", "", "a.parquet", false},
		{"**/*.bin", "", "a.bin", true},
		{"**/*.bin", "", "x/y/a.bin", true},
		{"**", "", "x/y", true},
		{"**", "", "x/.y", false},
		{"x/**/b/*", "", "x/b/c", true},
		{"x/**/b/*", "", "x/1/2/b/c", true},
		{"x/**/b/*", "", "x/1/2/b/c/d", false},
		{"part-[0-4].pq a?.pq", "", "part-3.pq", true},
		{"part-[0-4].pq a?.pq", "", "part-5.pq", false},
		{"part-[0-4].pq a?.pq", "", "ab.pq", true},
		{"", "old/**", "old/a.parquet", false},
		{"", "old/**", "older/a.parquet", true},
		{"**/*.parquet", "**/tmp/**", "x/tmp/a.parquet", false},
	} {
		m := Mount{Files: strings.Fields(tt.files), Exclude: strings.Fields(tt.exclude)}
		if got := m.selects(tt.key); got != tt.want {
			t.Errorf("files %q, exclude %q: %q selected %v, want %v", tt.files, tt.exclude, tt.key, got, tt.want)
		}
	}
}

func TestGlobsAreChecked(t *testing.T) {
	for _, bad := range []string{"", "[", "a/[b", "/a", "a//b", "../a", "a/./b", "a/"} {
		if checkGlob(bad) == nil {
			t.Errorf("%q is accepted", bad)
		}
		if _, err := New(t.Context(), Options{Mounts: []Mount{{Name: "d", URL: t.TempDir(), Exclude: []string{bad}}}}); err == nil {
			t.Errorf("a mount that excludes %q is accepted", bad)
		}
	}
}

// No pattern takes more than a moment, and none panics.
func FuzzMatch(f *testing.F) {
	f.Add("**/*.parquet", "a/b/c.parquet")
	f.Add("a/**/b/**/c", "a/b/b/c/c")
	f.Add("[", "[")
	f.Add("**/**/**", "a")
	f.Fuzz(func(t *testing.T, glob, key string) {
		if len(glob) > 40 || len(key) > 80 {
			return
		}
		if matchAny([]string{glob}, key) && checkGlob(glob) == nil && !matchAny([]string{"**"}, key) {
			t.Errorf("%q matches %q, ** does not", glob, key)
		}
	})
}

func TestTableMarks(t *testing.T) {
	for key, want := range map[string]string{
		"_delta_log/":                   "",
		"a/b/_delta_log/":               "a/b/",
		"a/.hoodie/":                    "a/",
		"a/x.lance/_versions/":          "a/x.lance/",
		"t/metadata/v1.metadata.json":   "t/",
		"metadata/00-a.metadata.json":   "",
		"x/_versions/":                  "none",
		"_delta_log":                    "none",
		"metadata/info.json":            "none",
		"my_metadata/v1.metadata.json":  "none",
		"a/metadata/":                   "none",
		"a/metadata/x.metadata.json.gz": "none",
	} {
		folder, kind := tableMark("base", key)
		if kind == "" {
			folder = "none"
		}
		if folder != want {
			t.Errorf("%q marks %q, want %q", key, folder, want)
		}
	}
	if folder, kind := tableMark("x.lance", "_versions/"); folder != "" || kind == "" {
		t.Errorf("a Lance folder itself: %q, %q", folder, kind)
	}
}

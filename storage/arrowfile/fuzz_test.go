package arrowfile

import (
	"os"
	"strings"
	"testing"
)

// Whatever the bytes are: rows, or an error of a known class; no panic, no
// memory left, and no more of it than the test's limit.
func FuzzFile(f *testing.F)   { fuzz(f, ".file") }
func FuzzStream(f *testing.F) { fuzz(f, ".stream") }

func fuzz(f *testing.F, kind string) {
	entries, err := os.ReadDir("testdata/golden")
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), kind) {
			f.Add(golden(f, e.Name()))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = newYard(t).read(t, b)
	})
}

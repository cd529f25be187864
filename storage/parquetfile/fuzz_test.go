package parquetfile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/headrace/headrace/storage/bucket"
)

// FuzzDescribe takes the input for a Parquet file and reads all of it: it is
// described and decoded, or refused with an error of a class.
func FuzzDescribe(f *testing.F) {
	for _, name := range []string{"dictionaries.parquet", "empty.parquet"} {
		f.Add(golden(f, name))
	}
	dir := f.TempDir()
	b, err := bucket.Open(dir)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { b.Close() })
	f.Fuzz(func(t *testing.T, file []byte) {
		if err := os.WriteFile(filepath.Join(dir, "file.parquet"), file, 0o600); err != nil {
			t.Fatal(err)
		}
		obj, err := b.Open(t.Context(), "file.parquet", "")
		if err != nil {
			t.Fatal(err)
		}
		defer obj.Close()
		tryAll(t, obj)
	})
}

// FuzzFooter takes the input for the footer alone, which fuzzing gets further
// into: there is no length or magic word to hit.
func FuzzFooter(f *testing.F) {
	for _, name := range []string{"dictionaries.parquet", "plain.parquet", "empty.parquet"} {
		file := golden(f, name)
		withFooter(file, func(b []byte) []byte { f.Add(b); return b })
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		footer, err := parseFooter(200_000, b)
		if err != nil {
			return
		}
		for _, s := range footer.segments() {
			if s.Rows < 0 || s.Bytes < 0 {
				t.Errorf("%d rows, %d bytes", s.Rows, s.Bytes)
			}
		}
	})
}

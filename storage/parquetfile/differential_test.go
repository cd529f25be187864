package parquetfile

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/snapshot"
)

// scan returns rows of a segment, in batches of the given sizes, as options have them read.
func (w *world) scan(t testing.TB, o Options, obj *bucket.Object, sh *snapshot.Shard, segment int, sizes ...int64) ([]arrow.Array, error) {
	t.Helper()
	p := schema.All(sh.Schema)
	s, err := o.Open(t.Context(), obj, sh, segment, p, w.pool, w.grant)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return w.drain(t, s, p, sh.Segments[segment].Rows, sizes...)
}

// compareReaders reads all of obj with arrow-go and without, and compares what both read.
func compareReaders(t *testing.T, obj *bucket.Object, sizes ...int64) {
	t.Helper()
	sh, err := Describe(t.Context(), obj)
	if err != nil || schema.Check(sh.Schema) != nil {
		return
	}
	w := newWorld(t, 1<<30)
	for i := range sh.Segments {
		if sh.Segments[i].Rows > 50_000 {
			continue
		}
		want, theirs := w.scan(t, Options{arrowGo: true}, obj, sh, i, 1000)
		got, ours := w.scan(t, Options{}, obj, sh, i, sizes...)
		if ours != nil && !errors.Is(ours, snapshot.ErrCorrupt) && !errors.Is(ours, snapshot.ErrUnsupported) && !errors.Is(ours, budget.ErrExhausted) {
			t.Errorf("an error of no class: %v", ours)
		}
		if ours == nil && theirs == nil {
			same(t, sh.Schema, got, want, 0)
		}
	}
}

// TestSameAsArrowGo compares the two readers over all that pyarrow wrote.
func TestSameAsArrowGo(t *testing.T) {
	for _, name := range names(t, "") {
		t.Run(name, func(t *testing.T) {
			obj := store(t, folder(t), name+".parquet")
			compareReaders(t, obj, 37, 500)
			sh := describe(t, obj)
			for i := range sh.Segments {
				w := newWorld(t, 1<<30)
				if _, err := w.scan(t, Options{}, obj, sh, i, 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestCorporaSameAsArrowGo compares them over public files, where both read them.
func TestCorporaSameAsArrowGo(t *testing.T) {
	root := corpora(t)
	for _, sub := range []string{"parquet-testing", "duckdb", "parquet-fuzz"} {
		err := filepath.WalkDir(filepath.Join(root, sub), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".parquet" && !strings.Contains(path, "fuzzing") {
				return err
			}
			t.Run(filepath.Base(path), func(t *testing.T) {
				compareReaders(t, store(t, filepath.Dir(path), filepath.Base(path)), 333)
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// seeds are small files by pyarrow: those of FuzzDescribe.
func seeds(t testing.TB) (files [][]byte) {
	t.Helper()
	paths, err := filepath.Glob("testdata/fuzz/FuzzDescribe/*_*")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, quoted, _ := strings.Cut(string(text), "[]byte(")
		file, err := strconv.Unquote(strings.TrimSuffix(strings.TrimSpace(quoted), ")"))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		files = append(files, []byte(file))
	}
	return files
}

// FuzzScan writes over a part of a file's pages and reads it with both readers:
// each ends in rows or in an error of a class, and where both have rows, these
// are the same.
func FuzzScan(f *testing.F) {
	files := seeds(f)
	for i := range files {
		f.Add(uint8(i), uint16(40*i), []byte{byte(i), 0xFF})
	}
	dir := f.TempDir()
	b, err := bucket.Open(dir)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { b.Close() })
	f.Fuzz(func(t *testing.T, which uint8, at uint16, patch []byte) {
		file := append([]byte(nil), files[int(which)%len(files)]...)
		pages := file[4 : len(file)-trailer-int(binary.LittleEndian.Uint32(file[len(file)-trailer:]))]
		copy(pages[int(at)%len(pages):], patch)
		if err := os.WriteFile(filepath.Join(dir, "file.parquet"), file, 0o600); err != nil {
			t.Fatal(err)
		}
		obj, err := b.Open(t.Context(), "file.parquet", "")
		if err != nil {
			t.Fatal(err)
		}
		defer obj.Close()
		compareReaders(t, obj, 7)
	})
}

// FuzzPageHeader reads page headers: what passes has sizes that can be.
func FuzzPageHeader(f *testing.F) {
	for _, file := range seeds(f) {
		f.Add(file[4:60])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		header := &thrift{b: b}
		p := parsePage(header)
		if header.bad {
			return
		}
		for _, v := range []int64{p.raw, p.size, p.values, p.rows, p.levels, p.defined, p.nulls} {
			if int64(int32(v)) != v {
				t.Errorf("%+v", p)
			}
		}
	})
}

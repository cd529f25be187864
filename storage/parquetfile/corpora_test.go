package parquetfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

// corpora is the folder of public files, or the end of the test.
func corpora(t *testing.T) string {
	dir := os.Getenv("HEADRACE_CORPORA")
	if dir == "" {
		t.Skip("HEADRACE_CORPORA is not set")
	}
	if _, err := os.Stat(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestCorpora reads public files, the broken ones among them: each is read to
// its end or refused with its name and a cause.
func TestCorpora(t *testing.T) {
	root := corpora(t)
	for _, sub := range []string{"parquet-testing", "duckdb", "parquet-fuzz"} {
		err := filepath.WalkDir(filepath.Join(root, sub), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			switch filepath.Ext(path) {
			case ".md", ".txt", ".csv", ".json", ".yaml", ".bin", ".py", ".sql":
				return nil
			}
			rel, _ := filepath.Rel(root, path)
			t.Run(rel, func(t *testing.T) {
				rows, err := readPublic(t, path)
				switch {
				case err == nil:
					t.Logf("%d rows", rows)
				case !errors.Is(err, snapshot.ErrCorrupt) && !errors.Is(err, snapshot.ErrUnsupported):
					t.Errorf("an error of no class: %v", err)
				case !strings.Contains(err.Error(), fmt.Sprintf("%q", filepath.Base(path))):
					t.Errorf("the error does not name the file: %v", err)
				default:
					t.Log(err)
				}
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestCorporaSameAsPyarrow compares the values of public files with those that
// pyarrow reads, where both read them.
func TestCorporaSameAsPyarrow(t *testing.T) {
	root, out := corpora(t), t.TempDir()
	folder(t) // for its check that there is Python
	if text, err := python("testdata/write.py", out, filepath.Join(root, "parquet-testing"), filepath.Join(root, "duckdb")); err != nil {
		t.Fatal(text, err)
	}
	paths, err := filepath.Glob(filepath.Join(out, "*.arrow"))
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".arrow")
		t.Run(name, func(t *testing.T) { comparePublic(t, out, name) })
	}
}

// comparePublic compares the file NAME.parquet, a link that write.py made.
func comparePublic(t *testing.T, out, name string) {
	path, err := filepath.EvalSymlinks(filepath.Join(out, name+".parquet"))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, 1<<30)
	obj := store(t, filepath.Dir(path), filepath.Base(path))
	sh, err := Describe(t.Context(), obj)
	if err != nil {
		t.Skip(err)
	}
	if errors.Is(schema.Check(sh.Schema), schema.ErrDuplicate) {
		t.Skip("duplicate names")
	}
	parts := make([][]arrow.Array, sh.Schema.NumFields())
	for i := range sh.Segments {
		arrays, err := w.read(t, obj, sh, i, schema.All(sh.Schema), 0, 1000)
		if err != nil {
			t.Skip(err)
		}
		for c, a := range arrays {
			parts[c] = append(parts[c], a)
		}
	}
	s, want := expected(t, out, name)
	same(t, s, join(t, parts, sh.Schema), want, 0)
}

// readPublic reads a file whole and returns its rows.
func readPublic(t *testing.T, path string) (rows int64, err error) {
	w := newWorld(t, 1<<30)
	b, err := bucket.Open(filepath.Dir(path))
	if err != nil {
		return 0, err
	}
	defer b.Close()
	obj, err := b.Open(t.Context(), filepath.Base(path), "")
	if err != nil {
		return 0, err
	}
	defer obj.Close()
	sh, err := Describe(t.Context(), obj)
	if err != nil {
		return 0, err
	}
	if errors.Is(schema.Check(sh.Schema), schema.ErrDuplicate) {
		t.Skip("duplicate names are refused before anything is opened")
	}
	for i := range sh.Segments {
		n, err := w.readSegment(t, obj, sh, i)
		if rows += n; err != nil {
			return rows, err
		}
	}
	return rows, nil
}

func (w *world) readSegment(t *testing.T, obj *bucket.Object, sh *snapshot.Shard, segment int) (rows int64, err error) {
	s, err := (Options{}).Open(t.Context(), obj, sh, segment, schema.All(sh.Schema), w.pool, w.grant)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	seg := sh.Segments[segment]
	for i := range seg.Blocks() {
		from, to := seg.Block(i)
		leases, err := s.Next(t.Context(), nil, to-from)
		for _, l := range leases {
			rows += l.Batch().NumRows()
			checkFrame(t, l, sh.Schema)
			releaseFrame(l)
		}
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// releaseFrame looks at every value of a frame before it lets go of it.
func releaseFrame(l *frame.Lease) {
	for _, a := range l.Batch().Columns() {
		for i := range a.Len() {
			_ = a.IsNull(i)
		}
	}
	l.Release()
}

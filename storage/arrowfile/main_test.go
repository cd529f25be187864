package arrowfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"go.uber.org/goleak"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

func TestMain(m *testing.M) {
	code := func() int {
		defer func() { _ = os.RemoveAll(written.dir) }()
		return m.Run()
	}()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// python returns the interpreter that has pyarrow; without one the test is skipped.
func python(t testing.TB) string {
	t.Helper()
	if p := os.Getenv("HEADRACE_PYTHON"); p != "" {
		return p
	}
	p, err := filepath.Abs("../../.venv/bin/python")
	if err == nil {
		_, err = os.Stat(p)
	}
	if err != nil {
		t.Skip("HEADRACE_PYTHON is unset and there is no .venv: no pyarrow to write test files")
	}
	return p
}

// written is the folder of files that pyarrow writes once for all tests.
var written struct {
	sync.Once
	dir string
	err error
}

func files(t testing.TB) string {
	t.Helper()
	py := python(t)
	written.Do(func() {
		if written.dir, written.err = os.MkdirTemp("", "arrowfile"); written.err == nil {
			written.err = run(py, written.dir)
		}
	})
	if written.err != nil {
		t.Fatal(written.err)
	}
	return written.dir
}

func run(py string, args ...string) error {
	var stderr bytes.Buffer
	cmd := exec.Command(py, append([]string{"testdata/write.py"}, args...)...)
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, stderr.String())
	}
	return nil
}

// corpus returns a folder of the public test files.
func corpus(t testing.TB, name string) string {
	t.Helper()
	root := os.Getenv("HEADRACE_CORPORA")
	if root == "" {
		t.Skip("HEADRACE_CORPORA is unset: no public test files")
	}
	dir := filepath.Join(root, name)
	if _, err := os.Stat(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// house is the memory and the folder of one test; its end checks that all
// memory came back.
type house struct {
	ledger *budget.Ledger
	grant  *budget.Grant
	pool   *frame.Pool
	bucket *bucket.Bucket
}

func newHouse(t testing.TB, dir string) *house { return newHouseOf(t, dir, 2<<30) }

func newHouseOf(t testing.TB, dir string, limit int64) *house {
	t.Helper()
	b, err := bucket.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	h := &house{ledger: budget.New(budget.Options{Limit: limit}), pool: frame.NewPool(frame.Options{Poison: true}), bucket: b}
	if h.grant, err = h.ledger.Admit(context.Background(), min(limit, 1<<20)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.grant.Close()
		if s := h.ledger.Stats(); s.Reserved != 0 || len(s.Used) != 0 {
			t.Errorf("memory is still reserved: %+v", s)
		}
		if err := errors.Join(h.pool.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	})
	return h
}

func (h *house) open(t testing.TB, key string) *bucket.Object {
	t.Helper()
	obj, err := h.bucket.Open(context.Background(), key, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = obj.Close() })
	return obj
}

func (h *house) describe(t testing.TB, key string) (*bucket.Object, *snapshot.Shard) {
	t.Helper()
	obj := h.open(t, key)
	sh, err := Describe(context.Background(), obj, nil)
	if err != nil {
		t.Fatal(err)
	}
	return obj, sh
}

// read hands every frame of a segment to visit, step rows at a time.
func (h *house) read(obj *bucket.Object, sh *snapshot.Shard, segment int, p *schema.Projection, step int64, visit func(arrow.RecordBatch)) error {
	ctx := context.Background()
	s, err := Open(ctx, obj, sh, segment, p, h.pool, h.grant)
	if err != nil {
		return err
	}
	defer s.Close()
	for left := sh.Segments[segment].Rows; left > 0; left -= min(step, left) {
		leases, err := s.Next(ctx, nil, min(step, left))
		if err != nil {
			return err
		}
		for _, l := range leases {
			visit(l.Batch())
			l.Release()
		}
	}
	return nil
}

// stream reads a stream with the library's own reader.
func stream(t testing.TB, path string) (*arrow.Schema, []arrow.RecordBatch) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := ipc.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	var out []arrow.RecordBatch
	for r.Next() {
		r.RecordBatch().Retain()
		out = append(out, r.RecordBatch())
	}
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	return r.Schema(), out
}

// sameRows compares a frame with the rows of want from from on.
func sameRows(t testing.TB, got, want arrow.RecordBatch, from int64) {
	t.Helper()
	for i := range int(want.NumCols()) {
		w := array.NewSlice(want.Column(i), from, from+got.NumRows())
		if !array.Equal(got.Column(i), w) && !sameText(got.Column(i), w) {
			t.Fatalf("column %q from row %d:\n got %.400v\nwant %.400v", want.ColumnName(i), from, got.Column(i), w)
		}
		w.Release()
	}
}

// sameText compares rows as text: the library's comparison of structs looks
// below null rows too, where writers may leave anything.
func sameText(a, b arrow.Array) bool {
	if a.Len() != b.Len() || !arrow.TypeEqual(a.DataType(), b.DataType()) {
		return false
	}
	for i := range a.Len() {
		if a.ValueStr(i) != b.ValueStr(i) {
			return false
		}
	}
	return true
}

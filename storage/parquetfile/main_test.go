package parquetfile

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

// errNoPython means that there is no Python to make test files with.
var errNoPython = errors.New("no Python: set HEADRACE_PYTHON or make .venv")

// made is the folder that written made, if it did.
var made string

// written is the folder that write.py fills, once per run of the tests.
var written = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "parquetfile")
	if err != nil {
		return "", err
	}
	made = dir
	_, err = python("testdata/write.py", dir)
	return dir, err
})

func TestMain(m *testing.M) {
	if err := BoundDecompression(); err != nil {
		panic(err)
	}
	code := m.Run()
	if made != "" {
		os.RemoveAll(made)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// python runs a script with the Python that has pyarrow.
func python(args ...string) (string, error) {
	interpreter := os.Getenv("HEADRACE_PYTHON")
	if interpreter == "" {
		interpreter = filepath.Join("..", "..", ".venv", "bin", "python")
		if _, err := os.Stat(interpreter); err != nil {
			return "", errNoPython
		}
	}
	out, err := exec.Command(interpreter, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%v: %w\n%s", args, err, out)
	}
	return string(out), err
}

// folder returns the folder of test files.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := written()
	if errors.Is(err, errNoPython) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// store opens the object NAME of a folder.
func store(t testing.TB, dir, name string) *bucket.Object {
	t.Helper()
	b, err := bucket.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	obj, err := b.Open(t.Context(), name, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { obj.Close(); b.Close() })
	return obj
}

// world is what scanners take memory from. At the end it must be empty.
type world struct {
	pool   *frame.Pool
	ledger *budget.Ledger
	grant  *budget.Grant
}

// poison overwrites freed memory, except where time is measured.
func poison(t testing.TB) bool {
	_, measured := t.(*testing.B)
	return !measured
}

func newWorld(t testing.TB, limit int64) *world {
	t.Helper()
	w := &world{pool: frame.NewPool(frame.Options{Idle: 64 << 20, Poison: poison(t)}), ledger: budget.New(budget.Options{Limit: limit})}
	var err error
	if w.grant, err = w.ledger.Admit(t.Context(), limit); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.grant.Close()
		if s := w.ledger.Stats(); len(s.Used) > 0 || s.Reserved > 0 {
			t.Errorf("memory still charged: %+v", s)
		}
		if err := w.pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// describe describes an object and fails the test if that fails.
func describe(t testing.TB, obj *bucket.Object) *snapshot.Shard {
	t.Helper()
	sh, err := Describe(t.Context(), obj)
	if err != nil {
		t.Fatal(err)
	}
	return sh
}

// read returns rows of a segment as one array per column, in batches of the
// given sizes, over and over; 0 stands for all that is left.
func (w *world) read(t testing.TB, obj *bucket.Object, sh *snapshot.Shard, segment int, p *schema.Projection, skip int64, sizes ...int64) ([]arrow.Array, error) {
	t.Helper()
	s, err := (Options{}).Open(t.Context(), obj, sh, segment, p, w.pool, w.grant)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := s.Skip(t.Context(), skip); err != nil {
		return nil, err
	}
	return w.drain(t, s, p, sh.Segments[segment].Rows-skip, sizes...)
}

// drain returns the next rows of a scanner as one array per column.
func (w *world) drain(t testing.TB, s *Scanner, p *schema.Projection, left int64, sizes ...int64) ([]arrow.Array, error) {
	t.Helper()
	parts := make([][]arrow.Array, p.Schema.NumFields())
	for i := 0; left > 0; i++ {
		n := min(left, sizes[i%len(sizes)])
		if n == 0 {
			n = left
		}
		leases, err := s.Next(t.Context(), nil, n)
		if err != nil {
			return nil, err
		}
		var got int64
		for _, l := range leases {
			got += l.Batch().NumRows()
			checkFrame(t, l, p.Schema)
			for c, a := range l.Batch().Columns() {
				parts[c] = append(parts[c], clone(t, a))
			}
			l.Release()
		}
		if got != n {
			t.Fatalf("asked for %d rows, got %d", n, got)
		}
		left -= n
	}
	return join(t, parts, p.Schema), nil
}

func checkFrame(t testing.TB, l *frame.Lease, want *arrow.Schema) {
	t.Helper()
	if l.Bytes() > frame.MaxFrame+frame.MaxFrame/4 && l.Batch().NumRows() > 1 {
		t.Errorf("a frame of %d bytes", l.Bytes())
	}
	if !l.Batch().Schema().Equal(want) {
		t.Errorf("frame has schema %s\nwant %s", l.Batch().Schema(), want)
	}
}

// clone copies an array out of its frame.
func clone(t testing.TB, a arrow.Array) arrow.Array {
	t.Helper()
	empty := array.MakeArrayOfNull(memory.DefaultAllocator, a.DataType(), 0)
	c, err := array.Concatenate([]arrow.Array{a, empty}, memory.DefaultAllocator)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func join(t testing.TB, parts [][]arrow.Array, s *arrow.Schema) []arrow.Array {
	t.Helper()
	out := make([]arrow.Array, len(parts))
	for c := range parts {
		parts[c] = append(parts[c], array.MakeArrayOfNull(memory.DefaultAllocator, s.Field(c).Type, 0))
		a, err := array.Concatenate(parts[c], memory.DefaultAllocator)
		if err != nil {
			t.Fatal(err)
		}
		out[c] = a
	}
	return out
}

// readFile returns all rows of a file.
func (w *world) readFile(t testing.TB, obj *bucket.Object, sh *snapshot.Shard, p *schema.Projection, sizes ...int64) []arrow.Array {
	t.Helper()
	parts := make([][]arrow.Array, p.Schema.NumFields())
	for segment := range sh.Segments {
		arrays, err := w.read(t, obj, sh, segment, p, 0, sizes...)
		if err != nil {
			t.Fatal(err)
		}
		for c, a := range arrays {
			parts[c] = append(parts[c], a)
		}
	}
	return join(t, parts, p.Schema)
}

// expected is what pyarrow read from NAME.parquet.
func expected(t testing.TB, dir, name string) (*arrow.Schema, []arrow.Array) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, name+".arrow"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := ipc.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	parts := make([][]arrow.Array, r.Schema().NumFields())
	for r.Next() {
		for c, a := range r.RecordBatch().Columns() {
			a.Retain()
			parts[c] = append(parts[c], a)
		}
	}
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	return r.Schema(), join(t, parts, r.Schema())
}

// same compares columns with expected ones, row by row if they differ.
func same(t testing.TB, s *arrow.Schema, got, want []arrow.Array, from int64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d columns, want %d", len(got), len(want))
	}
	for c := range got {
		if n := int64(want[c].Len()) - from; int64(got[c].Len()) != n {
			t.Errorf("%s: %d rows, want %d", s.Field(c).Name, got[c].Len(), n)
			continue
		}
		w := array.NewSlice(retyped(want[c], got[c].DataType()), from, int64(want[c].Len()))
		if array.ApproxEqual(got[c], w, array.WithNaNsEqual(true), array.WithAbsTolerance(0)) {
			continue
		}
		shown := 0
		for i := 0; i < w.Len() && shown < 3; i++ {
			if g, w := got[c].ValueStr(i), w.ValueStr(i); g != w {
				t.Errorf("%s row %d: %s, want %s", s.Field(c).Name, i, g, w)
				shown++
			}
		}
		if shown == 0 && w.DataType().ID() == arrow.FLOAT16 && got[c].DataType().ID() == arrow.FLOAT16 {
			continue // arrow-go finds no two NaNs of this type equal
		}
		t.Errorf("%s: %s differs from %s", s.Field(c).Name, got[c].DataType(), w.DataType())
	}
}

// retyped returns a with type t if that differs in nullability alone.
func retyped(a arrow.Array, t arrow.DataType) arrow.Array {
	if !sameLayout(a.DataType(), t) {
		return a
	}
	return array.MakeFromData(retypedData(a.Data(), t))
}

func retypedData(d arrow.ArrayData, t arrow.DataType) arrow.ArrayData {
	kids := make([]arrow.ArrayData, len(d.Children()))
	for i, kid := range d.Children() {
		below := t.(arrow.NestedType).Fields()[i].Type
		kids[i] = retypedData(kid, below)
	}
	return array.NewData(t, d.Len(), d.Buffers(), kids, d.NullN(), d.Offset())
}

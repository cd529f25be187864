package disk

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/cache"
	"github.com/headrace/headrace/storage/frame"
)

// rowsOf are rows of all layouts, as JSON.
var layouts = []struct {
	typ  arrow.DataType
	rows string
}{
	{arrow.Null, `[null, null, null, null]`},
	{arrow.FixedWidthTypes.Boolean, `[true, null, false, true]`},
	{arrow.PrimitiveTypes.Int8, `[1, 2, null, -4]`},
	{arrow.PrimitiveTypes.Float64, `[1.5, -0.25, 3, 4]`},
	{&arrow.Decimal128Type{Precision: 20, Scale: 2}, `["1.25", null, "-3.50", "4.00"]`},
	{&arrow.FixedSizeBinaryType{ByteWidth: 3}, `["YWJj", "ZGVm", null, "Z2hp"]`},
	{arrow.FixedWidthTypes.Timestamp_us, `[1704164645000000, null, 0, 1]`},
	{arrow.BinaryTypes.String, `["a", "größer", null, ""]`},
	{arrow.BinaryTypes.LargeBinary, `["YWJj", "", null, "ZGVm"]`},
	{arrow.BinaryTypes.StringView, `["short", "longer than what a view holds itself", null, ""]`},
	{arrow.ListOf(arrow.PrimitiveTypes.Int32), `[[1, 2], [], null, [3, null]]`},
	{arrow.LargeListOf(arrow.BinaryTypes.String), `[["a", "b"], [], null, ["c"]]`},
	{arrow.ListViewOf(arrow.PrimitiveTypes.Int16), `[[1, 2], [], null, [3]]`},
	{arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Float32), `[[1, 2], [3, 4], null, [5, null]]`},
	{arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64), `[[{"key": "a", "value": 1}], [], null, [{"key": "b", "value": null}]]`},
	{arrow.StructOf(arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, arrow.Field{Name: "y", Type: arrow.BinaryTypes.String, Nullable: true}), `[{"x": 1, "y": "a"}, null, {"x": null, "y": "b"}, {"x": 4, "y": null}]`},
	{arrow.SparseUnionOf([]arrow.Field{{Name: "i", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, {Name: "s", Type: arrow.BinaryTypes.String, Nullable: true}}, []arrow.UnionTypeCode{3, 7}), `[[3, 1], [7, "a"], [3, null], [7, "b"]]`},
	{arrow.DenseUnionOf([]arrow.Field{{Name: "i", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, {Name: "s", Type: arrow.BinaryTypes.String, Nullable: true}}, []arrow.UnionTypeCode{3, 7}), `[[3, 1], [7, "a"], [3, 2], [7, "b"]]`},
	{arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.String), `["a", "a", null, "b"]`},
}

// table is a batch with a column of each layout.
func table(t testing.TB) arrow.RecordBatch {
	t.Helper()
	var fields []arrow.Field
	var arrays []arrow.Array
	rows := 0
	for _, l := range layouts {
		a, _, err := array.FromJSON(memory.DefaultAllocator, l.typ, bytes.NewBufferString(l.rows))
		must(t, err)
		fields = append(fields, arrow.Field{Name: l.typ.String(), Type: l.typ, Nullable: true})
		arrays, rows = append(arrays, a), a.Len()
	}
	md := arrow.NewMetadata([]string{"who"}, []string{"me"})
	return array.NewRecordBatch(arrow.NewSchema(fields, &md), arrays, int64(rows))
}

// Columns of every layout come back as they were; and files of blocks are Arrow files that others read.
func TestEveryLayoutComesBack(t *testing.T) {
	want := table(t)
	w := newWorld(t, inMemory(t), plenty, 0)
	c, p := cache.NewColumns(want.Schema()), w.cache.Open("p", true)
	get := func() {
		g, err := w.ledger.Admit(t.Context(), 1<<20)
		must(t, err)
		defer g.Close()
		l, err := w.cache.Get(t.Context(), cache.Request{
			Block: block(0), Columns: c, Plan: p, Grant: g, Dear: true,
			Load: func(context.Context) ([]*frame.Lease, error) {
				w.loads.Add(1)
				want.Retain()
				return w.frames(want, g)
			},
		})
		must(t, err)
		defer l.Release()
		if len(l.Frames()) != 2 {
			t.Errorf("%d frames", len(l.Frames()))
		}
		want.Retain()
		must(t, w.same(l.Frames(), want))
		w.settle(t)
	}
	get()
	w.cache.ClosePlan(p)
	w.leave(t)
	w.enter(t, plenty, 0)
	p = w.cache.Open("p", true)
	get()
	if s := w.tier.Stats(); w.loads.Load() != 1 || s.Hits != 1 {
		t.Errorf("%d loads, %+v, %v", w.loads.Load(), s, w.events)
	}
	path := filepath.Join(w.dir, folder, files(t, w.dir)[0])
	content, err := os.ReadFile(path)
	must(t, err)
	h, err := readHeader(bytes.NewReader(content), int64(len(content)))
	must(t, err)
	for _, f := range h.frames {
		for _, nodes := range f.columns {
			for _, n := range nodes {
				for _, b := range n.buffers {
					if (h.size+b.off)%align != 0 {
						t.Errorf("a buffer at %d", h.size+b.off)
					}
				}
			}
		}
	}
	w.cache.ClosePlan(p)
	w.leave(t)

	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	r, err := ipc.NewFileReader(f)
	must(t, err)
	if r.NumRecords() != 2 || !r.Schema().Equal(want.Schema()) || r.Schema().Metadata().Len() != 1 {
		t.Errorf("%d batches of %v", r.NumRecords(), r.Schema())
	}
	var batches []arrow.RecordBatch
	for i := range r.NumRecords() {
		b, err := r.RecordBatchAt(i)
		must(t, err)
		batches = append(batches, b)
	}
	for i, b := range batches {
		if part := want.NewSlice(int64(2*i), int64(2*i+2)); !array.RecordEqual(b, part) {
			t.Errorf("batch %d is\n%v\nnot\n%v", i, b, part)
		}
	}
	readByOthers(t, path, want)
}

// readByOthers has pyarrow compare a file with a stream of the same rows.
func readByOthers(t *testing.T, path string, want arrow.RecordBatch) {
	t.Helper()
	python := os.Getenv("HEADRACE_PYTHON")
	if python == "" {
		t.Skip("no Python with pyarrow: set HEADRACE_PYTHON")
	}
	stream := filepath.Join(t.TempDir(), "stream")
	f, err := os.Create(stream)
	must(t, err)
	sw := ipc.NewWriter(f, ipc.WithSchema(want.Schema()))
	must(t, sw.Write(want))
	must(t, sw.Close())
	must(t, f.Close())
	out, err := exec.Command(python, "-c", `
import sys, pyarrow as pa
have, stream = pa.ipc.open_file(sys.argv[1]), pa.memory_map(sys.argv[1])
assert have.num_record_batches == 2 and have.schema.metadata == {b"who": b"me"}
want = pa.ipc.open_stream(sys.argv[2]).read_all()
table = have.read_all()
table.validate(full=True)
assert table.schema.equals(want.schema, check_metadata=True)
for name in want.column_names:
    assert table[name].to_pylist() == want[name].to_pylist(), (name, table[name], want[name])
stream.seek(8)  # what lies between the magics is a stream
assert pa.ipc.open_stream(stream).read_all().num_rows == want.num_rows
`, path, stream).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Frames that are not as frames of blocks are have no file.
func TestWhatIsNotKept(t *testing.T) {
	w := newWorld(t, inMemory(t), plenty, 0)
	p := w.cache.Open("p", true)
	g, err := w.ledger.Admit(t.Context(), 1<<20)
	must(t, err)
	c := columns("a")
	get := func(n int, load func() arrow.RecordBatch, dear bool) {
		l, err := w.cache.Get(t.Context(), cache.Request{
			Block: block(n), Columns: c, Plan: p, Grant: g, Dear: dear,
			Load: func(context.Context) ([]*frame.Lease, error) {
				region, err := w.pool.Alloc(g, budget.Frames, 10)
				return []*frame.Lease{w.pool.Publish(load(), region)}, err
			},
		})
		must(t, err)
		w.settle(t)
		l.Release()
	}
	get(0, func() arrow.RecordBatch { return w.record(block(0), c).NewSlice(1, 3) }, true)
	if s := w.tier.Stats(); s.Refused != 1 || s.Blocks != 0 || s.Errors != 0 {
		t.Errorf("%+v", s)
	}
	get(1, func() arrow.RecordBatch { return w.record(block(1), c) }, false) // it is cheap to load
	if s := w.tier.Stats(); s.Refused != 1 || s.Blocks != 0 {
		t.Errorf("%+v", s)
	}
	g.Close()
	w.cache.ClosePlan(p)
	w.leave(t)
}

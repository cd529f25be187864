package gather

import (
	"context"
	"fmt"
	"math/rand"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/compute"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"

	"github.com/headrace/headrace/storage/arrowtest"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

// world is a grant and a pool that must be empty at the end of a test.
type world struct {
	pool  *frame.Pool
	grant *budget.Grant
}

func newWorld(t testing.TB, poison bool) world {
	ledger := budget.New(budget.Options{Limit: 2 << 30})
	grant, err := ledger.Admit(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	pool := frame.NewPool(frame.Options{Idle: 256 << 20, Poison: poison})
	t.Cleanup(func() {
		grant.Close()
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
		if s := ledger.Stats(); s.Reserved != 0 || len(s.Used) != 0 {
			t.Errorf("left in the ledger: %+v", s)
		}
	})
	return world{pool, grant}
}

func (w world) gather(t rapid.TB, g *Gatherer, rows []Row) *frame.Lease {
	t.Helper()
	size, err := g.Select(rows)
	if err != nil {
		t.Fatalf("%s: %v", g.schema, err)
	}
	l, err := g.Gather(w.pool, w.grant, budget.Batches)
	if err != nil {
		t.Fatalf("%s: %v", g.schema, err)
	}
	if cost := frame.Cost(size); l.Bytes() != cost {
		t.Fatalf("%s: selected %d bytes, %d charged, want %d", g.schema, size, l.Bytes(), cost)
	}
	if l.Batch().NumRows() != int64(len(rows)) {
		t.Fatalf("%s: %d rows of %d", g.schema, l.Batch().NumRows(), len(rows))
	}
	return l
}

func newGatherer(t rapid.TB, s *arrow.Schema, batches ...arrow.RecordBatch) *Gatherer {
	t.Helper()
	g, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range batches {
		if err := g.Put(i, b); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	return g
}

func schemaOf(types ...arrow.DataType) *arrow.Schema {
	var fields []arrow.Field
	for i, t := range types {
		fields = append(fields, arrow.Field{Name: fmt.Sprint("c", i), Type: t, Nullable: true})
	}
	return arrow.NewSchema(fields, nil)
}

// randomBatches makes batches of s, some of them slices, and rows of them in any order, some repeated, some in a row.
func randomBatches(r *rand.Rand, s *arrow.Schema) (batches []arrow.RecordBatch, rows []Row) {
	for i := range 1 + r.Intn(5) {
		n := r.Intn(40)
		var columns []arrow.Array
		for _, f := range s.Fields() {
			m := &arrowtest.Maker{Rand: r, Nulls: r.Intn(3) > 0}
			columns = append(columns, m.Array(f.Type, n))
		}
		b := array.NewRecordBatch(s, columns, int64(n))
		if r.Intn(2) == 0 {
			from := r.Intn(n + 1)
			b = b.NewSlice(int64(from), int64(from+r.Intn(n-from+1)))
		}
		batches = append(batches, b)
		for n := int(b.NumRows()); n > 0 && len(rows) < 100 && r.Intn(30) > 0; {
			from := r.Intn(n)
			for row := from; row < min(from+1+r.Intn(3), n); row++ {
				rows = append(rows, Row{int32(i), int32(row)})
			}
		}
	}
	if r.Intn(10) > 0 {
		r.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	}
	return batches, rows
}

// check gathers rows and compares them with their sources, one by one and with arrow's take.
func check(t rapid.TB, w world, g *Gatherer, batches []arrow.RecordBatch, rows []Row) {
	t.Helper()
	l := w.gather(t, g, rows)
	defer l.Release()
	checkExact(t, l.Batch(), g)
	for k, got := range l.Batch().Columns() {
		for i, r := range rows {
			source := batches[r.Frame].Column(k)
			if !array.SliceEqual(got, int64(i), int64(i)+1, source, int64(r.Row), int64(r.Row)+1) {
				t.Fatalf("%s: row %d of %v is\n%v, not row %v of\n%v", source.DataType(), i, len(rows), array.NewSlice(got, int64(i), int64(i)+1), r, source)
			}
		}
		if !arrowTakes(got.DataType()) {
			continue
		}
		if want := taken(t, batches, k, rows); !array.Equal(got, want) {
			t.Fatalf("%s:\n%v\narrow takes\n%v", got.DataType(), got, want)
		}
	}
}

// arrowTakes tells whether arrow-go 18.8 can take t: views make it panic, others it does not know.
func arrowTakes(t arrow.DataType) bool {
	for _, f := range fields(t) {
		if !arrowTakes(f.Type) {
			return false
		}
	}
	switch t.ID() {
	case arrow.DECIMAL32, arrow.DECIMAL64, arrow.INTERVAL_MONTH_DAY_NANO:
		return false
	}
	kind, _ := layout(t)
	return kind != view && kind != irregular
}

// taken is what arrow takes from column k.
func taken(t rapid.TB, batches []arrow.RecordBatch, k int, rows []Row) arrow.Array {
	t.Helper()
	var arrays []arrow.Array
	starts := make([]int64, len(batches)+1)
	for i, b := range batches {
		arrays = append(arrays, b.Column(k))
		starts[i+1] = starts[i] + b.NumRows()
	}
	all, err := array.Concatenate(arrays, memory.DefaultAllocator)
	if err != nil {
		t.Fatalf("%s: %v", arrays[0].DataType(), err)
	}
	b := array.NewInt64Builder(memory.DefaultAllocator)
	for _, r := range rows {
		b.Append(starts[r.Frame] + int64(r.Row))
	}
	out, err := compute.TakeArray(context.Background(), all, b.NewArray())
	if err != nil {
		t.Fatalf("%s: %v", all.DataType(), err)
	}
	return out
}

// checkExact checks the promises about a frame's buffers: in one region
// without gaps but the padding, which is zero, and so are bits past the last row.
func checkExact(t rapid.TB, b arrow.RecordBatch, g *Gatherer) {
	t.Helper()
	var first unsafe.Pointer
	next := uintptr(0)
	var walk func(d arrow.ArrayData)
	walk = func(d arrow.ArrayData) {
		if d.Offset() != 0 {
			t.Fatalf("%s: offset %d", d.DataType(), d.Offset())
		}
		for _, b := range d.Buffers() {
			if b == nil || b.Len() == 0 {
				continue
			}
			at := unsafe.Pointer(&b.Bytes()[0])
			if first == nil {
				first, next = at, uintptr(at)
			}
			if uintptr(at) != next || next%align != 0 {
				t.Fatalf("%s: a buffer begins at %d, not at %d", d.DataType(), at, next)
			}
			next += uintptr(padded(int64(b.Len())))
			for i, pad := range unsafe.Slice((*byte)(at), padded(int64(b.Len())))[b.Len():] {
				if pad != 0 {
					t.Fatalf("%s: byte %d of the padding is %#x", d.DataType(), i, pad)
				}
			}
		}
		checkNulls(t, d)
		for _, c := range d.Children() {
			walk(c)
		}
	}
	for _, c := range b.Columns() {
		walk(c.Data())
	}
	if g.copier == nil && int64(next-uintptr(first)) != g.size {
		t.Fatalf("%s: %d bytes of buffers, %d were selected", b.Schema(), next-uintptr(first), g.size)
	}
}

// checkNulls checks that a bitmap is there exactly when there are nulls, and the tails of bitmaps.
func checkNulls(t rapid.TB, d arrow.ArrayData) {
	t.Helper()
	tail := func(b *memory.Buffer) bool { return d.Len()%8 != 0 && b.Bytes()[b.Len()-1]>>(d.Len()%8) != 0 }
	if d.DataType().ID() == arrow.BOOL && tail(d.Buffers()[1]) {
		t.Fatal("bits past the last row")
	}
	if kind, _ := layout(d.DataType()); kind == null || kind == irregular {
		return
	}
	nulls := 0
	if b := d.Buffers()[0]; b != nil {
		for i := range d.Len() {
			nulls += int(^b.Bytes()[i/8] >> (i % 8) & 1)
		}
		if nulls == 0 || tail(b) {
			t.Fatalf("%s: a bitmap %x of %d rows", d.DataType(), b.Bytes(), d.Len())
		}
	}
	if nulls != d.NullN() {
		t.Fatalf("%s: %d nulls, NullN %d", d.DataType(), nulls, d.NullN())
	}
}

func TestGatherEqualsTakeForEveryType(t *testing.T) {
	w := newWorld(t, true)
	r := rand.New(rand.NewSource(1))
	run := func(typ arrow.DataType) {
		s := schemaOf(typ)
		batches, rows := randomBatches(r, s)
		check(t, w, newGatherer(t, s, batches...), batches, rows)
	}
	for _, typ := range arrowtest.Flat {
		for range 10 {
			run(typ)
		}
		for range 3 {
			run(arrow.FixedSizeListOf(int32(1+r.Intn(5)), typ))
			run(arrow.ListOf(typ))
		}
	}
	for way := range arrowtest.Nestings {
		for range 30 {
			run(arrowtest.Nest(r, way, r.Intn(2)))
		}
	}
}

func TestGatherEqualsTakeForRandomSchemas(t *testing.T) {
	w := newWorld(t, true)
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewSource(rapid.Int64().Draw(t, "seed")))
		var types []arrow.DataType
		for range 1 + r.Intn(3) {
			types = append(types, arrowtest.Type(r, 3))
		}
		s := schemaOf(types...)
		batches, rows := randomBatches(r, s)
		check(t, w, newGatherer(t, s, batches...), batches, rows)
	})
}

// A gatherer is used for a whole epoch: slots change hands, and nothing of an earlier selection shows in a later one.
func TestGatherAgainWithOtherBatches(t *testing.T) {
	w := newWorld(t, true)
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewSource(rapid.Int64().Draw(t, "seed")))
		s := schemaOf(arrowtest.Type(r, 2), arrowtest.Type(r, 3))
		g := newGatherer(t, s)
		for range 4 {
			batches, rows := randomBatches(r, s)
			for i, b := range batches {
				if err := g.Put(i, b); err != nil {
					t.Fatal(err)
				}
			}
			check(t, w, g, batches, rows)
			g.Drop(r.Intn(len(batches)))
			check(t, w, g, batches, nil)
		}
	})
}

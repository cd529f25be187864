package gather

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"

	"github.com/headrace/headrace/storage/arrowtest"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

func numbers[T int32 | int64](values ...T) *memory.Buffer {
	var mem []byte
	for _, v := range values {
		if v64, ok := any(v).(int64); ok {
			mem = binary.LittleEndian.AppendUint64(mem, uint64(v64))
		} else {
			mem = binary.LittleEndian.AppendUint32(mem, uint32(v))
		}
	}
	return memory.NewBufferBytes(mem)
}

func batchOf(data ...arrow.ArrayData) arrow.RecordBatch {
	var types []arrow.DataType
	var columns []arrow.Array
	for _, d := range data {
		types = append(types, d.DataType())
		columns = append(columns, array.MakeFromData(d))
	}
	return array.NewRecordBatch(schemaOf(types...), columns, int64(data[0].Len()))
}

// repeated is row 0 of frame 0, n times.
func repeated(n int) []Row { return make([]Row, n) }

// One string of 200 MB, taken eleven times, passes 2 GiB; nine times, it does not.
func TestB93_OffsetsPast2GiBAreRefused(t *testing.T) {
	text := memory.NewBufferBytes(make([]byte, 200<<20))
	end := int64(text.Len())
	null := array.NewData(arrow.Null, 1<<30, nil, nil, 1<<30, 0)
	elem := arrow.Field{Name: "item", Type: arrow.Null, Nullable: true}
	nested := arrow.FixedSizeListOfField(1<<30, elem)
	for _, c := range []struct {
		data arrow.ArrayData
		fits int
	}{
		{array.NewData(arrow.BinaryTypes.String, 1, []*memory.Buffer{nil, numbers(0, int32(end)), text}, nil, 0, 0), 10},
		{array.NewData(arrow.BinaryTypes.Binary, 1, []*memory.Buffer{nil, numbers(0, int32(end)), text}, nil, 0, 0), 10},
		{array.NewData(arrow.BinaryTypes.LargeBinary, 1, []*memory.Buffer{nil, numbers(0, end), text}, nil, 0, 0), 10},
		{array.NewData(&arrow.FixedSizeBinaryType{ByteWidth: 200 << 20}, 1, []*memory.Buffer{nil, text}, nil, 0, 0), 10},
		{array.NewData(arrow.ListOf(arrow.Null), 1, []*memory.Buffer{nil, numbers(0, int32(1<<30))}, []arrow.ArrayData{null}, 0, 0), 1},
		{array.NewData(arrow.LargeListOf(arrow.Null), 1, []*memory.Buffer{nil, numbers(0, int64(1<<30))}, []arrow.ArrayData{null}, 0, 0), 1 << 16},
		{array.NewData(nested, 1, []*memory.Buffer{nil}, []arrow.ArrayData{null}, 0, 0), 1 << 16},
		{array.NewData(arrow.BinaryTypes.BinaryView, 1, []*memory.Buffer{nil, numbers(int32(end), 0, 0, 0), text}, nil, 0, 0), 10},
	} {
		b := batchOf(c.data)
		g := newGatherer(t, b.Schema(), b)
		if _, err := g.Select(repeated(c.fits)); err != nil {
			t.Errorf("%s: %v", c.data.DataType(), err)
		}
		_, err := g.Select(repeated(c.fits + 1))
		if !errors.Is(err, frame.ErrOverflow) || !strings.Contains(err.Error(), `"c0`) {
			t.Errorf("%s: %v", c.data.DataType(), err)
		}
		if _, err := g.Gather(nil, nil, budget.Batches); !errors.Is(err, ErrUnselected) {
			t.Errorf("%s: gathering after a refusal: %v", c.data.DataType(), err)
		}
	}
}

// Lists of lists of nothing take no bytes but could count beyond every number.
func TestRowsOfNothingDoNotWrap(t *testing.T) {
	null := array.NewData(arrow.Null, 1<<62, nil, nil, 1<<62, 0)
	inner := arrow.FixedSizeListOf(1<<30, arrow.Null)
	outer := arrow.FixedSizeListOf(1<<30, inner)
	data := array.NewData(outer, 2, []*memory.Buffer{nil},
		[]arrow.ArrayData{array.NewData(inner, 1<<31, []*memory.Buffer{nil}, []arrow.ArrayData{null}, 0, 0)}, 0, 0)
	n, err := newNode("c", outer)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.bind(0, data, 0, 2); err != nil {
		t.Fatal(err)
	}
	for _, count := range []int{1, 2, 9} {
		s := &selection{rows: repeated(count), per: 1, total: int64(count)}
		if err := n.measure(s); !errors.Is(err, frame.ErrOverflow) {
			t.Errorf("%d rows: %v", count, err)
		}
	}
}

func TestSelectRefusesRowsThatAreNotThere(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	m := &arrowtest.Maker{Rand: r}
	b := batchOf(m.Data(arrow.PrimitiveTypes.Int64, 5), m.Data(arrow.BinaryTypes.String, 5))
	g := newGatherer(t, b.Schema(), b)
	if err := g.Put(3, b); err != nil {
		t.Fatal(err)
	}
	g.Drop(3)
	g.Drop(100)
	for _, row := range []Row{{0, 5}, {0, -1}, {-1, 0}, {1, 0}, {3, 0}, {4, 0}} {
		if _, err := g.Select([]Row{{0, 4}, row}); !errors.Is(err, ErrRow) {
			t.Errorf("%v: %v", row, err)
		}
	}
}

func TestGatherNeedsASelectionOfTheBatchesAsTheyAre(t *testing.T) {
	w := newWorld(t, true)
	m := &arrowtest.Maker{Rand: rand.New(rand.NewSource(1))}
	b := batchOf(m.Data(arrow.PrimitiveTypes.Int64, 5))
	g := newGatherer(t, b.Schema(), b)
	for name, change := range map[string]func(){
		"nothing selected": func() {},
		"dropped":          func() { _ = g.Put(0, b); _, _ = g.Select(repeated(2)); g.Drop(0) },
		"replaced":         func() { _ = g.Put(0, b); _, _ = g.Select(repeated(2)); _ = g.Put(0, b) },
	} {
		if change(); !gone(g, w) {
			t.Errorf("%s: gathered", name)
		}
	}
	if err := g.Put(0, b); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Select(repeated(2)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the same rows may be gathered again
		l, err := g.Gather(w.pool, w.grant, budget.Batches)
		if err != nil {
			t.Fatal(err)
		}
		l.Release()
	}
}

func gone(g *Gatherer, w world) bool {
	_, err := g.Gather(w.pool, w.grant, budget.Batches)
	return errors.Is(err, ErrUnselected)
}

func TestGatherPassesOnThatThereIsNoMemory(t *testing.T) {
	m := &arrowtest.Maker{Rand: rand.New(rand.NewSource(1))}
	ledger := budget.New(budget.Options{Limit: 1 << 12})
	grant, err := ledger.Admit(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	pool := frame.NewPool(frame.Options{})
	b := batchOf(m.Data(arrow.PrimitiveTypes.Int64, 5))
	g := newGatherer(t, b.Schema(), b)
	if size, err := g.Select(repeated(1 << 10)); err != nil || size != 8<<10 {
		t.Fatal(size, err)
	}
	if _, err := g.Gather(pool, grant, budget.Batches); !errors.Is(err, budget.ErrExhausted) {
		t.Error(err)
	}
	grant.Close()
	if err := pool.Close(); err != nil {
		t.Error(err)
	}
}

func TestNewRefusesWhatFramesDoNotHold(t *testing.T) {
	dict := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	for _, typ := range []arrow.DataType{dict, arrow.ListOf(dict), arrow.StructOf(arrow.Field{Name: "f", Type: dict})} {
		if _, err := New(schemaOf(typ)); !errors.Is(err, frame.ErrUnsupported) || !strings.Contains(err.Error(), "dictionary") {
			t.Errorf("%s: %v", typ, err)
		}
	}
}

func TestPutRefusesOtherTypes(t *testing.T) {
	m := &arrowtest.Maker{Rand: rand.New(rand.NewSource(1))}
	s := schemaOf(arrow.ListOf(arrow.PrimitiveTypes.Int64))
	for _, typ := range []arrow.DataType{
		arrow.PrimitiveTypes.Int64, arrow.LargeListOf(arrow.PrimitiveTypes.Int64), arrow.ListOf(arrow.PrimitiveTypes.Uint64),
	} {
		g := newGatherer(t, s)
		if err := g.Put(0, batchOf(m.Data(typ, 3))); err == nil || !strings.Contains(err.Error(), `"c0`) {
			t.Errorf("%s: %v", typ, err)
		}
		if _, err := g.Select(repeated(1)); !errors.Is(err, ErrRow) {
			t.Errorf("%s: what could not be put is there: %v", typ, err)
		}
	}
	g := newGatherer(t, s)
	if err := g.Put(0, batchOf(m.Data(arrow.Null, 3), m.Data(arrow.Null, 3))); err == nil {
		t.Error("two columns passed for one")
	}
}

// Arrow's own arrays would not let these through, so they come as data.
func TestBindChecksThatBuffersReachTheirRows(t *testing.T) {
	short := memory.NewBufferBytes(make([]byte, 15))
	i64 := arrow.PrimitiveTypes.Int64
	values := array.NewData(i64, 1, []*memory.Buffer{nil, short}, nil, 0, 0)
	for name, data := range map[string]arrow.ArrayData{
		"values":   array.NewData(i64, 2, []*memory.Buffer{nil, short}, nil, 0, 0),
		"offset":   array.NewData(i64, 1, []*memory.Buffer{nil, short}, nil, 0, 1),
		"missing":  array.NewData(i64, 1, []*memory.Buffer{nil, nil}, nil, 0, 0),
		"none":     array.NewData(i64, 1, nil, nil, 0, 0),
		"bits":     array.NewData(arrow.FixedWidthTypes.Boolean, 121, []*memory.Buffer{nil, short}, nil, 0, 0),
		"validity": array.NewData(&arrow.FixedSizeBinaryType{}, 121, []*memory.Buffer{short}, nil, 1, 0),
		"offsets":  array.NewData(arrow.BinaryTypes.String, 3, []*memory.Buffer{nil, short, nil}, nil, 0, 0),
		"views":    array.NewData(arrow.BinaryTypes.StringView, 1, []*memory.Buffer{nil, short}, nil, 0, 0),
		"child":    array.NewData(arrow.FixedSizeListOf(2, i64), 1, []*memory.Buffer{nil}, []arrow.ArrayData{values}, 0, 0),
		"field":    array.NewData(arrow.StructOf(arrow.Field{Name: "f", Type: i64}), 2, []*memory.Buffer{nil}, []arrow.ArrayData{values}, 0, 0),
		"nulls":    array.NewData(arrow.FixedSizeListOf(2, arrow.Null), 1, []*memory.Buffer{nil}, []arrow.ArrayData{array.NewData(arrow.Null, 1, nil, nil, 1, 0)}, 0, 0),
		"children": array.NewData(arrow.StructOf(arrow.Field{Name: "f", Type: i64}), 1, []*memory.Buffer{nil}, nil, 0, 0),
	} {
		n, err := newNode("c", data.DataType())
		if err != nil {
			t.Fatal(err)
		}
		if err := n.bind(0, data, 0, int64(data.Len())); !errors.Is(err, frame.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Mapped files may change under us: what comes out is an error or a sound batch, and nothing is read or written out of place.
func TestBytesThatChangeBeforeTheyAreGathered(t *testing.T) {
	w := newWorld(t, true)
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewSource(rapid.Int64().Draw(t, "seed")))
		s := schemaOf(arrowtest.Type(r, 3))
		batches, rows := randomBatches(r, s)
		g := newGatherer(t, s, batches...)
		spoil := func() {
			for _, b := range batches {
				spoilData(r, b.Column(0).Data())
			}
		}
		if r.Intn(2) == 0 {
			spoil()
		}
		if _, err := g.Select(rows); err != nil {
			mustBeAbout(t, err)
			return
		}
		spoil()
		l, err := g.Gather(w.pool, w.grant, budget.Batches)
		if err != nil {
			mustBeAbout(t, err)
			return
		}
		defer l.Release()
		for _, c := range l.Batch().Columns() {
			if err := array.ValidateFull(c); err != nil && !harmless(err) {
				t.Fatalf("%s: %v", c.DataType(), err)
			}
		}
	})
}

// harmless tells what is not about the layout of arrays: spoiled text, and a width that arrow refuses but files may have.
func harmless(err error) bool {
	return strings.Contains(err.Error(), "not valid utf8") || strings.Contains(err.Error(), "invalid fixed width 0")
}

func mustBeAbout(t *rapid.T, err error) {
	if !errors.Is(err, frame.ErrCorrupt) && !errors.Is(err, frame.ErrOverflow) {
		t.Fatal(err)
	}
}

// spoilData overwrites a few bytes of the buffers of data, mostly of offsets and views.
func spoilData(r *rand.Rand, data arrow.ArrayData) {
	for _, b := range data.Buffers() {
		if b != nil && b.Len() > 0 && r.Intn(2) == 0 {
			b.Bytes()[r.Intn(b.Len())] = byte(r.Intn(256))
		}
	}
	for _, c := range data.Children() {
		spoilData(r, c)
	}
}

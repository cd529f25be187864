package gather

import (
	"encoding/binary"
	"fmt"
	"math/rand"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// flat are the types without children, each layout and width at least once.
var flat = []arrow.DataType{
	arrow.Null, arrow.FixedWidthTypes.Boolean,
	arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64,
	arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Uint16, arrow.PrimitiveTypes.Uint32, arrow.PrimitiveTypes.Uint64,
	arrow.FixedWidthTypes.Float16, arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64,
	arrow.BinaryTypes.String, arrow.BinaryTypes.Binary, arrow.BinaryTypes.LargeString, arrow.BinaryTypes.LargeBinary,
	arrow.BinaryTypes.StringView, arrow.BinaryTypes.BinaryView,
	&arrow.FixedSizeBinaryType{ByteWidth: 3}, &arrow.FixedSizeBinaryType{ByteWidth: 0}, &arrow.FixedSizeBinaryType{ByteWidth: 70},
	arrow.FixedWidthTypes.Date32, arrow.FixedWidthTypes.Date64, arrow.FixedWidthTypes.Time32ms, arrow.FixedWidthTypes.Time64ns,
	arrow.FixedWidthTypes.Timestamp_us, arrow.FixedWidthTypes.Duration_s,
	arrow.FixedWidthTypes.MonthInterval, arrow.FixedWidthTypes.DayTimeInterval, arrow.FixedWidthTypes.MonthDayNanoInterval,
	&arrow.Decimal32Type{Precision: 5, Scale: 2}, &arrow.Decimal64Type{Precision: 9, Scale: 2},
	&arrow.Decimal128Type{Precision: 20, Scale: 2}, &arrow.Decimal256Type{Precision: 50, Scale: 2},
}

// nestings is how many ways nest knows, the last four without kernels.
const nestings = 11

// randomType draws a type with at most depth levels of children.
func randomType(r *rand.Rand, depth int) arrow.DataType {
	if depth == 0 || r.Intn(3) == 0 {
		return flat[r.Intn(len(flat))]
	}
	ways := 7
	if r.Intn(8) == 0 {
		ways = nestings
	}
	return nest(r, r.Intn(ways), depth-1)
}

// nest wraps random types in the way-th nested one.
func nest(r *rand.Rand, way, depth int) arrow.DataType {
	child := func() arrow.DataType { return randomType(r, depth) }
	fields := func() (f []arrow.Field) {
		for i := range 1 + r.Intn(3) {
			f = append(f, arrow.Field{Name: fmt.Sprint("f", i), Type: child(), Nullable: true})
		}
		return f
	}
	codes := []arrow.UnionTypeCode{5, 0, 127}
	switch way {
	case 0:
		return arrow.ListOf(child())
	case 1:
		return arrow.LargeListOf(child())
	case 2:
		return arrow.FixedSizeListOf(int32(1+r.Intn(4)), child())
	case 3:
		return arrow.FixedSizeListOf(int32(1+r.Intn(3)), arrow.FixedSizeListOf(int32(1+r.Intn(3)), child()))
	case 4:
		return arrow.StructOf(fields()...)
	case 5:
		return arrow.MapOf(arrow.PrimitiveTypes.Int32, child())
	case 6:
		return arrow.ListOf(arrow.StructOf(fields()...))
	case 7:
		return arrow.ListViewOf(child())
	case 8:
		f := fields()
		return arrow.SparseUnionOf(f, codes[:len(f)])
	case 9:
		f := fields()
		return arrow.DenseUnionOf(f, codes[:len(f)])
	default:
		return arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, flat[1+r.Intn(len(flat)-1)])
	}
}

// maker builds random arrays from the bottom up, out of raw buffers: arrow's
// builders never make the odd ones, with offsets and garbage under nulls.
type maker struct {
	*rand.Rand
	nulls bool
}

func (m *maker) array(t arrow.DataType, n int) arrow.Array {
	data := m.data(t, n)
	defer data.Release()
	return array.MakeFromData(data)
}

// data makes n rows of type t behind a random offset.
func (m *maker) data(t arrow.DataType, n int) arrow.ArrayData {
	skip := m.Intn(4)
	rows := skip + n
	buffers := []*memory.Buffer{nil}
	nulls := 0
	switch t.ID() {
	case arrow.NULL:
		nulls = n
	case arrow.SPARSE_UNION, arrow.DENSE_UNION, arrow.RUN_END_ENCODED:
	default:
		if m.nulls && m.Intn(3) > 0 {
			buffers[0], nulls = buffer(m.bytes(rows/8+1)), array.UnknownNullCount
		}
	}
	more, children := m.body(t, rows)
	return array.NewData(t, n, append(buffers, more...), children, nulls, skip)
}

func buffer(b []byte) *memory.Buffer { return memory.NewBufferBytes(b) }

func (m *maker) bytes(n int) []byte {
	b := make([]byte, n)
	m.Read(b)
	return b
}

func (m *maker) body(t arrow.DataType, rows int) (buffers []*memory.Buffer, children []arrow.ArrayData) {
	one := func(d arrow.ArrayData) []arrow.ArrayData { return []arrow.ArrayData{d} }
	switch t := t.(type) {
	case *arrow.NullType:
		return nil, nil
	case *arrow.BooleanType:
		return []*memory.Buffer{buffer(m.bytes(rows/8 + 1))}, nil
	case *arrow.StringViewType, *arrow.BinaryViewType:
		return m.views(rows), nil
	case *arrow.MapType:
		sure := &maker{Rand: m.Rand}
		offsets, size := m.offsets(rows, 4)
		pairs := []arrow.ArrayData{sure.data(t.KeyType(), size), m.data(t.ItemType(), size)}
		return []*memory.Buffer{offsets}, one(array.NewData(t.Elem(), size, []*memory.Buffer{nil}, pairs, 0, 0))
	case *arrow.FixedSizeListType:
		return nil, one(m.data(t.Elem(), rows*int(t.Len())))
	case *arrow.ListViewType:
		return m.listViews(t, rows)
	case *arrow.StructType:
		for _, f := range t.Fields() {
			children = append(children, m.data(f.Type, rows))
		}
		return nil, children
	case arrow.UnionType:
		return m.union(t, rows)
	case *arrow.RunEndEncodedType:
		return nil, m.runs(t, rows)
	}
	kind, width := layout(t)
	if kind == fixed {
		return []*memory.Buffer{buffer(m.fixed(t, rows*int(width)))}, nil
	}
	offsets, size := m.offsets(rows, int(width))
	if nested, ok := t.(arrow.ListLikeType); ok {
		return []*memory.Buffer{offsets}, one(m.data(nested.Elem(), size))
	}
	return []*memory.Buffer{offsets, buffer(m.text(size))}, nil
}

// fixed makes values that equal themselves: random bits would be NaN at times.
func (m *maker) fixed(t arrow.DataType, n int) []byte {
	b := m.bytes(n)
	if arrow.IsFloating(t.ID()) {
		for i := range b {
			b[i] &= 0x37
		}
	}
	return b
}

func (m *maker) text(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + m.Intn(26))
	}
	return b
}

func put(mem []byte, width, v int) []byte {
	if width == 4 {
		return binary.LittleEndian.AppendUint32(mem, uint32(v))
	}
	return binary.LittleEndian.AppendUint64(mem, uint64(v))
}

func (m *maker) offsets(rows, width int) (*memory.Buffer, int) {
	at := m.Intn(3)
	mem := put(nil, width, at)
	for range rows {
		at += m.Intn(4)
		mem = put(mem, width, at)
	}
	return buffer(mem), at + m.Intn(3)
}

func (m *maker) views(rows int) []*memory.Buffer {
	stores := [][]byte{m.text(200), m.text(100)}
	var views []byte
	for range rows {
		size := m.Intn(30)
		views = put(views, 4, size)
		if size <= inline {
			views = append(append(views, m.text(size)...), make([]byte, inline-size)...)
			continue
		}
		store := m.Intn(2)
		at := m.Intn(len(stores[store]) - size)
		views = append(views, stores[store][at:][:4]...)
		views = put(put(views, 4, store), 4, at)
	}
	return []*memory.Buffer{buffer(views), buffer(stores[0]), buffer(stores[1])}
}

func (m *maker) listViews(t *arrow.ListViewType, rows int) ([]*memory.Buffer, []arrow.ArrayData) {
	size := 5 + m.Intn(2*rows+1)
	var offsets, sizes []byte
	for range rows {
		n := m.Intn(4)
		offsets, sizes = put(offsets, 4, m.Intn(size-n+1)), put(sizes, 4, n)
	}
	return []*memory.Buffer{buffer(offsets), buffer(sizes)}, []arrow.ArrayData{m.data(t.Elem(), size)}
}

func (m *maker) union(t arrow.UnionType, rows int) (buffers []*memory.Buffer, children []arrow.ArrayData) {
	var ids, offsets []byte
	used := make([]int, t.NumFields())
	for range rows {
		k := m.Intn(t.NumFields())
		ids = append(ids, byte(t.TypeCodes()[k]))
		used[k] += m.Intn(3) // 0: shares the value of the row before
		offsets = put(offsets, 4, used[k])
	}
	buffers = []*memory.Buffer{buffer(ids)}
	dense := t.Mode() == arrow.DenseMode
	if dense {
		buffers = append(buffers, buffer(offsets))
	}
	for k, f := range t.Fields() {
		n := rows
		if dense {
			n = used[k] + 1
		}
		children = append(children, m.data(f.Type, n))
	}
	return buffers, children
}

func (m *maker) runs(t *arrow.RunEndEncodedType, rows int) []arrow.ArrayData {
	var mem []byte
	n := 0
	for end := 0; end < rows; n++ {
		end += 1 + m.Intn(4)
		mem = put(mem, 4, end)
	}
	ends := array.NewData(t.RunEnds(), n, []*memory.Buffer{nil, buffer(mem)}, nil, 0, 0)
	return []arrow.ArrayData{ends, m.data(t.Encoded(), n)}
}

package frame

import (
	"fmt"
	"math/rand"
	"reflect"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// flat are the types without children, one of each layout and width.
var flat = []arrow.DataType{
	arrow.Null, arrow.FixedWidthTypes.Boolean,
	arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64,
	arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Uint16, arrow.PrimitiveTypes.Uint32, arrow.PrimitiveTypes.Uint64,
	arrow.FixedWidthTypes.Float16, arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64,
	arrow.BinaryTypes.String, arrow.BinaryTypes.Binary, arrow.BinaryTypes.LargeString, arrow.BinaryTypes.LargeBinary,
	arrow.BinaryTypes.StringView, arrow.BinaryTypes.BinaryView,
	&arrow.FixedSizeBinaryType{ByteWidth: 3}, &arrow.FixedSizeBinaryType{ByteWidth: 0},
	arrow.FixedWidthTypes.Date32, arrow.FixedWidthTypes.Date64,
	arrow.FixedWidthTypes.Time32ms, arrow.FixedWidthTypes.Time64ns, arrow.FixedWidthTypes.Timestamp_us, arrow.FixedWidthTypes.Duration_s,
	arrow.FixedWidthTypes.MonthInterval, arrow.FixedWidthTypes.DayTimeInterval, arrow.FixedWidthTypes.MonthDayNanoInterval,
	&arrow.Decimal32Type{Precision: 5, Scale: 2}, &arrow.Decimal64Type{Precision: 9, Scale: 2},
	&arrow.Decimal128Type{Precision: 20, Scale: 2}, &arrow.Decimal256Type{Precision: 50, Scale: 2},
}

// nestings is how many ways randomType knows to nest.
const nestings = 11

// randomType draws a type with at most depth levels of children.
func randomType(r *rand.Rand, depth int) arrow.DataType {
	if depth == 0 || r.Intn(3) == 0 {
		return flat[r.Intn(len(flat))]
	}
	return nest(r, r.Intn(nestings), depth-1)
}

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
		return arrow.FixedSizeListOf(int32(1+r.Intn(3)), child())
	case 3:
		return arrow.ListViewOf(child())
	case 4:
		return arrow.LargeListViewOf(child())
	case 5:
		return arrow.StructOf(fields()...)
	case 6:
		return arrow.MapOf(arrow.PrimitiveTypes.Int32, child())
	case 7:
		f := fields()
		return arrow.SparseUnionOf(f, codes[:len(f)])
	case 8:
		f := fields()
		return arrow.DenseUnionOf(f, codes[:len(f)])
	case 9:
		ends := []arrow.DataType{arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64}
		return arrow.RunEndEncodedOf(ends[r.Intn(3)], flat[r.Intn(len(flat))])
	default:
		return arrow.ListOf(arrow.StructOf(fields()...))
	}
}

// maker builds random arrays from the bottom up, out of raw buffers: arrow's
// builders never make the odd ones, such as shared lists or garbage under nulls.
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
	lay, err := layoutOf(t)
	if err != nil {
		panic(err)
	}
	buffers := []*memory.Buffer{nil}
	nulls := 0
	if lay.validity() && m.nulls && m.Intn(3) > 0 {
		buffers[0] = memory.NewBufferBytes(m.bytes(rows/8 + 1))
		nulls = array.UnknownNullCount
	}
	if lay.kind == empty {
		nulls = n
	}
	more, children := m.body(t, lay, rows)
	return array.NewData(t, n, append(buffers, more...), children, nulls, skip)
}

func (m *maker) bytes(n int) []byte {
	b := make([]byte, n)
	m.Read(b)
	return b
}

func (m *maker) body(t arrow.DataType, lay layout, rows int) (buffers []*memory.Buffer, children []arrow.ArrayData) {
	add := func(b []byte) { buffers = append(buffers, memory.NewBufferBytes(b)) }
	fields := fieldsOf(t)
	switch lay.kind {
	case bit:
		add(m.bytes(rows/8 + 1))
	case fixed:
		add(m.fixed(t, rows*int(lay.width)))
	case binary:
		offsets, size := m.offsets(rows, lay.width)
		add(offsets)
		add(m.text(size))
	case view:
		for _, b := range m.views(rows) {
			add(b)
		}
	case list:
		offsets, size := m.offsets(rows, lay.width)
		add(offsets)
		children = []arrow.ArrayData{m.child(t, size)}
	case fixedList:
		children = []arrow.ArrayData{m.data(fields[0].Type, rows*int(lay.width))}
	case listView:
		offsets, sizes, size := m.listViews(rows, lay.width)
		add(offsets)
		add(sizes)
		children = []arrow.ArrayData{m.data(fields[0].Type, size)}
	case record:
		for _, f := range fields {
			children = append(children, m.data(f.Type, rows))
		}
	case sparse, dense:
		return m.union(t.(arrow.UnionType), rows)
	case runs:
		children = m.runs(t.(*arrow.RunEndEncodedType), rows)
	}
	return buffers, children
}

// child makes the rows of a list's child; a map's entries and keys are never null.
func (m *maker) child(t arrow.DataType, n int) arrow.ArrayData {
	mt, ok := t.(*arrow.MapType)
	if !ok {
		return m.data(fieldsOf(t)[0].Type, n)
	}
	sure := &maker{Rand: m.Rand}
	entries := mt.Elem().(*arrow.StructType)
	return array.NewData(entries, n, []*memory.Buffer{nil}, []arrow.ArrayData{sure.data(mt.KeyType(), n), m.data(mt.ItemType(), n)}, 0, 0)
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

func (m *maker) offsets(rows int, width int64) ([]byte, int) {
	mem := make([]byte, (rows+1)*int(width))
	at := m.Intn(3)
	for i := range rows + 1 {
		putNumber(mem, int64(i), width, int64(at))
		if i < rows {
			at += m.Intn(4)
		}
	}
	return mem, at + m.Intn(3)
}

func (m *maker) views(rows int) [][]byte {
	data := [][]byte{m.text(200), m.text(100)}
	views := m.bytes(rows * 16)
	for i := range int64(rows) {
		v := views[i*16:][:16]
		size := m.Intn(30)
		putNumber(v, 0, 4, int64(size))
		if size <= inline {
			clear(v[4+size:])
			copy(v[4:], m.text(size))
			continue
		}
		b := m.Intn(2)
		at := m.Intn(len(data[b]) - size)
		copy(v[4:8], data[b][at:])
		putNumber(v, 2, 4, int64(b))
		putNumber(v, 3, 4, int64(at))
	}
	return append([][]byte{views}, data...)
}

func (m *maker) listViews(rows int, width int64) (offsets, sizes []byte, size int) {
	size = 5 + m.Intn(2*rows+1)
	offsets, sizes = make([]byte, rows*int(width)), make([]byte, rows*int(width))
	for i := range int64(rows) {
		n := m.Intn(4)
		putNumber(offsets, i, width, int64(m.Intn(size-n+1)))
		putNumber(sizes, i, width, int64(n))
	}
	return offsets, sizes, size
}

func (m *maker) union(t arrow.UnionType, rows int) (buffers []*memory.Buffer, children []arrow.ArrayData) {
	ids, offsets := make([]byte, rows), make([]byte, rows*4)
	used := make([]int, t.NumFields())
	for i := range rows {
		k := m.Intn(t.NumFields())
		ids[i] = byte(t.TypeCodes()[k])
		used[k] += m.Intn(3) // 0: shares the value of the row before
		putNumber(offsets, int64(i), 4, int64(used[k]))
	}
	buffers = []*memory.Buffer{memory.NewBufferBytes(ids)}
	if t.Mode() == arrow.DenseMode {
		buffers = append(buffers, memory.NewBufferBytes(offsets))
	}
	for k, f := range t.Fields() {
		n := rows
		if t.Mode() == arrow.DenseMode {
			n = used[k] + 1
		}
		children = append(children, m.data(f.Type, n))
	}
	return buffers, children
}

func (m *maker) runs(t *arrow.RunEndEncodedType, rows int) []arrow.ArrayData {
	width := int64(t.RunEnds().(arrow.FixedWidthDataType).BitWidth() / 8)
	var mem []byte
	n := 0
	for end := 0; end < rows; n++ {
		end += 1 + m.Intn(4)
		mem = append(mem, make([]byte, width)...)
		putNumber(mem, int64(n), width, int64(end))
	}
	ends := array.NewData(t.RunEnds(), n, []*memory.Buffer{nil, memory.NewBufferBytes(mem)}, nil, 0, 0)
	return []arrow.ArrayData{ends, m.data(t.Encoded(), n)}
}

// rowsOf lists rows [from, to) of c as plain values, read by rules of its own:
// it shares no code with the copier, only the description of columns.
func rowsOf(arr arrow.Array, from, to int) []any {
	var out []any
	for i := from; i < to; i++ {
		out = append(out, valueOf(arr.Data(), i))
	}
	return out
}

// valueOf is row i of data as nil, bytes, or a list of values.
func valueOf(d arrow.ArrayData, i int) any {
	lay, _ := layoutOf(d.DataType())
	at := int64(d.Offset() + i)
	buf := func(k int) []byte { return d.Buffers()[k].Bytes() }
	if lay.validity() && d.Buffers()[0] != nil && buf(0)[at/8]>>(at%8)&1 == 0 {
		return nil
	}
	rows := func(child int, from, to int64) any {
		out := []any{}
		for j := from; j < to; j++ {
			out = append(out, valueOf(d.Children()[child], int(j)))
		}
		return out
	}
	w := lay.width
	switch lay.kind {
	case bit:
		return buf(1)[at/8]>>(at%8)&1 == 1
	case fixed:
		return string(buf(1)[at*w : (at+1)*w])
	case binary:
		return string(buf(2)[number(buf(1), at, w):number(buf(1), at+1, w)])
	case view:
		v := buf(1)[at*w:][:w]
		if size := number(v, 0, 4); size > inline {
			from := number(v, 3, 4)
			return string(buf(int(number(v, 2, 4)) + 2)[from : from+size])
		}
		return string(v[4 : 4+number(v, 0, 4)])
	case list:
		return rows(0, number(buf(1), at, w), number(buf(1), at+1, w))
	case fixedList:
		return rows(0, at*w, (at+1)*w)
	case listView:
		return rows(0, number(buf(1), at, w), number(buf(1), at, w)+number(buf(2), at, w))
	case record:
		out := []any{}
		for k := range d.Children() {
			out = append(out, valueOf(d.Children()[k], int(at)))
		}
		return out
	case sparse:
		k := d.DataType().(arrow.UnionType).ChildIDs()[buf(1)[at]]
		return []any{k, valueOf(d.Children()[k], int(at))}
	case dense:
		k := d.DataType().(arrow.UnionType).ChildIDs()[buf(1)[at]]
		return []any{k, valueOf(d.Children()[k], int(number(buf(2), at, w)))}
	case runs:
		ends := d.Children()[0]
		for j := 0; ; j++ {
			if number(ends.Buffers()[1].Bytes(), int64(ends.Offset()+j), w) > at {
				return valueOf(d.Children()[1], j)
			}
		}
	}
	return nil
}

func same(a, b []any) bool { return len(a) == len(b) && (len(a) == 0 || reflect.DeepEqual(a, b)) }

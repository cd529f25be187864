package arrowtest

import (
	"encoding/binary"
	"math/rand"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Maker builds random arrays from the bottom up, out of raw buffers: arrow's builders never make the odd ones, with offsets,
// shared lists, or garbage under nulls.
type Maker struct {
	*rand.Rand
	Nulls bool // whether there are any
}

// Array makes n rows of a type, behind a random offset.
func (m *Maker) Array(t arrow.DataType, n int) arrow.Array {
	data := m.Data(t, n)
	defer data.Release()
	return array.MakeFromData(data)
}

// Data makes what an array of n rows is made of.
func (m *Maker) Data(t arrow.DataType, n int) arrow.ArrayData {
	skip := m.Intn(4)
	rows := skip + n
	buffers := []*memory.Buffer{nil}
	nulls := 0
	switch t.ID() {
	case arrow.NULL:
		nulls = n
	case arrow.SPARSE_UNION, arrow.DENSE_UNION, arrow.RUN_END_ENCODED: // their children have the nulls
	default:
		if m.Nulls && m.Intn(3) > 0 {
			buffers[0], nulls = buffer(m.Bytes(rows/8+1)), array.UnknownNullCount
		}
	}
	more, children := m.body(t, rows)
	return array.NewData(t, n, append(buffers, more...), children, nulls, skip)
}

// Bytes makes n random bytes.
func (m *Maker) Bytes(n int) []byte {
	b := make([]byte, n)
	m.Read(b)
	return b
}

// body makes what follows the bitmap of nulls.
func (m *Maker) body(t arrow.DataType, rows int) (buffers []*memory.Buffer, children []arrow.ArrayData) {
	switch t := t.(type) {
	case *arrow.NullType:
		return nil, nil
	case *arrow.BooleanType:
		return []*memory.Buffer{buffer(m.Bytes(rows/8 + 1))}, nil
	case *arrow.StringViewType, *arrow.BinaryViewType:
		return m.views(rows), nil
	case *arrow.StringType, *arrow.BinaryType:
		return m.texts(rows, 4), nil
	case *arrow.LargeStringType, *arrow.LargeBinaryType:
		return m.texts(rows, 8), nil
	case *arrow.MapType:
		offsets, size := m.offsets(rows, 4)
		return []*memory.Buffer{offsets}, []arrow.ArrayData{m.pairs(t, size)}
	case *arrow.ListType:
		return m.lists(t, rows, 4)
	case *arrow.LargeListType:
		return m.lists(t, rows, 8)
	case *arrow.ListViewType:
		return m.listViews(t, rows, 4)
	case *arrow.LargeListViewType:
		return m.listViews(t, rows, 8)
	case *arrow.FixedSizeListType:
		return nil, []arrow.ArrayData{m.Data(t.Elem(), rows*int(t.Len()))}
	case *arrow.StructType:
		for _, f := range t.Fields() {
			children = append(children, m.Data(f.Type, rows))
		}
		return nil, children
	case arrow.UnionType:
		return m.union(t, rows)
	case *arrow.RunEndEncodedType:
		return nil, m.runs(t, rows)
	}
	return []*memory.Buffer{buffer(m.numbers(t, rows*t.(arrow.FixedWidthDataType).Bytes()))}, nil
}

// pairs makes the entries of a map: they, and their keys, are never null.
func (m *Maker) pairs(t *arrow.MapType, n int) arrow.ArrayData {
	sure := &Maker{Rand: m.Rand}
	columns := []arrow.ArrayData{sure.Data(t.KeyType(), n), m.Data(t.ItemType(), n)}
	return array.NewData(t.Elem(), n, []*memory.Buffer{nil}, columns, 0, 0)
}

// numbers makes n bytes of values that equal themselves: random bits would be NaN at times.
func (m *Maker) numbers(t arrow.DataType, n int) []byte {
	b := m.Bytes(n)
	if arrow.IsFloating(t.ID()) {
		for i := range b {
			b[i] &= 0x37
		}
	}
	return b
}

func (m *Maker) text(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + m.Intn(26))
	}
	return b
}

func (m *Maker) texts(rows, width int) []*memory.Buffer {
	offsets, size := m.offsets(rows, width)
	return []*memory.Buffer{offsets, buffer(m.text(size))}
}

func (m *Maker) lists(t arrow.ListLikeType, rows, width int) ([]*memory.Buffer, []arrow.ArrayData) {
	offsets, size := m.offsets(rows, width)
	return []*memory.Buffer{offsets}, []arrow.ArrayData{m.Data(t.Elem(), size)}
}

// offsets begin behind the first value, and end before the last one of as many as it returns.
func (m *Maker) offsets(rows, width int) (offsets *memory.Buffer, size int) {
	at := m.Intn(3)
	mem := Put(nil, width, at)
	for range rows {
		at += m.Intn(4)
		mem = Put(mem, width, at)
	}
	return buffer(mem), at + m.Intn(3)
}

// inline is how many bytes a view holds itself.
const inline = 12

func (m *Maker) views(rows int) []*memory.Buffer {
	stores := [][]byte{m.text(200), m.text(100)}
	var views []byte
	for range rows {
		size := m.Intn(30)
		views = Put(views, 4, size)
		if size <= inline {
			views = append(append(views, m.text(size)...), make([]byte, inline-size)...)
			continue
		}
		store := m.Intn(2)
		at := m.Intn(len(stores[store]) - size)
		views = append(views, stores[store][at:][:4]...)
		views = Put(Put(views, 4, store), 4, at)
	}
	return []*memory.Buffer{buffer(views), buffer(stores[0]), buffer(stores[1])}
}

func (m *Maker) listViews(t arrow.ListLikeType, rows, width int) ([]*memory.Buffer, []arrow.ArrayData) {
	size := 5 + m.Intn(2*rows+1)
	var offsets, sizes []byte
	for range rows {
		n := m.Intn(4)
		offsets, sizes = Put(offsets, width, m.Intn(size-n+1)), Put(sizes, width, n)
	}
	return []*memory.Buffer{buffer(offsets), buffer(sizes)}, []arrow.ArrayData{m.Data(t.Elem(), size)}
}

func (m *Maker) union(t arrow.UnionType, rows int) (buffers []*memory.Buffer, children []arrow.ArrayData) {
	var ids, offsets []byte
	used := make([]int, t.NumFields())
	for range rows {
		k := m.Intn(t.NumFields())
		ids = append(ids, byte(t.TypeCodes()[k]))
		used[k] += m.Intn(3) // 0: shares the value of the row before
		offsets = Put(offsets, 4, used[k])
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
		children = append(children, m.Data(f.Type, n))
	}
	return buffers, children
}

func (m *Maker) runs(t *arrow.RunEndEncodedType, rows int) []arrow.ArrayData {
	width := t.RunEnds().(arrow.FixedWidthDataType).Bytes()
	var mem []byte
	n := 0
	for end := 0; end < rows; n++ {
		end += 1 + m.Intn(4)
		mem = Put(mem, width, end)
	}
	ends := array.NewData(t.RunEnds(), n, []*memory.Buffer{nil, buffer(mem)}, nil, 0, 0)
	return []arrow.ArrayData{ends, m.Data(t.Encoded(), n)}
}

func buffer(b []byte) *memory.Buffer { return memory.NewBufferBytes(b) }

// Put appends a number of 2, 4 or 8 bytes.
func Put(mem []byte, width, v int) []byte {
	switch width {
	case 2:
		return binary.LittleEndian.AppendUint16(mem, uint16(v))
	case 4:
		return binary.LittleEndian.AppendUint32(mem, uint32(v))
	default:
		return binary.LittleEndian.AppendUint64(mem, uint64(v))
	}
}

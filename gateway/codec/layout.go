package codec

import (
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

// maxDepth is how deep types may nest; readers have the same limit.
const maxDepth = 64

// layout is the plan of one body: field nodes, buffers and the pieces these consist of, in the order of the format.
//
// Its methods take windows: rows [from, from+n) of an array's buffers, the array's own offset included in from. A child
// gets the window that its parent's rows need and no more, so that no byte of other rows is ever sent.
type layout struct {
	arena    arena
	nodes    []node
	buffers  []buffer
	pieces   []piece
	variadic []int64 // data buffers of each array of views
	copied   int     // bytes
	depth    int
	compacts int // how many compact are running
	spans    []span
}

type node struct{ rows, nulls int }

// buffer is pieces [first, first+count).
type buffer struct{ first, count, size, offset int }

type piece struct {
	data []byte
	copy bool // counted in copied
}

func (l *layout) reset() {
	l.arena.reset()
	clear(l.pieces)
	l.nodes, l.buffers, l.pieces, l.variadic = l.nodes[:0], l.buffers[:0], l.pieces[:0], l.variadic[:0]
	l.copied, l.depth, l.compacts = 0, 0, 0
}

func (l *layout) node(rows, nulls int) { l.nodes = append(l.nodes, node{rows, nulls}) }

// put adds a buffer of the given pieces.
func (l *layout) put(pieces ...piece) {
	b := buffer{first: len(l.pieces), count: len(pieces)}
	for _, p := range pieces {
		b.size += len(p.data)
	}
	l.pieces = append(l.pieces, pieces...)
	l.buffers = append(l.buffers, b)
}

// empty adds a buffer without bytes.
func (l *layout) empty() { l.put() }

// lend adds a buffer that stays where it is.
func (l *layout) lend(data []byte) { l.put(piece{data: data}) }

// own adds a buffer of n bytes, which the caller fills at once.
func (l *layout) own(n int) ([]byte, error) {
	data, err := l.arena.take(n)
	if err != nil {
		return nil, err
	}
	l.copied += n
	l.put(piece{data: data, copy: true})
	return data, nil
}

// array adds rows [from, from+n) of d.
func (l *layout) array(d arrow.ArrayData, from, n int) error {
	if l.depth++; l.depth > maxDepth {
		return fmt.Errorf("%w: nested deeper than %d", ErrUnsupported, maxDepth)
	}
	defer func() { l.depth-- }()
	t := d.DataType()
	for t.ID() == arrow.EXTENSION {
		t = t.(arrow.ExtensionType).StorageType()
	}
	switch t := t.(type) {
	case *arrow.NullType:
		l.node(n, n)
		return nil
	case *arrow.SparseUnionType:
		return l.sparseUnion(d, from, n)
	case *arrow.DenseUnionType:
		return l.denseUnion(t, d, from, n)
	case *arrow.RunEndEncodedType:
		return l.runs(t, d, from, n)
	case *arrow.ListViewType:
		return listView[int32](l, d, from, n)
	case *arrow.LargeListViewType:
		return listView[int64](l, d, from, n)
	case *arrow.DictionaryType:
		return fmt.Errorf("%w: %s", ErrUnsupported, t)
	}
	if err := l.validity(d, from, n); err != nil {
		return err
	}
	return l.values(t, d, from, n)
}

// values adds what follows the validity of an array of type t.
func (l *layout) values(t arrow.DataType, d arrow.ArrayData, from, n int) error {
	switch t := t.(type) {
	case *arrow.BooleanType:
		return l.bits(bytesOf(d, 1), from, n)
	case *arrow.BinaryType, *arrow.StringType:
		return varying[int32](l, d, from, n)
	case *arrow.LargeBinaryType, *arrow.LargeStringType:
		return varying[int64](l, d, from, n)
	case *arrow.BinaryViewType, *arrow.StringViewType:
		return l.views(d, from, n)
	case *arrow.ListType, *arrow.MapType:
		return list[int32](l, d, from, n)
	case *arrow.LargeListType:
		return list[int64](l, d, from, n)
	case *arrow.FixedSizeListType:
		return l.child(d, 0, from*int(t.Len()), n*int(t.Len()))
	case *arrow.StructType:
		for i := range d.Children() {
			if err := l.child(d, i, from, n); err != nil {
				return err
			}
		}
		return nil
	case arrow.FixedWidthDataType:
		return l.fixed(d, 1, from, n, t.BitWidth()/8)
	}
	return fmt.Errorf("%w: %s", ErrUnsupported, t)
}

// child adds rows [from, from+n) of a child, counted from the child's own first row.
func (l *layout) child(d arrow.ArrayData, i, from, n int) error {
	if i >= len(d.Children()) {
		return fmt.Errorf("%w: %s lacks a child", ErrCorrupt, d.DataType())
	}
	c := d.Children()[i]
	if n == 0 {
		return l.array(c, c.Offset(), 0)
	}
	if from < 0 || n < 0 || from+n > c.Len() {
		return fmt.Errorf("%w: %s needs rows %d to %d of a child of %d", ErrCorrupt, d.DataType(), from, from+n, c.Len())
	}
	return l.array(c, c.Offset()+from, n)
}

// bytesOf returns a buffer of d; nil when it is absent.
func bytesOf(d arrow.ArrayData, i int) []byte {
	if b := d.Buffers(); i < len(b) && b[i] != nil {
		return b[i].Bytes()
	}
	return nil
}

// window cuts n elements of the given width out of a buffer.
func window(raw []byte, from, n, width int) ([]byte, error) {
	lo, hi := from*width, (from+n)*width
	if hi > len(raw) {
		return nil, fmt.Errorf("%w: a buffer of %d bytes is read up to %d", ErrCorrupt, len(raw), hi)
	}
	return raw[lo:hi:hi], nil
}

// fixed adds buffer i of d, whose elements have a width in bytes.
func (l *layout) fixed(d arrow.ArrayData, i, from, n, width int) error {
	if n*width == 0 {
		l.empty()
		return nil
	}
	b, err := window(bytesOf(d, i), from, n, width)
	if err != nil {
		return err
	}
	l.lend(b)
	return nil
}

// validity adds a field node and a validity bitmap, an empty one when there are no nulls.
func (l *layout) validity(d arrow.ArrayData, from, n int) error {
	raw := bytesOf(d, 0)
	if n == 0 || len(raw) == 0 || d.NullN() == 0 {
		l.node(n, 0)
		l.empty()
		return nil
	}
	if from+n > 8*len(raw) {
		return fmt.Errorf("%w: a validity bitmap of %d bytes for %d rows", ErrCorrupt, len(raw), from+n)
	}
	nulls := n - bitutil.CountSetBits(raw, from, n)
	l.node(n, nulls)
	if nulls == 0 {
		l.empty()
		return nil
	}
	return l.bits(raw, from, n)
}

// valid returns a test for null rows by their place in the buffers, nil when there are none. What a bitmap is too short
// for is null until validity refuses it.
func valid(d arrow.ArrayData) func(i int) bool {
	raw := bytesOf(d, 0)
	if len(raw) == 0 || d.NullN() == 0 {
		return nil
	}
	return func(i int) bool { return i < 8*len(raw) && bitutil.BitIsSet(raw, i) }
}

// bits adds a bitmap. It stays in place if it starts on a byte and no bit of a row after the window shares its last byte.
func (l *layout) bits(raw []byte, from, n int) error {
	if n == 0 {
		l.empty()
		return nil
	}
	if from+n > 8*len(raw) {
		return fmt.Errorf("%w: a bitmap of %d bytes for %d rows", ErrCorrupt, len(raw), from+n)
	}
	size := int(bitutil.BytesForBits(int64(n)))
	last := byte(0xff) >> (-n & 7)
	if from%8 == 0 {
		b := raw[from/8:][:size:size]
		if b[size-1]&^last == 0 {
			l.lend(b)
			return nil
		}
	}
	b, err := l.own(size)
	if err != nil {
		return err
	}
	b[size-1] = 0
	bitutil.CopyBitmap(raw, from, n, b, 0)
	b[size-1] &= last
	return nil
}

type offset interface{ int16 | int32 | int64 }

// elements views n elements of a buffer.
func elements[T offset](raw []byte, from, n int) ([]T, error) {
	width := int(unsafe.Sizeof(T(0)))
	b, err := window(raw, from, n, width)
	if err != nil || n == 0 {
		return nil, err
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n), nil
}

// bytesOfElements is the reverse of elements.
func bytesOfElements[T offset](e []T) []byte {
	if len(e) == 0 {
		return nil
	}
	n := len(e) * int(unsafe.Sizeof(e[0]))
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(e))), n)[:n:n]
}

// owned adds a buffer of n elements, which the caller fills at once.
func owned[T offset](l *layout, n int) ([]T, error) {
	b, err := l.own(n * int(unsafe.Sizeof(T(0))))
	if err != nil || n == 0 {
		return nil, err
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n), nil
}

// bounds adds the offsets of n rows, rebased to zero, and returns the values they span.
func bounds[T offset](l *layout, d arrow.ArrayData, from, n int) (first, last int, err error) {
	if n == 0 {
		out, err := owned[T](l, 1)
		if err != nil {
			return 0, 0, err
		}
		out[0] = 0
		return 0, 0, nil
	}
	offsets, err := elements[T](bytesOf(d, 1), from, n+1)
	if err != nil {
		return 0, 0, err
	}
	lo, hi := offsets[0], offsets[n]
	if lo < 0 || hi < lo {
		return 0, 0, fmt.Errorf("%w: offsets from %d to %d", ErrCorrupt, lo, hi)
	}
	if lo == 0 {
		return 0, int(hi), l.fixed(d, 1, from, n+1, int(unsafe.Sizeof(lo)))
	}
	out, err := owned[T](l, n+1)
	for i := range out {
		out[i] = offsets[i] - lo
	}
	return int(lo), int(hi), err
}

// varying adds strings or binaries.
func varying[T offset](l *layout, d arrow.ArrayData, from, n int) error {
	first, last, err := bounds[T](l, d, from, n)
	if err != nil {
		return err
	}
	return l.fixed(d, 2, first, last-first, 1)
}

// list adds lists or maps.
func list[T offset](l *layout, d arrow.ArrayData, from, n int) error {
	first, last, err := bounds[T](l, d, from, n)
	if err != nil {
		return err
	}
	return l.child(d, 0, first, last-first)
}

// compact copies rows of an array whose children are not referred to in order, so that what the rows leave out is not
// sent, and adds the copy.
func (l *layout) compact(d arrow.ArrayData, from, n int) error {
	if l.compacts > 0 {
		return fmt.Errorf("%w: %s does not refer to its children in order", ErrUnsupported, d.DataType())
	}
	arr := array.MakeFromData(d)
	defer arr.Release()
	s := arrow.NewSchema([]arrow.Field{{Name: "values", Type: d.DataType(), Nullable: true}}, nil)
	rows := frame.Piece{Columns: []frame.Column{frame.ColumnOf(arr)}, From: int64(from - d.Offset()), To: int64(from - d.Offset() + n)}
	lease, err := l.arena.pool.Assemble(l.arena.grant, budget.Batches, s, []frame.Piece{rows})
	if err != nil {
		return fmt.Errorf("copy of %d rows: %w", n, err)
	}
	l.arena.held.leases = append(l.arena.held.leases, lease)
	l.copied += int(lease.Bytes())
	l.compacts++
	defer func() { l.compacts-- }()
	c := lease.Batch().Column(0).Data()
	return l.array(c, c.Offset(), n)
}

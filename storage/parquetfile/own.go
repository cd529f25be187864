package parquetfile

import (
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/parquetfile/encoding"
)

// ownColumn reads one column, from page bytes to the memory of the frame.
type ownColumn struct {
	root   *node
	leaves []*leafReader
}

// node is one field of a column: what its array is made of.
type node struct {
	typ   arrow.DataType // as served
	valid *bitmap        // nil: it is never null
	leaf  *leafReader    // the values, or whose levels tell about the lists
	lists bool
	kids  []*node
}

// served tells whether we read the leaf column d as t ourselves.
func served(d *schema.Column, t arrow.DataType) bool {
	const most = 255 // levels in a byte
	if d.MaxRepetitionLevel() > 1 || d.MaxDefinitionLevel() > most {
		return false
	}
	_, err := newValues(&leafReader{}, d, t)
	return err == nil
}

// owns tells whether we read a column ourselves: lists of lists we do not.
func owns(f *footer, from *pqarrow.SchemaField, t arrow.DataType) bool {
	if from.IsLeaf() {
		return served(f.meta.Schema.Column(from.ColIndex), t)
	}
	switch l := t.(type) {
	case *arrow.StructType, *arrow.ListType, *arrow.LargeListType, *arrow.MapType:
	case *arrow.FixedSizeListType:
		if l.Len() < 1 {
			return false
		}
	default:
		return false
	}
	kids := from.Children
	if t.ID() == arrow.MAP {
		kids = kids[0].Children
	}
	below := children(t)
	if len(kids) != len(below) || len(kids) == 0 {
		return false
	}
	for i := range kids {
		if !owns(f, &kids[i], below[i].Type) {
			return false
		}
	}
	return true
}

// planner makes a column of nodes and leaves.
type planner struct {
	footer *footer
	open   func(col int) *leafReader
	column *ownColumn
	err    error
}

// plan makes the node of a field, which is served as t. lists is how the lists
// above are read, if it lies in some.
func (p *planner) plan(from *pqarrow.SchemaField, t arrow.DataType) *node {
	n := &node{typ: t}
	if from.IsLeaf() {
		p.leaf(n, from)
		return n
	}
	below := children(t)
	kids := from.Children
	if t.ID() == arrow.MAP {
		kids = kids[0].Children
	}
	for i := range kids {
		n.kids = append(n.kids, p.plan(&kids[i], below[i].Type))
	}
	level := int(from.LevelInfo.DefLevel)
	if t.ID() == arrow.STRUCT {
		n.leaf = teller(n.kids)
		inLists := n.leaf.nested && int(from.LevelInfo.RepLevel) > 0
		// A struct of nothing but lists is null where a struct around it is: so it has always been served.
		if from.Field.Nullable || n.leaf.nested && !inLists {
			n.valid = n.leaf.asks(level, inLists)
		}
		return n
	}
	n.leaf, n.lists = teller(n.kids), true
	for _, l := range leavesOf(n.kids) {
		l.lists(level, t)
	}
	if from.Field.Nullable {
		n.valid = n.leaf.asks(level-1, false)
	}
	if t.ID() == arrow.MAP {
		entries := &node{typ: t.(*arrow.MapType).Elem(), kids: n.kids, leaf: n.leaf}
		n.kids = []*node{entries}
	}
	return n
}

// teller returns the leaf below that tells most simply where its parents are null.
func teller(kids []*node) *leafReader {
	leaves := leavesOf(kids)
	for _, l := range leaves {
		if !l.nested {
			return l
		}
	}
	return leaves[0]
}

func leavesOf(kids []*node) (out []*leafReader) {
	for _, k := range kids {
		if k.kids == nil {
			out = append(out, k.leaf)
		}
		out = append(out, leavesOf(k.kids)...)
	}
	return out
}

func (p *planner) leaf(n *node, from *pqarrow.SchemaField) {
	l := p.open(from.ColIndex)
	v, err := newValues(l, l.column, n.typ)
	if err != nil {
		p.err = err
	}
	l.make, n.leaf = v, l
	if l.nested {
		l.slot = int(from.LevelInfo.RepeatedAncestorDefLevel)
		l.tracks = []*track{{items: &l.valid, offsets: &room{pool: l.pool, grant: l.grant}}}
	}
	if l.most > 0 && (!l.nested || l.slot < l.most) {
		n.valid = &l.valid
	}
	p.column.leaves = append(p.column.leaves, l)
}

// lists says of which lists the leaf's values are elements.
func (l *leafReader) lists(slot int, t arrow.DataType) {
	l.slot, l.wide = slot, t.ID() == arrow.LARGE_LIST
	if fixed, ok := t.(*arrow.FixedSizeListType); ok {
		l.size = int(fixed.Len())
	}
}

// asks has the leaf tell, for its rows or for the elements of its lists, whether
// their definition level is least or more.
func (l *leafReader) asks(least int, elements bool) *bitmap {
	b := &bitmap{room: l.room(), least: least}
	if !l.nested {
		l.above = append(l.above, b)
		return b
	}
	for _, t := range l.tracks {
		if !elements && t.rows == nil {
			t.rows = b
			return b
		}
		if elements && t.items == nil {
			t.items = b
			return b
		}
	}
	t := &track{}
	if l.tracks = append(l.tracks, t); elements {
		t.items = b
	} else {
		t.rows = b
	}
	return b
}

// start begins to read the column chunks.
func (c *ownColumn) start() error {
	for _, l := range c.leaves {
		if err := l.startLists(); err != nil {
			return err
		}
	}
	return nil
}

// startLists begins with the levels of a page that begins with a row.
func (l *leafReader) startLists() error {
	for _, t := range l.tracks {
		shape := encoding.Shape{Most: l.most, Slot: l.slot, Item: l.most}
		if t.rows != nil {
			shape.List = t.rows.least
		}
		if t.items != nil {
			shape.Item = t.items.least
		}
		if err := t.lists.Reset(shape); err != nil {
			return err
		}
	}
	return nil
}

// take reads the levels of the next n rows and returns the column, which fills itself.
func (c *ownColumn) take(n int) (frame.Column, error) {
	for _, l := range c.leaves {
		if err := l.take(n); err != nil {
			return frame.Column{}, err
		}
	}
	return c.root.column(n)
}

// column describes the node's array of n rows, or elements.
func (n *node) column(rows int) (c frame.Column, err error) {
	c = frame.Column{Type: n.typ, Len: int64(rows), Buffers: make([]frame.Buffer, 1)}
	if n.valid != nil {
		c.Buffers[0], c.Nulls = n.valid.buffer()
	}
	below := rows
	switch {
	case n.kids == nil:
		if n.leaf.slots != rows {
			return c, fmt.Errorf("%d values where there are %d", n.leaf.slots, rows)
		}
		if v := n.leaf.make; v.write != nil {
			c.Fill = n.leaf.fill
			if v.bytes != nil {
				c.Bytes = v.bytes()
			}
		}
		return c, nil
	case n.lists && n.leaf.size > 0:
		if err := n.spread(); err != nil {
			return c, err
		}
		below = rows * n.leaf.size
	case n.lists:
		offsets, err := n.offsets()
		if err != nil {
			return c, err
		}
		c.Buffers = append(c.Buffers, frame.Buffer{Mem: offsets})
		below = n.leaf.slots
	}
	for _, k := range n.kids {
		child, err := k.column(below)
		if err != nil {
			return c, err
		}
		c.Children = append(c.Children, child)
	}
	return c, nil
}

// offsets returns the offsets of the lists, about which all leaves must agree.
func (n *node) offsets() ([]byte, error) {
	var first []byte
	for _, l := range leavesOf(n.kids) {
		var b []byte
		if l.wide {
			offsets, err := listOffsets[int64](l)
			if err != nil {
				return nil, err
			}
			b = bytesOf(offsets)
		} else {
			offsets, err := listOffsets[int32](l)
			if err != nil {
				return nil, err
			}
			b = bytesOf(offsets)
		}
		if first == nil {
			first = b
		} else if string(first) != string(b) {
			return nil, fmt.Errorf("column %q has other lists than the one before it", l.column.Path())
		}
	}
	return first, nil
}

func bytesOf[T int32 | int64](n []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(n))), len(n)*int(unsafe.Sizeof(T(0))))
}

// spread checks fixed-size lists, and gives null ones the elements that they have to have.
func (n *node) spread() error {
	for _, l := range leavesOf(n.kids) {
		if err := l.checkSizes(n.valid); err != nil {
			return err
		}
	}
	if n.valid == nil || n.valid.nulls() == 0 {
		return nil
	}
	return n.eachBelow(func(b *bitmap) error { return b.repeat(n.valid, n.leaf.size) })
}

// eachBelow visits the bitmaps of the elements of the node's lists.
func (n *node) eachBelow(visit func(*bitmap) error) error {
	for _, k := range n.kids {
		if k.kids == nil {
			l := k.leaf
			l.slots = l.taken * l.size
			k.valid = &l.valid
		}
		if k.valid != nil {
			if err := visit(k.valid); err != nil {
				return err
			}
		}
		if err := k.eachBelow(visit); err != nil {
			return err
		}
	}
	return nil
}

// newValues chooses how the values of a column are read as t.
func newValues(l *leafReader, d *schema.Column, t arrow.DataType) (values, error) {
	physical, length := d.PhysicalType(), d.TypeLength()
	switch {
	case t.ID() == arrow.NULL:
		return noValues(), nil
	case physical == parquet.Types.Boolean && t.ID() == arrow.BOOL:
		return (&boolValues{l}).values(), nil
	case physical == parquet.Types.ByteArray:
		return newByteValues(l, t)
	}
	v := &fixedValues{leaf: l, physical: physical, stored: int(fixedWidth(physical, length))}
	v.entries.room, v.tmp = l.room(), l.room()
	fixed, ok := t.(arrow.FixedWidthDataType)
	if !ok || v.stored < 1 {
		return values{}, fmt.Errorf("%s as %s", physical, t)
	}
	v.width = fixed.Bytes()
	if v.convert = converter(physical, v.stored, t, v.width); v.convert == nil && v.stored != v.width {
		return values{}, fmt.Errorf("%s as %s", physical, t)
	}
	v.late = physical == parquet.Types.Int96 || v.convert != nil && physical == parquet.Types.FixedLenByteArray
	return v.values(), nil
}

func newByteValues(l *leafReader, t arrow.DataType) (values, error) {
	small := byteValues[int32]{leaf: l, entries: entries{room: l.room()}, of: func(p *dataPage) **bytesDecoder[int32] { return &p.small }}
	switch t.ID() {
	case arrow.STRING, arrow.BINARY:
		return small.values(), nil
	case arrow.LARGE_STRING, arrow.LARGE_BINARY:
		large := byteValues[int64]{leaf: l, entries: entries{room: l.room()}, of: func(p *dataPage) **bytesDecoder[int64] { return &p.large }}
		return large.values(), nil
	case arrow.DECIMAL128, arrow.DECIMAL256:
		decimals := decimalValues{byteValues: small, width: t.(arrow.FixedWidthDataType).Bytes(), tmp: [2]room{l.room(), l.room()}}
		return decimals.values(), nil
	}
	return values{}, fmt.Errorf("BYTE_ARRAY as %s", t)
}

// converter returns what makes values of type t of stored ones; nil if they are the same.
func converter(physical parquet.Type, stored int, t arrow.DataType, width int) func(dst, src []byte, n int) error {
	decimal := t.ID() == arrow.DECIMAL128 || t.ID() == arrow.DECIMAL256
	switch {
	case physical == parquet.Types.Int96:
		return func(dst, src []byte, n int) error {
			if err := encoding.Timestamps(numbers[int64](dst)[:n], src); err != nil {
				return refusef("an INT96 timestamp outside of what nanoseconds reach, 1677 to 2262")
			}
			return nil
		}
	case decimal && physical == parquet.Types.Int32:
		return func(dst, src []byte, n int) error {
			return encoding.DecimalsOfInts(dst, width, numbers[int32](src)[:n])
		}
	case decimal && physical == parquet.Types.Int64:
		return func(dst, src []byte, n int) error {
			return encoding.DecimalsOfInts(dst, width, numbers[int64](src)[:n])
		}
	case decimal:
		return func(dst, src []byte, _ int) error { return encoding.DecimalsOfFixed(dst, width, src, stored) }
	case physical == parquet.Types.Int32 && width < stored:
		return func(dst, src []byte, n int) error {
			encoding.Narrow(dst, src, n)
			return nil
		}
	}
	return nil
}

// close gives back all memory of the column.
func (c *ownColumn) close() {
	for _, l := range c.leaves {
		l.close()
	}
}

// skip passes the next n rows.
func (c *ownColumn) skip(n int) error {
	for _, l := range c.leaves {
		if err := l.skip(n); err != nil {
			return err
		}
	}
	return nil
}

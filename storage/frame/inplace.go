package frame

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/headrace/headrace/storage/budget"
)

// Errors about mapped files. Both mean that reading and copying is the way.
var (
	// ErrNoLease means that the system gives no promise for the file, so that it cannot be mapped.
	ErrNoLease = errors.New("no lease on the file")
	// ErrNotInPlace means that rows cannot be served from where they lie, or not with profit.
	ErrNotInPlace = errors.New("rows cannot be served in place")
)

// LeastMapped is the fewest bytes that are worth a mapping: below it the system calls cost more than the copy.
const LeastMapped = 256 << 10

// Frame makes a frame of the piece's rows that copies none of them: its arrays
// point into the file. All buffers of the piece must be ranges of f. Offsets
// are checked, and the pages of the rows are in memory when Frame returns. They
// are charged to g as budget.Mapped, for they become memory when somebody wants
// to write to the file; until then they are the system's.
//
// Arrays in the frame may begin behind an offset and share bytes with rows that
// are not theirs. Errors are those of Assemble, and ErrNotInPlace: for types
// that point hither and thither, for buffers that are not aligned to 8 bytes,
// for rows spread so thin that whole pages would be mostly others' rows, for few
// or very many bytes, and when the file is being written to.
func (f *File) Frame(g *budget.Grant, s *arrow.Schema, piece Piece) (*Lease, error) {
	return f.frame(g, s, piece, (*shape).pays)
}

func (f *File) frame(g *budget.Grant, s *arrow.Schema, piece Piece, pays func(*shape) bool) (*Lease, error) {
	for i := range piece.Columns {
		if !inPlace(&piece.Columns[i]) {
			return nil, ErrNotInPlace
		}
	}
	nodes, rows, err := planAll(s, []Piece{piece})
	if err != nil {
		return nil, err
	}
	shape, err := shapeOf(nodes)
	if err != nil {
		return nil, err
	}
	if shape.need == 0 || shape.size > MaxFrame || !pays(shape) {
		return nil, ErrNotInPlace
	}
	p, err := f.open(g, shape)
	if err != nil {
		return nil, err
	}
	var batch arrow.RecordBatch
	defer func() {
		if batch == nil { // after a panic of the library too
			p.free()
		}
	}()
	if batch, err = p.batch(s, nodes, rows); err != nil {
		return nil, err
	}
	return f.pool.publish(&frame{pool: f.pool, batch: batch, mapped: p}), nil
}

// InPlace tells whether columns of a schema can be shown where they lie, on this system, by their types.
func InPlace(s *arrow.Schema) bool {
	return canMap && !slices.ContainsFunc(s.Fields(), func(f arrow.Field) bool { return !orderly(f.Type) })
}

// orderly tells whether the rows of a type lie in order, and those of what it is made of.
func orderly(t arrow.DataType) bool {
	if !straight(t) {
		return false
	}
	nested, ok := storage(t).(arrow.NestedType)
	return !ok || !slices.ContainsFunc(nested.Fields(), func(f arrow.Field) bool { return !orderly(f.Type) })
}

// straight tells whether the rows of a type itself lie in order.
func straight(t arrow.DataType) bool {
	lay, err := layoutOf(storage(t))
	if err != nil {
		return false
	}
	switch lay.kind {
	case empty, bit, fixed, binary, list, fixedList, record:
		return true
	default:
		return false
	}
}

// inPlace tells whether c is of a type whose rows lie in order, in buffers that begin where numbers may.
func inPlace(c *Column) bool {
	if !straight(c.Type) {
		return false
	}
	for _, b := range c.Buffers {
		if !b.absent() && (b.R == nil || b.Off < 0 || b.Off%8 != 0) {
			return false
		}
	}
	for i := range c.Children {
		if !inPlace(&c.Children[i]) {
			return false
		}
	}
	return true
}

// shape is the part of a file that a frame shows.
type shape struct {
	reach extent   // the bytes that its arrays span, other rows' included
	need  int64    // bytes of its own rows
	pages []extent // the whole pages that these lie in, in order
	size  int64    // bytes of the pages
}

// pays tells whether the mapping is worth its price: system calls, and pages
// that hold few of the rows. As much as those take, a region may be larger than its contents, too.
func (s *shape) pays() bool { return s.need >= LeastMapped && s.size <= s.need+s.need/4 }

func shapeOf(nodes []*node) (*shape, error) {
	c := &cover{reach: extent{from: largest}}
	for _, n := range nodes {
		if err := c.add(n); err != nil {
			return nil, err
		}
	}
	s := &shape{reach: c.reach}
	for _, e := range merged(c.rows) {
		s.need += e.len()
		s.pages = append(s.pages, e.paged())
	}
	s.pages = merged(s.pages)
	for _, e := range s.pages {
		s.size += e.len()
	}
	return s, nil
}

// paged widens an extent to whole pages.
func (e extent) paged() extent {
	page := int64(os.Getpagesize())
	return extent{e.from &^ (page - 1), (e.to + page - 1) &^ (page - 1)}
}

// cover gathers what nodes need of their file.
type cover struct {
	rows  []extent
	reach extent
}

// add notes what n and everything below it needs.
func (c *cover) add(n *node) error {
	if len(n.spans) == 0 {
		return nil
	}
	at, end, w := n.spans[0].at(), n.spans[0].at()+n.spans[0].n, n.lay.width
	if n.lay.validity() && n.nulls > 0 {
		c.bytes(n, 0, at/8, bitmapBytes(end))
	}
	switch n.lay.kind {
	case bit:
		c.bytes(n, 1, at/8, bitmapBytes(end))
	case fixed:
		c.bytes(n, 1, at*w, end*w)
	case binary:
		c.bytes(n, 1, at*w, (end+1)*w)
		c.bytes(n, 2, n.extents[0].from, n.extents[0].to)
	case list:
		c.bytes(n, 1, at*w, (end+1)*w)
		if e := n.extents[0]; e.len() == 0 && e.from > 0 {
			return ErrNotInPlace // its offsets point behind a child that has no rows here
		}
	}
	for _, child := range n.children {
		if err := c.add(child); err != nil {
			return err
		}
	}
	return nil
}

// bytes notes bytes [from, to) of a node's i-th buffer. The array will span the buffer from its start.
func (c *cover) bytes(n *node, i int, from, to int64) {
	b := n.spans[0].c.buffer(i)
	if to == 0 {
		return
	}
	c.reach.from, c.reach.to = min(c.reach.from, b.Off), max(c.reach.to, b.Off+to)
	if from < to {
		c.rows = append(c.rows, extent{b.Off + from, b.Off + to})
	}
}

// batch makes the arrays of the nodes over the mapped bytes.
func (p *part) batch(s *arrow.Schema, nodes []*node, rows int64) (arrow.RecordBatch, error) {
	columns := make([]arrow.Array, 0, len(nodes))
	for _, n := range nodes {
		first := int64(0)
		if len(n.spans) > 0 {
			first = n.spans[0].from
		}
		data, err := p.array(n, first)
		if err != nil {
			return nil, err
		}
		columns = append(columns, array.MakeFromData(data))
	}
	return array.NewRecordBatch(s, columns, rows), nil
}

// array makes the array of n, from row first of the column on: children keep
// all rows before those that are needed, since their parents count from there.
// How many nulls a child has is known only of the needed ones, of which there
// is one at least where there is a bitmap; nobody looks at more.
func (p *part) array(n *node, first int64) (arrow.ArrayData, error) {
	if len(n.spans) == 0 {
		return array.MakeArrayOfNull(memory.DefaultAllocator, n.typ, 0).Data(), nil
	}
	s := n.spans[0]
	end, rows := s.at()+s.n, s.from+s.n-first
	buffers := []*memory.Buffer{nil}
	if n.lay.validity() && n.nulls > 0 {
		buffers[0] = p.buffer(s.c.buffer(0), bitmapBytes(end))
	}
	switch n.lay.kind {
	case bit:
		buffers = append(buffers, p.buffer(s.c.buffer(1), bitmapBytes(end)))
	case fixed:
		buffers = append(buffers, p.buffer(s.c.buffer(1), end*n.lay.width))
	case binary:
		buffers = append(buffers, p.buffer(s.c.buffer(1), (end+1)*n.lay.width), p.buffer(s.c.buffer(2), n.extents[0].to))
	case list:
		buffers = append(buffers, p.buffer(s.c.buffer(1), (end+1)*n.lay.width))
	}
	own := bytesOf(buffers)
	if len(n.extents) > 0 {
		own[0] = own[0][s.at()*n.lay.width:]
		if err := n.ordered(own[0]); err != nil {
			return nil, fmt.Errorf("column %q: %w", n.name, err)
		}
	}
	if err := n.checkRows(own, func(row int64) bool { return isNull(buffers[0], s.at()+row) }); err != nil {
		return nil, err
	}
	children, err := p.children(n, own)
	if err != nil {
		return nil, err
	}
	nulls := n.nulls
	if n.lay.kind == empty {
		nulls = rows
	}
	return array.NewData(n.typ, int(rows), buffers, children, int(nulls), int(s.c.Offset+first)), nil
}

func (p *part) children(n *node, own [][]byte) (out []arrow.ArrayData, err error) {
	for i, c := range n.children {
		child, err := p.array(c, 0)
		if err != nil {
			var from int64
			if len(n.extents) > 0 {
				from = n.extents[0].from
			}
			return nil, n.lift(err, i, from, own)
		}
		out = append(out, child)
	}
	return out, nil
}

func (p *part) buffer(b Buffer, n int64) *memory.Buffer {
	if n == 0 {
		return memory.NewBufferBytes(nil)
	}
	return memory.NewBufferBytes(p.bytes(b.Off, b.Off+n))
}

// ordered checks the offsets of the node's rows as the copier does.
func (n *node) ordered(offsets []byte) error {
	if n.lay.width == 8 {
		return ascending(offsetsOf[int64](offsets, n.rows+1), n.extents[0])
	}
	return ascending(offsetsOf[int32](offsets, n.rows+1), n.extents[0])
}

// ascending checks that offsets run from e.from to e.to without going back.
func ascending[T int32 | int64](offsets []T, e extent) error {
	if first, last := offsets[0], offsets[len(offsets)-1]; first != T(e.from) || last != T(e.to) {
		return fmt.Errorf("%w: offsets %d to %d were %d to %d before", ErrCorrupt, first, last, e.from, e.to)
	}
	previous := offsets[0]
	for _, v := range offsets {
		if v < previous {
			return fmt.Errorf("%w: offset %d after %d", ErrCorrupt, v, previous)
		}
		previous = v
	}
	return nil
}

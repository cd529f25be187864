package frame

import (
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
)

// span is rows [from, from+n) of a column, n > 0.
type span struct {
	c       *Column
	from, n int64
}

// at is where the span's rows begin in the column's buffers.
func (s span) at() int64 { return s.c.Offset + s.from }

// nullable tells whether the span's rows need their bitmap looked at.
func (s span) nullable() bool { return s.c.Nulls != 0 && !s.c.buffer(0).absent() }

// extent is bytes or rows [from, to) of what a span's offsets point into.
type extent struct{ from, to int64 }

func (e extent) len() int64 { return e.to - e.from }

// node is one array to be made: which rows go into it, and how many bytes each of its buffers takes.
type node struct {
	name     string
	typ      arrow.DataType
	lay      layout
	spans    []span
	rows     int64
	nulls    int64
	sizes    []int64 // by buffer, validity first where the layout has one; -1: absent
	extents  []extent
	shelves  [][]shelved // list views: by span, where the child's rows went
	ends     []int64     // run ends
	children []*node
}

// planner measures nodes before any memory is taken. It reads what decides the
// sizes: bitmaps, and of offsets only the outermost; the rest is checked as it is copied.
type planner struct {
	tmp [3][]byte // windows onto buffers in files: up to two, and the bitmap last
}

// plan measures the array of type t that the spans make, and everything below it.
func (p *planner) plan(name string, t arrow.DataType, spans []span) (*node, error) {
	n := &node{name: name, typ: t, spans: spans}
	below, err := p.measure(n)
	if err != nil {
		return nil, fmt.Errorf("column %q: %w", name, err)
	}
	for i, f := range fieldsOf(t) {
		if n.lay.kind == runs && i == 0 {
			continue // run ends are numbers of this node, not rows to copy
		}
		child, err := p.plan(name+"."+f.Name, f.Type, below[i])
		if err != nil {
			return nil, err
		}
		n.children = append(n.children, child)
	}
	return n, nil
}

// measure fills n in and returns the spans of each child.
func (p *planner) measure(n *node) (below [][]span, err error) {
	if n.lay, err = layoutOf(n.typ); err != nil {
		return nil, err
	}
	var last *Column
	for _, s := range n.spans {
		if s.c != last { // many spans of one column: it is judged once
			if err := n.fits(s.c); err != nil {
				return nil, err
			}
			last = s.c
		}
		if s.from < 0 || s.n < 0 || s.from > s.c.Len-s.n {
			return nil, fmt.Errorf("%w: %d rows end before row %d+%d", ErrCorrupt, s.c.Len, s.from, s.n)
		}
		if s.c.Fill != nil && (len(n.spans) > 1 || s.n != s.c.Len || s.c.Offset != 0) {
			return nil, fmt.Errorf("frame: rows %d to %d of a column of %d that fills itself", s.from, s.from+s.n, s.c.Len)
		}
		n.rows = plus(n.rows, s.n)
	}
	if n.lay.validity() {
		if err := p.countNulls(n); err != nil {
			return nil, err
		}
	}
	return p.measureKind(n)
}

// fits checks that c is of the node's type as far as bytes are concerned;
// names and nullability within are the schema's business.
func (n *node) fits(c *Column) error {
	if !sameID(c.Type, n.typ) {
		return fmt.Errorf("holds %v, the schema says %v", c.Type, n.typ)
	}
	t := storage(c.Type)
	lay, err := layoutOf(t)
	if err != nil {
		return err
	}
	nested := fieldsOf(n.typ)
	if lay != n.lay || nested == nil && !arrow.TypeEqual(t, n.typ) || !sameCodes(t, n.typ) {
		return fmt.Errorf("holds %v, the schema says %v", c.Type, n.typ)
	}
	if len(c.Children) != len(nested) {
		return fmt.Errorf("%w: %d children, %d belong to %v", ErrCorrupt, len(c.Children), len(nested), n.typ)
	}
	if c.Fill != nil && n.lay.kind != fixed && n.lay.kind != bit && n.lay.kind != binary {
		return fmt.Errorf("frame: a column of %v cannot fill itself", n.typ)
	}
	if c.Len < 0 || c.Offset < 0 || c.Len > largest/2 || c.Offset > largest/2 {
		return fmt.Errorf("%w: %d rows from %d", ErrCorrupt, c.Len, c.Offset)
	}
	return nil
}

// sameCodes compares the type ids of two unions; other types have none.
func sameCodes(a, b arrow.DataType) bool {
	x, ok := a.(arrow.UnionType)
	if !ok {
		return true
	}
	y := b.(arrow.UnionType)
	return string(codes(x)) == string(codes(y))
}

func codes(t arrow.UnionType) []byte {
	var out []byte
	for _, c := range t.TypeCodes() {
		out = append(out, byte(c))
	}
	return out
}

// bitmapStep is how many rows of a bitmap are read from a file at once.
const bitmapStep = 1 << 18

// countNulls counts exactly: a bitmap without nulls is not kept.
func (p *planner) countNulls(n *node) error {
	for _, s := range n.spans {
		if s.c.Nulls > 0 && s.c.buffer(0).absent() {
			return fmt.Errorf("%w: %d nulls and no bitmap", ErrCorrupt, s.c.Nulls)
		}
		if !s.nullable() {
			continue
		}
		for row := int64(0); row < s.n; row += bitmapStep {
			count := min(s.n-row, bitmapStep)
			bits, skip, err := bitsOf(s.c.buffer(0), s.at()+row, count, &p.tmp[2])
			if err != nil {
				return err
			}
			n.nulls += count - int64(bitutil.CountSetBits(bits, skip, int(count)))
		}
	}
	n.sizes = []int64{-1}
	if n.nulls > 0 {
		n.sizes[0] = bitmapBytes(n.rows)
	}
	return nil
}

// bitsOf returns the bytes with bits [at, at+n) of a bitmap, and how many bits to skip in the first.
func bitsOf(b Buffer, at, n int64, tmp *[]byte) (bits []byte, skip int, err error) {
	first := at / 8
	bits, err = b.view(first, bitmapBytes(at+n)-first, tmp)
	return bits, int(at % 8), err
}

// measureKind does what is particular to the node's layout.
func (p *planner) measureKind(n *node) (below [][]span, err error) {
	switch n.lay.kind {
	case empty:
		n.nulls = n.rows
	case bit:
		n.sizes = append(n.sizes, bitmapBytes(n.rows))
		err = n.hold(1, func(row int64) int64 { return bitmapBytes(row) })
	case fixed:
		n.sizes = append(n.sizes, times(n.rows, n.lay.width))
		err = n.hold(1, func(row int64) int64 { return times(row, n.lay.width) })
	case binary:
		return nil, p.measureBinary(n)
	case view:
		return nil, p.measureViews(n)
	case list:
		return p.measureList(n)
	case fixedList:
		return [][]span{n.childSpans(0, n.lay.width)}, nil
	case listView:
		return p.measureListViews(n)
	case dense:
		return p.measureDense(n)
	case runs:
		return p.measureRuns(n)
	case sparse:
		n.sizes = append(n.sizes, n.rows)
		fallthrough
	case record:
		for i := range fieldsOf(n.typ) {
			below = append(below, n.childSpans(i, 1))
		}
	}
	return below, err
}

// hold checks that buffer i of each span reaches as far as its rows do, before
// memory is taken for them: lengths in headers cost a writer nothing.
func (n *node) hold(i int, bytes func(row int64) int64) error {
	for _, s := range n.spans {
		if s.c.Fill != nil {
			continue
		}
		if err := s.c.buffer(i).hold(0, bytes(s.at()+s.n)); err != nil {
			return err
		}
	}
	return nil
}

// childSpans are the spans of a child that has k rows for each of the node's.
func (n *node) childSpans(child int, k int64) []span {
	if k == 0 {
		return nil
	}
	spans := make([]span, len(n.spans))
	for i, s := range n.spans {
		spans[i] = span{&s.c.Children[child], times(s.at(), k), times(s.n, k)}
	}
	return spans
}

// measureBinary finds the bytes of each span by its outermost offsets.
func (p *planner) measureBinary(n *node) error {
	total, err := n.measureOffsets(func(c *Column) int64 { return c.buffer(2).size() })
	n.sizes = append(n.sizes, total)
	return err
}

// measureList finds the child's rows of each span by its outermost offsets.
func (p *planner) measureList(n *node) ([][]span, error) {
	if _, err := n.measureOffsets(func(c *Column) int64 { return c.Children[0].Len }); err != nil {
		return nil, err
	}
	spans := make([]span, 0, len(n.spans))
	for i, e := range n.extents {
		if e.len() > 0 {
			spans = append(spans, span{&n.spans[i].c.Children[0], e.from, e.len()})
		}
	}
	return [][]span{spans}, nil
}

// measureOffsets reads the outermost offsets of each span into n.extents. They
// must lie within limit of their column, and their total within the offsets' width.
func (n *node) measureOffsets(limit func(*Column) int64) (total int64, err error) {
	n.sizes = append(n.sizes, times(plus(n.rows, 1), n.lay.width))
	n.extents = make([]extent, len(n.spans))
	for i, s := range n.spans {
		if s.c.Fill != nil {
			n.extents[i], total = extent{0, s.c.Bytes}, s.c.Bytes
			continue
		}
		b := s.c.buffer(1)
		from, err := b.number(s.at(), n.lay.width)
		if err != nil {
			return 0, err
		}
		to, err := b.number(s.at()+s.n, n.lay.width)
		if err != nil {
			return 0, err
		}
		if from < 0 || from > to || to > limit(s.c) {
			return 0, fmt.Errorf("%w: offsets %d to %d of %d", ErrCorrupt, from, to, limit(s.c))
		}
		n.extents[i] = extent{from, to}
		total = plus(total, to-from)
	}
	return total, n.checkReach(total)
}

// checkReach refuses what 32-bit offsets cannot reach.
func (n *node) checkReach(total int64) error {
	if n.lay.width < 8 && total > math.MaxInt32 {
		return fmt.Errorf("%w: %d", ErrOverflow, total)
	}
	return nil
}

// bytes is what the node and its children take, each buffer padded.
func (n *node) bytes() (total int64) {
	for _, size := range n.sizes {
		total = plus(total, padded(max(size, 0)))
	}
	for _, child := range n.children {
		total = plus(total, child.bytes())
	}
	return total
}

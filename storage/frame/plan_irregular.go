package frame

import (
	"cmp"
	endian "encoding/binary"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
)

// Layouts whose rows may point anywhere must be read row by row to know what
// they take. They are read through windows of this many rows.
const windowRows = 4096

// window is a run of rows of a span: the bytes of up to two buffers and the validity.
type window struct {
	rows int64
	mem  [2][]byte
	bits []byte // nil: no nulls
	skip int
}

func (w *window) null(i int64) bool { return w.bits != nil && !bitutil.BitIsSet(w.bits, w.skip+int(i)) }

// each visits the rows of s window by window. widths are the row widths in
// bytes of the buffers first, first+1...
func (p *planner) each(s span, first int, widths []int64, visit func(w *window) error) error {
	for row := int64(0); row < s.n; row += windowRows {
		w := &window{rows: min(s.n-row, windowRows)}
		at := s.at() + row
		var err error
		for i, width := range widths {
			if w.mem[i], err = s.c.buffer(first+i).view(times(at, width), w.rows*width, &p.tmp[i]); err != nil {
				return err
			}
		}
		if s.nullable() {
			if w.bits, w.skip, err = bitsOf(s.c.buffer(0), at, w.rows, &p.tmp[2]); err != nil {
				return err
			}
		}
		if err := visit(w); err != nil {
			return err
		}
	}
	return nil
}

// number returns the i-th signed number of the given width in bytes.
func (b Buffer) number(i, width int64) (int64, error) {
	var mem [8]byte
	if err := b.readAt(mem[:width], times(i, width)); err != nil {
		return 0, err
	}
	return number(mem[:width], 0, width), nil
}

func number(mem []byte, i, width int64) int64 {
	switch mem = mem[i*width:]; width {
	case 2:
		return int64(int16(endian.LittleEndian.Uint16(mem)))
	case 4:
		return int64(int32(endian.LittleEndian.Uint32(mem)))
	default:
		return int64(endian.LittleEndian.Uint64(mem))
	}
}

func putNumber(mem []byte, i, width, v int64) {
	switch mem = mem[i*width:]; width {
	case 2:
		endian.LittleEndian.PutUint16(mem, uint16(v))
	case 4:
		endian.LittleEndian.PutUint32(mem, uint32(v))
	default:
		endian.LittleEndian.PutUint64(mem, uint64(v))
	}
}

// inline is the longest value in bytes that a view holds itself.
const inline = 12

// measureViews adds up the bytes that the views of the rows point to, which
// must be there: memory is taken by what this returns.
func (p *planner) measureViews(n *node) error {
	var total int64
	for _, s := range n.spans {
		err := p.each(s, 1, []int64{n.lay.width}, func(w *window) error {
			for i := range w.rows {
				if w.null(i) {
					continue
				}
				size, err := s.c.viewed(w.mem[0][i*n.lay.width:])
				if err != nil {
					return err
				}
				total = plus(total, size)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	n.sizes = append(n.sizes, times(n.rows, n.lay.width), total)
	if total > 1<<31-1 { // a view's offset has 32 bits, whatever the type
		return fmt.Errorf("%w: %d", ErrOverflow, total)
	}
	return nil
}

// viewed returns how many bytes outside of itself a view points to.
func (c *Column) viewed(v []byte) (int64, error) {
	size := number(v, 0, 4)
	switch {
	case size < 0:
		return 0, fmt.Errorf("%w: a value of %d bytes", ErrCorrupt, size)
	case size <= inline:
		return 0, nil
	}
	buffer, at := number(v, 2, 4), number(v, 3, 4)
	if buffer < 0 || buffer >= int64(len(c.Buffers)-2) {
		return 0, fmt.Errorf("%w: a value in buffer %d of %d", ErrCorrupt, buffer, len(c.Buffers)-2)
	}
	return size, c.Buffers[buffer+2].hold(at, size)
}

// shelved says that the child's rows of an extent go to the new child from row place on.
type shelved struct {
	extent
	place int64
}

// measureListViews finds which rows of the child the lists use. Lists may
// share rows; those are copied once, so that no file can make much of little.
func (p *planner) measureListViews(n *node) ([][]span, error) {
	var below []span
	var total int64
	for _, s := range n.spans {
		child := &s.c.Children[0]
		var used []extent
		err := p.each(s, 1, []int64{n.lay.width, n.lay.width}, func(w *window) (err error) {
			used, err = n.listExtents(w, child.Len, used)
			return err
		})
		if err != nil {
			return nil, err
		}
		var shelves []shelved
		for _, e := range merged(used) {
			shelves = append(shelves, shelved{e, total})
			below = append(below, span{child, e.from, e.len()})
			total = plus(total, e.len())
		}
		n.shelves = append(n.shelves, shelves)
	}
	size := times(n.rows, n.lay.width)
	n.sizes = append(n.sizes, size, size)
	return [][]span{below}, n.checkReach(total)
}

// listExtents adds the rows that a window's lists use to used.
func (n *node) listExtents(w *window, limit int64, used []extent) ([]extent, error) {
	for i := range w.rows {
		from, size := number(w.mem[0], i, n.lay.width), number(w.mem[1], i, n.lay.width)
		if w.null(i) || size == 0 {
			continue
		}
		if from < 0 || size < 0 || from > limit-size {
			return nil, fmt.Errorf("%w: a list of rows %d+%d of %d", ErrCorrupt, from, size, limit)
		}
		if last := len(used) - 1; last >= 0 && used[last].to == from {
			used[last].to = from + size
		} else {
			used = append(used, extent{from, from + size})
		}
	}
	return used, nil
}

// merged sorts extents and joins those that overlap or touch.
func merged(in []extent) []extent {
	slices.SortFunc(in, func(a, b extent) int { return cmp.Compare(a.from, b.from) })
	out := in[:0]
	for _, e := range in {
		if last := len(out) - 1; last >= 0 && e.from <= out[last].to {
			out[last].to = max(out[last].to, e.to)
		} else {
			out = append(out, e)
		}
	}
	return out
}

// denseWalk goes through the rows of a dense union and tells where each one's
// value goes. Within a span the offsets of each child may not go back, as the format demands.
type denseWalk struct {
	ids    []int // child by type id; -1: none
	limits []int64
	last   []int64 // the latest offset by child; -1: none yet in this span
	slots  []int64 // rows given to each child
}

func newDenseWalk(t arrow.DataType) *denseWalk {
	u := t.(arrow.UnionType)
	n := u.NumFields()
	return &denseWalk{ids: u.ChildIDs(), limits: make([]int64, n), last: make([]int64, n), slots: make([]int64, n)}
}

// enter begins a span of c.
func (d *denseWalk) enter(c *Column) {
	for i := range d.last {
		d.last[i] = -1
		d.limits[i] = c.Children[i].Len
	}
}

// step takes one row: its child, the slot there, and whether the slot is new.
func (d *denseWalk) step(id int8, offset int64) (child int, slot int64, fresh bool, err error) {
	if child, err = childOf(d.ids, id); err != nil {
		return 0, 0, false, err
	}
	if offset < 0 || offset < d.last[child] || offset >= d.limits[child] {
		return 0, 0, false, fmt.Errorf("%w: offset %d after %d of %d", ErrCorrupt, offset, d.last[child], d.limits[child])
	}
	if fresh = offset > d.last[child]; fresh {
		d.last[child] = offset
		d.slots[child]++
	}
	return child, d.slots[child] - 1, fresh, nil
}

func childOf(ids []int, id int8) (int, error) {
	if id < 0 || int(id) >= len(ids) || ids[id] < 0 {
		return 0, fmt.Errorf("%w: type id %d", ErrCorrupt, id)
	}
	return ids[id], nil
}

// measureDense finds which rows of each child the union uses.
func (p *planner) measureDense(n *node) ([][]span, error) {
	d := newDenseWalk(n.typ)
	below := make([][]span, len(d.last))
	for _, s := range n.spans {
		d.enter(s.c)
		err := p.each(s, unionBuffers(s.c, 2), []int64{1, n.lay.width}, func(w *window) error {
			for i := range w.rows {
				offset := number(w.mem[1], i, n.lay.width)
				child, _, fresh, err := d.step(int8(w.mem[0][i]), offset)
				if err != nil {
					return err
				}
				if fresh {
					below[child] = appendRow(below[child], &s.c.Children[child], offset)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	n.sizes = append(n.sizes, n.rows, times(n.rows, n.lay.width))
	return below, nil
}

// unionBuffers is where a union's count buffers begin: arrow's C data has them
// first, its array data after an absent bitmap.
func unionBuffers(c *Column, count int) int { return max(len(c.Buffers)-count, 0) }

// appendRow adds one row of c to spans, to the last of them if it follows on.
func appendRow(spans []span, c *Column, row int64) []span {
	if last := len(spans) - 1; last >= 0 && spans[last].c == c && spans[last].from+spans[last].n == row {
		spans[last].n++
		return spans
	}
	return append(spans, span{c, row, 1})
}

// measureRuns cuts the runs that overlap each span out of its column.
func (p *planner) measureRuns(n *node) ([][]span, error) {
	var values []span
	var rows int64
	for _, s := range n.spans {
		first, count, err := p.cutRuns(n, s, rows)
		if err != nil {
			return nil, err
		}
		values = append(values, span{&s.c.Children[1], first, count})
		rows = plus(rows, s.n)
	}
	if n.lay.width < 8 && rows >= 1<<(8*n.lay.width-1) {
		return nil, fmt.Errorf("%w: run ends up to %d", ErrOverflow, rows)
	}
	n.sizes = append(n.sizes, times(int64(len(n.ends)), n.lay.width))
	return [][]span{nil, values}, nil
}

// cutRuns adds the ends of the runs that overlap s to n.ends, as seen from
// row base of the new array, and tells which runs they are.
func (p *planner) cutRuns(n *node, s span, base int64) (first, count int64, err error) {
	ends := &s.c.Children[0]
	if ends.Len < 0 || ends.Offset < 0 || !sameID(ends.Type, n.typ.(*arrow.RunEndEncodedType).RunEnds()) {
		return 0, 0, fmt.Errorf("%w: run ends", ErrCorrupt)
	}
	from, to := s.at(), s.at()+s.n
	first, previous, err := runAt(ends, n.lay.width, from)
	if err != nil {
		return 0, 0, err
	}
	at := from
	for at < to && err == nil {
		if first+count >= ends.Len {
			return 0, 0, fmt.Errorf("%w: runs end at %d, before row %d", ErrCorrupt, previous, to)
		}
		rest := span{ends, first + count, min(ends.Len-first-count, windowRows)}
		err = p.each(rest, 1, []int64{n.lay.width}, func(w *window) error {
			for i := int64(0); i < w.rows && at < to; i, count = i+1, count+1 {
				e := number(w.mem[0], i, n.lay.width)
				if e <= previous || e <= at || previous > at {
					return fmt.Errorf("%w: run end %d after %d", ErrCorrupt, e, previous)
				}
				at, previous = min(e, to), e
				n.ends = append(n.ends, base+at-from)
			}
			return nil
		})
	}
	return first, count, err
}

// runAt finds the first run that ends behind a row, and where the run before
// it ends, 0 if there is none.
func runAt(ends *Column, width, row int64) (first, previous int64, err error) {
	b := ends.buffer(1)
	if err := b.hold(times(ends.Offset, width), times(ends.Len, width)); err != nil {
		return 0, 0, err
	}
	for last := ends.Len; first < last && err == nil; {
		var end int64
		middle := first + (last-first)/2
		if end, err = b.number(ends.Offset+middle, width); end > row {
			last = middle
		} else {
			first, previous = middle+1, end
		}
	}
	return first, previous, err
}

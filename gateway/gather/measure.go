package gather

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/bitutil"

	"github.com/headrace/headrace/storage/frame"
)

// most is the most rows of one array: far beyond any message, but a few rows
// of fixed-size lists of nothing can ask for more.
const most = int64(1) << 46

// measure finds what the rows of s take, below too. It reads what decides the
// sizes: bitmaps, views, and of offsets the outermost of each run.
func (n *node) measure(s *selection) error {
	n.sel = s
	if err := n.measureOwn(); err != nil {
		return fmt.Errorf("gather: column %q: %w", n.name, err)
	}
	below := s
	switch n.kind {
	case list:
		below = &n.below
	case fixedList:
		below = &n.below
		below.multiply(s, n.width)
	}
	for _, child := range n.children {
		if err := child.measure(below); err != nil {
			return err
		}
	}
	return nil
}

// measureOwn measures the node's own buffers. Sizes come first, for they bound
// the work of looking at the rows.
func (n *node) measureOwn() (err error) {
	if n.sel.total > most {
		return fmt.Errorf("%w: %d rows", frame.ErrOverflow, n.sel.total)
	}
	n.setSizes()
	if err := n.checkSizes(); err != nil {
		return err
	}
	n.countNulls()
	switch n.kind {
	case list:
		err = n.measureLists()
	case view:
		n.sizes[1], err = n.measureViews()
	}
	if err != nil {
		return err
	}
	return n.checkSizes()
}

// setSizes sets the sizes that follow from the number of rows.
func (n *node) setSizes() {
	total := n.sel.total
	n.sizes = n.sizes[:0]
	switch n.kind {
	case boolean:
		n.sizes = append(n.sizes, bitmapBytes(total))
	case fixed, raw:
		n.sizes = append(n.sizes, times(total, n.width))
	case list:
		n.sizes = append(n.sizes, (total+1)*n.width)
	case view:
		n.sizes = append(n.sizes, total*n.width, 0)
	}
}

// checkSizes refuses buffers that no message can carry; those of bitmaps are the least of a node's.
func (n *node) checkSizes() error {
	if n.validity() && bitmapBytes(n.sel.total) > math.MaxInt32 {
		return fmt.Errorf("%w: %d rows", frame.ErrOverflow, n.sel.total)
	}
	for _, size := range n.sizes {
		if size > math.MaxInt32 {
			return fmt.Errorf("%w: %d bytes", frame.ErrOverflow, size)
		}
	}
	return nil
}

// bytes is what the node and those below it take, each buffer padded.
func (n *node) bytes() (sum int64) {
	if n.validity() && n.nulls > 0 {
		sum = padded(bitmapBytes(n.sel.total))
	}
	for _, size := range n.sizes {
		sum += padded(size)
	}
	for _, child := range n.children {
		sum += child.bytes()
	}
	return sum
}

// countNulls counts exactly, for a bitmap without nulls is left out. Of single rows the bitmap is kept.
func (n *node) countNulls() {
	n.nulls, n.bits = 0, n.bits[:0]
	switch {
	case n.kind == null:
		n.nulls = n.sel.total
	case n.nullable == 0:
	case n.sel.single():
		n.bits = resize(n.bits, int(bitmapBytes(n.sel.total)))
		bitsOfRows(n.bits, n.valids, n.sel.rows)
		n.nulls = n.sel.total - int64(bitutil.CountSetBits(n.bits, 0, int(n.sel.total)))
	default:
		for _, r := range n.sel.asRuns() {
			if b := &n.valids[r.slot]; b.mask != 0 && r.n > 0 {
				mem, skip := b.bytes(r.from, r.n)
				n.nulls += r.n - int64(bitutil.CountSetBits(mem, skip, int(r.n)))
			}
		}
	}
}

// measureLists finds the rows of the child.
func (n *node) measureLists() (err error) {
	var total int64
	if n.width == 8 {
		total, err = measureOffsets[int64](n)
	} else if total, err = measureOffsets[int32](n); total > math.MaxInt32 {
		err = fmt.Errorf("%w: %d", frame.ErrOverflow, total)
	}
	n.below.reset(0, total)
	return err
}

// measureOffsets makes the runs of the child, one for each row or run of the
// node's own. Under a null that is one row there is nothing.
func measureOffsets[T int32 | int64](n *node) (total int64, err error) {
	s := n.sel
	if !s.single() {
		return outermost[T](n)
	}
	n.below.runs = resize(n.below.runs, len(s.rows))
	runs, values, limits := n.below.runs, n.values, n.limits
	for i, r := range s.rows {
		pair := (*[2]T)(unsafe.Add(values[r.Frame], int64(r.Row)*int64(unsafe.Sizeof(T(0)))))
		from, to := int64(pair[0]), int64(pair[1])
		if from < 0 || to < from || to > limits[r.Frame] {
			return 0, outside(from, to, limits[r.Frame])
		}
		runs[i] = run{from, to - from, r.Frame}
		total = plus(total, to-from)
	}
	if n.nulls > 0 {
		total = n.emptyNulls()
	}
	return total, nil
}

// outermost is measureOffsets for runs.
func outermost[T int32 | int64](n *node) (total int64, err error) {
	runs := n.sel.asRuns()
	n.below.runs = resize(n.below.runs, len(runs))
	for i, r := range runs {
		n.below.runs[i] = run{slot: r.slot}
		if r.n == 0 {
			continue
		}
		in := offsetsOf[T](n, r)
		from, to := int64(in[0]), int64(in[r.n])
		if from < 0 || to < from || to > n.limits[r.slot] {
			return 0, outside(from, to, n.limits[r.slot])
		}
		n.below.runs[i] = run{from, to - from, r.slot}
		total = plus(total, to-from)
	}
	return total, nil
}

// offsetsOf returns the r.n+1 offsets of a run that is not empty.
func offsetsOf[T int32 | int64](n *node, r run) []T {
	first := unsafe.Add(n.values[r.slot], r.from*int64(unsafe.Sizeof(T(0))))
	return unsafe.Slice((*T)(first), r.n+1)
}

func outside(from, to, limit int64) error {
	return fmt.Errorf("%w: offsets %d to %d of %d", frame.ErrCorrupt, from, to, limit)
}

// emptyNulls empties the runs of rows that are null, and returns the rows of the others.
func (n *node) emptyNulls() (total int64) {
	for i := range n.below.runs {
		r := &n.below.runs[i]
		r.n &= -int64(n.bits[i/8] >> (i % 8) & 1)
		total = plus(total, r.n)
	}
	return total
}

package frame

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// filler copies what a planner has measured into one run of memory, and checks
// it on the way: what was read twice may have changed in between.
type filler struct {
	planner
	base *memory.Buffer
	used int64
}

// fill makes the array of n. The caller releases it.
func (f *filler) fill(n *node) (arrow.ArrayData, error) {
	buffers, err := f.fillKind(n)
	defer release(buffers)
	if err != nil {
		return nil, n.blame(err)
	}
	own := bytesOf(buffers)
	if err := n.checkRows(own, func(row int64) bool { return isNull(buffers[0], row) }); err != nil {
		return nil, err
	}
	var children []arrow.ArrayData
	defer func() {
		for _, c := range children {
			c.Release()
		}
	}()
	if n.lay.kind == runs {
		children = append(children, f.runEnds(n))
	}
	for i, c := range n.children {
		data, err := f.fill(c)
		if err != nil {
			return nil, n.lift(err, i, 0, own)
		}
		children = append(children, data)
	}
	return array.NewData(n.typ, int(n.rows), buffers, children, int(n.nulls), 0), nil
}

// blame says that err is about the node.
func (n *node) blame(err error) error {
	var at *RowError
	if errors.As(err, &at) {
		at.Column = n.name // it says so itself
		return err
	}
	return fmt.Errorf("column %q: %w", n.name, err)
}

// bytesOf returns what is in the buffers behind the validity.
func bytesOf(buffers []*memory.Buffer) [][]byte {
	var out [][]byte
	for _, b := range buffers[1:] {
		out = append(out, b.Bytes())
	}
	return out
}

func release(buffers []*memory.Buffer) {
	for _, b := range buffers {
		if b != nil {
			b.Release()
		}
	}
}

// carve takes the next size bytes, and zeroes the padding behind them so that
// nothing older leaves with them.
func (f *filler) carve(size int64) ([]byte, *memory.Buffer) {
	at := f.used
	f.used += padded(size)
	clear(f.base.Bytes()[at+size : f.used])
	b := memory.SliceBuffer(f.base, int(at), int(size))
	return b.Bytes(), b
}

// fillKind makes the node's own buffers, in arrow's order.
func (f *filler) fillKind(n *node) (buffers []*memory.Buffer, err error) {
	sizes := n.sizes
	buffers = []*memory.Buffer{nil}
	if n.lay.validity() {
		sizes = sizes[1:]
		if n.nulls > 0 {
			var mem []byte
			mem, buffers[0] = f.carve(n.sizes[0])
			if err := f.fillValidity(n, mem); err != nil {
				return buffers, err
			}
		}
	}
	if n.lay.kind == runs {
		return buffers, nil // its numbers are a child of their own
	}
	out := make([][]byte, len(sizes))
	for i, size := range sizes {
		var b *memory.Buffer
		out[i], b = f.carve(size)
		buffers = append(buffers, b)
	}
	if len(n.spans) == 1 && n.spans[0].c.Fill != nil {
		return buffers, n.fillItself(out)
	}
	switch n.lay.kind {
	case bit:
		err = f.fillBits(n, 1, out[0], func(span) bool { return true })
	case fixed:
		err = fillFixed(n, out[0])
	case binary:
		if err = fillOffsets(n, out[0]); err == nil {
			err = fillBytes(n, out[1])
		}
	case list:
		err = fillOffsets(n, out[0])
	case view:
		err = f.fillViews(n, buffers[0], out[0], out[1])
	case listView:
		err = f.fillListViews(n, buffers[0], out[0], out[1])
	case sparse:
		err = fillIDs(n, out[0], 1)
	case dense:
		err = fillDense(n, out[0], out[1])
	}
	return buffers, err
}

// fillItself lets the one column of the node write its rows, and checks what others rely on.
func (n *node) fillItself(out [][]byte) error {
	if err := n.spans[0].c.Fill(out); err != nil {
		return err
	}
	switch {
	case n.lay.kind == bit && n.rows%8 != 0:
		out[0][len(out[0])-1] &= 1<<(n.rows%8) - 1
	case n.lay.kind == binary && n.lay.width == 8:
		return checkOffsets[int64](out[0], n.extents[0].to)
	case n.lay.kind == binary:
		return checkOffsets[int32](out[0], n.extents[0].to)
	}
	return nil
}

// checkOffsets checks that offsets run from 0 to end without going back.
func checkOffsets[T int32 | int64](mem []byte, end int64) error {
	offsets := offsetsOf[T](mem, int64(len(mem))/int64(unsafe.Sizeof(T(0))))
	return rebase(offsets, 0, T(end), 0)
}

// fillValidity copies the bitmaps and checks that the nulls are those that were counted.
func (f *filler) fillValidity(n *node, dst []byte) error {
	if err := f.fillBits(n, 0, dst, span.nullable); err != nil {
		return err
	}
	if nulls := n.rows - int64(bitutil.CountSetBits(dst, 0, int(n.rows))); nulls != n.nulls {
		return fmt.Errorf("%w: %d nulls were %d before", ErrCorrupt, nulls, n.nulls)
	}
	return nil
}

// fillBits shifts the bits of buffer i of each span into place; spans whose
// buffer does not count are all ones. Bits past the last row are zero.
func (f *filler) fillBits(n *node, i int, dst []byte, counts func(span) bool) error {
	clear(dst)
	at := int64(0)
	for _, s := range n.spans {
		if !counts(s) {
			bitutil.SetBitsTo(dst, at, s.n, true)
			at += s.n
			continue
		}
		for row := int64(0); row < s.n; row += bitmapStep {
			count := min(s.n-row, bitmapStep)
			bits, skip, err := bitsOf(s.c.buffer(i), s.at()+row, count, &f.tmp[2])
			if err != nil {
				return err
			}
			bitutil.CopyBitmap(bits, skip, int(count), dst, int(at))
			at += count
		}
	}
	if tail := n.rows % 8; tail != 0 {
		dst[len(dst)-1] &= 1<<tail - 1
	}
	return nil
}

// fillFixed copies values of one width: one read or move for each span.
func fillFixed(n *node, dst []byte) error {
	for _, s := range n.spans {
		size := s.n * n.lay.width
		if err := s.c.buffer(1).readAt(dst[:size], s.at()*n.lay.width); err != nil {
			return err
		}
		dst = dst[size:]
	}
	return nil
}

// fillBytes copies what the offsets of each span enclose.
func fillBytes(n *node, dst []byte) error {
	for i, s := range n.spans {
		e := n.extents[i]
		if err := s.c.buffer(2).readAt(dst[:e.len()], e.from); err != nil {
			return err
		}
		dst = dst[e.len():]
	}
	return nil
}

func fillOffsets(n *node, dst []byte) error {
	if n.lay.width == 8 {
		return rebaseAll[int64](n, dst)
	}
	return rebaseAll[int32](n, dst)
}

// rebaseAll reads the offsets of each span to their place in dst, whose length
// is (rows+1) numbers, and rebases them there.
func rebaseAll[T int32 | int64](n *node, dst []byte) error {
	out := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(dst))), n.rows+1)
	out[0] = 0
	var row, base int64
	for i, s := range n.spans {
		bytes := dst[row*n.lay.width : (row+s.n+1)*n.lay.width]
		if err := s.c.buffer(1).readAt(bytes, s.at()*n.lay.width); err != nil {
			return err
		}
		e := n.extents[i]
		if err := rebase(out[row:row+s.n+1], T(e.from), T(e.to), T(base)); err != nil {
			return err
		}
		row += s.n
		base += e.len()
	}
	return nil
}

// rebase checks that offsets run from first to last without going back, and makes them run from base.
func rebase[T int32 | int64](offsets []T, first, last, base T) error {
	if offsets[0] != first || offsets[len(offsets)-1] != last {
		return fmt.Errorf("%w: offsets %d to %d were %d to %d before", ErrCorrupt, offsets[0], offsets[len(offsets)-1], first, last)
	}
	previous := first
	for i, v := range offsets {
		if v < previous {
			return fmt.Errorf("%w: offset %d after %d", ErrCorrupt, v, previous)
		}
		previous = v
		offsets[i] = v - first + base
	}
	return nil
}

// fillIDs copies a union's type ids, the first of count buffers, and checks that there are such children.
func fillIDs(n *node, dst []byte, count int) error {
	ids := n.typ.(arrow.UnionType).ChildIDs()
	for _, s := range n.spans {
		part := dst[:s.n]
		if err := s.c.buffer(unionBuffers(s.c, count)).readAt(part, s.at()); err != nil {
			return err
		}
		for _, id := range part {
			if _, err := childOf(ids, int8(id)); err != nil {
				return err
			}
		}
		dst = dst[s.n:]
	}
	return nil
}

package gather

import (
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/headrace/headrace/storage/frame"
)

// fill makes the buffers of the node and those below it at the front of mem,
// as they were measured, and returns the rest.
func (n *node) fill(mem []byte) ([]byte, error) {
	mem = n.carve(mem)
	if err := n.fillOwn(); err != nil {
		return nil, fmt.Errorf("gather: column %q: %w", n.name, err)
	}
	for _, child := range n.children {
		var err error
		if mem, err = child.fill(mem); err != nil {
			return nil, err
		}
	}
	return mem, nil
}

// carve takes the node's own buffers from the front of mem, and zeroes the
// padding behind each so that nothing older leaves with it.
func (n *node) carve(mem []byte) []byte {
	n.out = n.out[:0]
	take := func(size int64) {
		end := padded(size)
		clear(mem[size:end])
		n.out = append(n.out, mem[:size:size])
		mem = mem[end:]
	}
	if n.validity() && n.nulls > 0 {
		take(bitmapBytes(n.sel.total))
	} else {
		n.out = append(n.out, nil)
	}
	for _, size := range n.sizes {
		take(size)
	}
	return mem
}

// fillOwn copies the rows into the node's own buffers.
func (n *node) fillOwn() error {
	if err := n.fillValidity(n.out[0]); err != nil {
		return err
	}
	switch n.kind {
	case boolean:
		moveBits(n.out[1], n.truths, n.sel)
	case fixed, raw:
		moveFixed(n.out[1], n.values, n.sel, n.width)
	case list:
		if n.width == 8 {
			return fillOffsets[int64](n)
		}
		return fillOffsets[int32](n)
	case view:
		return n.moveViews(n.out[1], n.out[2])
	}
	return nil
}

// fillValidity makes the bitmap, if there is one.
func (n *node) fillValidity(dst []byte) error {
	switch {
	case dst == nil:
	case n.sel.single():
		copy(dst, n.bits)
	default:
		moveBits(dst, n.valids, n.sel)
		if nulls := n.sel.total - int64(bitutil.CountSetBits(dst, 0, int(n.sel.total))); nulls != n.nulls {
			return fmt.Errorf("%w: %d nulls were %d before", frame.ErrCorrupt, nulls, n.nulls)
		}
	}
	return nil
}

// fillOffsets makes the offsets: of single rows from the runs of the child, of
// runs from their own offsets, which are checked on the way.
func fillOffsets[T int32 | int64](n *node) error {
	mem := n.out[1]
	out := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), n.sel.total+1)
	out[0] = 0
	var at T
	if n.sel.single() {
		out = out[1:]
		for i, r := range n.below.runs {
			at += T(r.n)
			out[i] = at
		}
		return nil
	}
	for i, r := range n.sel.asRuns() {
		if r.n == 0 {
			continue
		}
		child := n.below.runs[i]
		if err := rebase(out[1:r.n+1], offsetsOf[T](n, r), T(child.from), T(child.n), at); err != nil {
			return err
		}
		out, at = out[r.n:], at+T(child.n)
	}
	return nil
}

// rebase writes all of in but the first to out, such that what began at first
// begins at base. They must not go back, and end length behind first.
func rebase[T int32 | int64](out, in []T, first, length, base T) error {
	previous := first
	for i, v := range in[1:] {
		if v < previous {
			return fmt.Errorf("%w: offset %d after %d", frame.ErrCorrupt, v, previous)
		}
		previous = v
		out[i] = v - first + base
	}
	if in[0] != first || previous != first+length {
		return fmt.Errorf("%w: offsets %d to %d were %d to %d before", frame.ErrCorrupt, in[0], previous, first, first+length)
	}
	return nil
}

// data makes the array of what was filled. The caller releases it.
func (n *node) data() arrow.ArrayData {
	buffers := make([]*memory.Buffer, 1, 1+len(n.sizes)+1)
	if n.out[0] != nil {
		buffers[0] = memory.NewBufferBytes(n.out[0])
	}
	for _, mem := range n.out[1:] {
		buffers = append(buffers, memory.NewBufferBytes(mem))
	}
	var children []arrow.ArrayData
	for _, child := range n.children {
		if child.kind == raw {
			buffers = append(buffers, memory.NewBufferBytes(child.out[1]))
			break
		}
		children = append(children, child.data())
	}
	data := array.NewData(n.typ, int(n.sel.total), buffers, children, int(n.nulls), 0)
	for _, child := range children {
		child.Release()
	}
	return data
}

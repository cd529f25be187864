package gather

import (
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/headrace/headrace/storage/frame"
)

// places tells by slot where a node's rows are. All that the kernels may reach
// by a row or an offset was checked to lie inside its buffer when it was bound.
type places struct {
	values   []unsafe.Pointer // of row 0: value, offset or view; nil: nothing to reach
	truths   []bitmap         // booleans
	valids   []bitmap         // nil while no slot has nulls
	nullable int              // slots with nulls
	limits   []int64          // lists: rows of the child
	stores   [][][]byte       // views: what they point into
}

// bind makes rows [first, first+rows) of data the rows of slot, below too.
func (n *node) bind(slot int, data arrow.ArrayData, first, rows int64) error {
	if err := n.bindOwn(slot, data, first, rows); err != nil {
		return fmt.Errorf("gather: column %q: %w", n.name, err)
	}
	at := int64(data.Offset()) + first
	for i, child := range n.children {
		from, count := at, rows
		switch n.kind {
		case list:
			if child.kind == raw {
				child.bindBytes(slot, data.Buffers())
				continue
			}
			from, count = 0, int64(data.Children()[i].Len())
		case fixedList:
			from, count = times(at, n.width), times(rows, n.width)
		}
		if err := child.bind(slot, data.Children()[i], from, count); err != nil {
			return err
		}
	}
	return nil
}

// bindOwn binds what is the node's own.
func (n *node) bindOwn(slot int, data arrow.ArrayData, first, rows int64) (err error) {
	n.grow(slot)
	if err := n.fits(data); err != nil {
		return err
	}
	if size := int64(data.Len()); first > size || rows > size-first {
		return fmt.Errorf("%w: %d rows end before row %d+%d", frame.ErrCorrupt, size, first, rows)
	}
	at := int64(data.Offset()) + first
	buffers := data.Buffers()
	if n.validity() && data.NullN() != 0 && size(buffers, 0) > 0 {
		if err := n.bindValidity(slot, buffers, at, rows); err != nil {
			return err
		}
	}
	switch n.kind {
	case boolean:
		n.truths[slot], err = bitsAt(buffers, 1, at, rows)
	case fixed:
		n.values[slot], err = address(buffers, 1, at, rows, n.width)
	case view:
		n.values[slot], err = address(buffers, 1, at, rows, n.width)
		for _, b := range buffers[min(2, len(buffers)):] {
			n.stores[slot] = append(n.stores[slot], b.Bytes())
		}
	case list:
		if n.children[0].kind == raw {
			n.limits[slot] = size(buffers, 2)
		} else {
			n.limits[slot] = int64(data.Children()[0].Len())
		}
		if rows > 0 {
			n.values[slot], err = address(buffers, 1, at, rows+1, n.width)
		}
	}
	return err
}

// bindValidity binds a bitmap with nulls.
func (n *node) bindValidity(slot int, buffers []*memory.Buffer, at, rows int64) (err error) {
	for len(n.valids) < len(n.values) {
		n.valids = append(n.valids, ones())
	}
	if n.valids[slot], err = bitsAt(buffers, 0, at, rows); err == nil {
		n.nullable++
	}
	return err
}

// bindBytes binds the bytes of strings.
func (n *node) bindBytes(slot int, buffers []*memory.Buffer) {
	n.grow(slot)
	if size(buffers, 2) > 0 {
		n.values[slot] = unsafe.Pointer(unsafe.SliceData(buffers[2].Bytes()))
	}
}

// grow makes room for slot.
func (n *node) grow(slot int) {
	more := slot + 1 - len(n.values)
	if more <= 0 {
		return
	}
	n.values = append(n.values, make([]unsafe.Pointer, more)...)
	switch n.kind {
	case boolean:
		n.truths = append(n.truths, make([]bitmap, more)...)
	case list:
		n.limits = append(n.limits, make([]int64, more)...)
	case view:
		n.stores = append(n.stores, make([][][]byte, more)...)
	}
	if n.valids != nil {
		for range more {
			n.valids = append(n.valids, ones())
		}
	}
}

// drop forgets slot, below too.
func (n *node) drop(slot int) {
	for _, child := range n.children {
		child.drop(slot)
	}
	if slot >= len(n.values) {
		return
	}
	n.values[slot] = nil
	switch n.kind {
	case boolean:
		n.truths[slot] = bitmap{}
	case list:
		n.limits[slot] = 0
	case view:
		n.stores[slot] = nil
	}
	if slot < len(n.valids) && n.valids[slot].mask != 0 {
		n.valids[slot] = ones()
		n.nullable--
	}
}

// size is the length of the i-th buffer; of a missing one it is 0.
func size(buffers []*memory.Buffer, i int) int64 {
	if i >= len(buffers) || buffers[i] == nil {
		return 0
	}
	return int64(buffers[i].Len())
}

// address returns where value at of the i-th buffer is, and checks that it and
// the others of count, width bytes each, are inside.
func address(buffers []*memory.Buffer, i int, at, count, width int64) (unsafe.Pointer, error) {
	if count == 0 || width == 0 {
		return nil, nil
	}
	if have := size(buffers, i); times(plus(at, count), width) > have {
		return nil, fmt.Errorf("%w: buffer of %d bytes ends before value %d of %d bytes", frame.ErrCorrupt, have, at+count, width)
	}
	return unsafe.Pointer(&buffers[i].Bytes()[at*width]), nil
}

package gather

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"github.com/headrace/headrace/storage/frame"
)

// A view is the length of a value, and the value if it is at most inline
// bytes; else its first four bytes, the number of a buffer, and where in it the value is.
const (
	viewWidth = 16
	inline    = 12
)

// viewsOf returns the views of a run that is not empty.
func (n *node) viewsOf(r run) []byte {
	first := unsafe.Add(n.values[r.slot], r.from*viewWidth)
	return unsafe.Slice((*byte)(first), r.n*viewWidth)
}

// present tells whether row i of slot has a value.
func (n *node) present(slot int32, i int64) bool {
	return n.nullable == 0 || n.valids[slot].bit(i) == 1
}

// measureViews adds up the bytes that the views of the rows point to.
func (n *node) measureViews() (total int64, err error) {
	for _, r := range n.sel.asRuns() {
		if r.n == 0 {
			continue
		}
		views := n.viewsOf(r)
		for i := range r.n {
			size := int32(binary.LittleEndian.Uint32(views[i*viewWidth:]))
			if !n.present(r.slot, r.from+i) || 0 <= size && size <= inline {
				continue
			}
			if size < 0 {
				return 0, fmt.Errorf("%w: a value of %d bytes", frame.ErrCorrupt, size)
			}
			total += int64(size)
		}
	}
	if total > math.MaxInt32 { // a view has 32 bits to say where its value is
		return 0, fmt.Errorf("%w: %d bytes", frame.ErrOverflow, total)
	}
	return total, nil
}

// moveViews copies the views and packs the bytes that they point to.
func (n *node) moveViews(views, data []byte) error {
	done := 0
	for _, r := range n.sel.asRuns() {
		if r.n == 0 {
			continue
		}
		copy(views, n.viewsOf(r))
		for i := range r.n {
			v := views[:viewWidth]
			views = views[viewWidth:]
			if !n.present(r.slot, r.from+i) {
				clear(v)
				continue
			}
			value, err := valueOf(v, n.stores[r.slot])
			if err != nil {
				return err
			}
			if value == nil {
				continue
			}
			if len(value) > len(data)-done {
				return fmt.Errorf("%w: values of more bytes than the %d before", frame.ErrCorrupt, len(data))
			}
			copy(v[4:8], value)
			binary.LittleEndian.PutUint32(v[8:], 0)
			binary.LittleEndian.PutUint32(v[12:], uint32(done))
			done += copy(data[done:], value)
		}
	}
	if done != len(data) {
		return fmt.Errorf("%w: values of %d bytes were %d before", frame.ErrCorrupt, done, len(data))
	}
	return nil
}

// valueOf finds what a long view points to. Of a short one it is nil, and what is behind the value is zeroed.
func valueOf(v []byte, stores [][]byte) ([]byte, error) {
	size := int32(binary.LittleEndian.Uint32(v))
	if 0 <= size && size <= inline {
		clear(v[4+size:])
		return nil, nil
	}
	store, at := binary.LittleEndian.Uint32(v[8:]), int64(binary.LittleEndian.Uint32(v[12:]))
	if size < 0 || int64(store) >= int64(len(stores)) || at+int64(size) > int64(len(stores[store])) {
		return nil, fmt.Errorf("%w: a value of %d bytes at %d of buffer %d", frame.ErrCorrupt, size, at, store)
	}
	return stores[store][at:][:size], nil
}

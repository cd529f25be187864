package parquetfile

import (
	"unsafe"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

// room is scratch memory outside of the Go heap, used again and again and grown as needed.
type room struct {
	pool   *frame.Pool
	grant  *budget.Grant
	region *frame.Region
}

// bytes returns n bytes, the first kept of which are those of last time.
func (r *room) bytes(n, kept int) ([]byte, error) {
	if r.region != nil && n <= len(r.region.Bytes()) {
		return r.region.Bytes()[:n], nil
	}
	size := n
	if r.region != nil {
		size = max(n, 2*len(r.region.Bytes()))
	}
	region, err := r.pool.Alloc(r.grant, budget.Scratch, size)
	if err != nil {
		return nil, err
	}
	if r.region != nil {
		copy(region.Bytes(), r.region.Bytes()[:min(kept, len(r.region.Bytes()))])
	}
	r.free()
	r.region = region
	return region.Bytes()[:n], nil
}

func (r *room) free() {
	if r.region != nil {
		r.region.Free()
		r.region = nil
	}
}

// entries is the memory of a dictionary.
type entries struct {
	room
	page body
}

// keep returns what is in a page, to stay: the page itself where it was
// decompressed, else a copy, so that it does not keep what was read with it.
func (e *entries) keep(b *body) ([]byte, error) {
	if b.home != nil {
		e.page, *b = *b, body{}
		return e.page.plain, nil
	}
	own, err := e.bytes(len(b.plain), 0)
	copy(own, b.plain)
	return own, err
}

func (e *entries) free() {
	e.room.free()
	e.page.free()
}

// numbers views bytes, which begin where such a number may, as numbers.
func numbers[T int32 | int64 | uint32](b []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(T(0))))
}

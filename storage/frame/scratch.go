package frame

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/headrace/headrace/storage/budget"
)

var _ memory.Allocator = (*Scratch)(nil)

// small is the size in bytes below which scratch comes from the Go heap: a
// page for each of a decoder's many little buffers would be waste.
const small = 4 << 10

// errClosed is what an Allocate on a closed Scratch panics with.
var errClosed = errors.New("frame: scratch is closed")

// Scratch is an allocator for arrow's readers, charged to a grant as
// budget.Scratch. Its memory is zeroed, for arrow's list reader reads bytes
// that it has not written. The interface has no room for errors, so a grant
// that is used up makes Allocate and Reallocate panic with an error that wraps
// budget.ErrExhausted; who calls into arrow recovers it. Lend is for where that is not possible.
type Scratch struct {
	pool  *Pool
	grant *budget.Grant

	mu      sync.Mutex
	closed  bool
	lending bool
	lent    error           // why Lend had to lend; the first time counts
	blocks  map[*byte]block // by first byte
}

// block is one allocation: in a region, or on the Go heap if that is nil.
type block struct {
	size   int     // as asked for
	charge int64   // on the heap
	region *Region // off it
}

// Scratch returns an allocator that charges g.
func (p *Pool) Scratch(g *budget.Grant) *Scratch {
	return &Scratch{pool: p, grant: g, blocks: make(map[*byte]block)}
}

// Lend runs f, in which what the grant has no room for comes from the Go heap, unpaid, instead of a panic: for code of arrow
// that allocates a few buffers on goroutines of its own, where nobody could recover it. If that happened, it is the error.
func (s *Scratch) Lend(f func() error) error {
	s.lend(true)
	defer s.lend(false)
	err := f()
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.lent, err)
}

func (s *Scratch) lend(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lending, s.lent = on, nil
}

// borrow returns size bytes of the Go heap while Lend runs, else nil.
func (s *Scratch) borrow(size int, why error) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.lending {
		return nil
	}
	s.lent = cmp.Or(s.lent, fmt.Errorf("scratch of %d bytes: %w", size, why))
	return onHeap(size)
}

// onHeap returns size zeroed bytes, aligned, of at most align bytes more.
func onHeap(size int) []byte {
	raw := make([]byte, size+align)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(raw))) % align
	return raw[skip:][:size:size]
}

// Allocate returns size zeroed bytes, aligned to 64. It panics when the grant is used up.
func (s *Scratch) Allocate(size int) []byte {
	if size <= 0 {
		return []byte{}
	}
	mem, b, err := s.obtain(size)
	if err == nil {
		s.mu.Lock()
		if !s.closed {
			s.blocks[unsafe.SliceData(mem)] = b
			s.mu.Unlock()
			return mem
		}
		s.mu.Unlock()
		s.giveBack(b)
		err = errClosed
	}
	if mem := s.borrow(size, err); mem != nil {
		return mem
	}
	panic(fmt.Errorf("scratch of %d bytes: %w", size, err))
}

// obtain charges and zeroes size bytes.
func (s *Scratch) obtain(size int) ([]byte, block, error) {
	if size < small {
		charge := int64(size + align)
		if err := s.grant.Charge(budget.Scratch, charge); err != nil {
			return nil, block{}, err
		}
		return onHeap(size), block{size: size, charge: charge}, nil
	}
	r, err := s.pool.Alloc(s.grant, budget.Scratch, size)
	if err != nil {
		return nil, block{}, err
	}
	if !r.fresh {
		clear(r.Bytes())
	}
	return r.Bytes(), block{size: size, region: r}, nil
}

// Reallocate returns size bytes that begin as b does, zeroed beyond it, and
// frees b. It panics when the grant is used up; b is then still allocated.
func (s *Scratch) Reallocate(size int, b []byte) []byte {
	s.mu.Lock()
	old, known := s.blocks[unsafe.SliceData(b)]
	s.mu.Unlock()
	if known && old.region != nil && Cost(int64(size)) == int64(len(old.region.mem)) {
		return s.resize(old, size)
	}
	mem := s.Allocate(size)
	if known {
		b = unsafe.Slice(unsafe.SliceData(b), old.size)
	}
	copy(mem, b)
	s.Free(b)
	return mem
}

// resize changes b's size within its region. Decoders shrink every buffer when
// they are done with it, so this saves a copy of nearly all they decode.
func (s *Scratch) resize(b block, size int) []byte {
	mem := b.region.mem
	if size > b.size {
		clear(mem[b.size:size])
	}
	b.size = size
	s.mu.Lock()
	s.blocks[unsafe.SliceData(mem)] = b
	s.mu.Unlock()
	return mem[:size:size]
}

// Free gives b back. Bytes that came from elsewhere, or went already, are left alone.
func (s *Scratch) Free(b []byte) {
	first := unsafe.SliceData(b)
	s.mu.Lock()
	old, known := s.blocks[first]
	delete(s.blocks, first)
	s.mu.Unlock()
	if known {
		s.giveBack(old)
	}
}

func (s *Scratch) giveBack(b block) {
	if b.region != nil {
		b.region.Free()
		return
	}
	s.grant.Credit(budget.Scratch, b.charge)
}

// Close frees whatever is left. Nothing that was allocated may be used afterwards.
func (s *Scratch) Close() {
	s.mu.Lock()
	left := s.blocks
	s.blocks, s.closed = nil, true
	s.mu.Unlock()
	for _, b := range left {
		s.giveBack(b)
	}
}

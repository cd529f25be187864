// Package frame keeps memory outside the Go heap: regions, mapped files, frames
// and leases, and the one copier that packs columns into an exact region.
//
// A file is mapped only while the kernel has promised, by a lease of its own,
// to ask before it lets anybody write to the file or cut it short: a page that
// is gone kills the process wherever it is read, even within gRPC, where nobody
// can recover. When somebody wants to write, one goroutine copies what frames
// still show into memory at the same addresses and gives the lease back. The
// kernel waits for that, 45 seconds by default: only a process that was stopped
// for longer while another one wrote has to fear for its mapped frames.
package frame

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/headrace/headrace/storage/budget"
)

// ErrLive means that a pool was closed while some of its memory was in use.
var ErrLive = errors.New("memory still in use")

// align is where buffers begin, in bytes: the width of the widest vector registers.
const align = 64

// poison is written over freed memory by pools with Options.Poison.
const poison = 0xDB

// Options of a Pool.
type Options struct {
	// Idle is the most bytes kept mapped for reuse. They are charged to nobody,
	// so they belong beside the ledger's limit, not in it.
	Idle int64
	// Poison overwrites memory before and after use: reads of freed or
	// unwritten bytes show. For tests.
	Poison bool
}

// Stats are the numbers of a pool at one moment.
type Stats struct {
	Regions int   // regions live
	Live    int64 // bytes of live regions, as charged
	Idle    int64 // bytes kept for reuse
	Frames  int   // frames live
	Leases  int   // leases live
	Files   int   // mapped files, each under a lease of the system's
	Mapped  int64 // bytes of files in live frames, as charged
	Copied  int64 // bytes that were mapped and have become memory, in live frames
}

// Pool hands out regions of off-heap memory and takes them back for reuse.
type Pool struct {
	options Options
	traces  traces
	files   files

	mu      sync.Mutex
	stats   Stats
	shelves map[int]*shelf // idle memory by class size
	slab    []byte         // fresh memory that regions are cut from
	clock   int64          // counts frees, to tell which idle memory is oldest
}

// shelf holds the idle memory of one class, oldest first.
type shelf []idleMemory

type idleMemory struct {
	mem  []byte
	time int64
	cpu  int // whose caches have it, most likely
}

// take takes out the newest that was freed on a processor, of the few that came last, or the newest of all. What lies in
// another processor's caches takes longer to write than what lies in none.
func (s *shelf) take(cpu int) []byte {
	const few = 64
	n := len(*s)
	at := n - 1
	for i := n - 1; i >= max(0, n-few); i-- {
		if (*s)[i].cpu == cpu {
			at = i
			break
		}
	}
	mem := (*s)[at].mem
	*s = slices.Delete(*s, at, at+1)
	return mem
}

// Region is a run of off-heap memory that belongs to one holder, charged to a grant.
type Region struct {
	pool  *Pool
	grant *budget.Grant
	kind  budget.Kind
	mem   []byte // the whole class
	n     int
	fresh bool // never used before: all zero
	freed atomic.Bool
}

// NewPool makes an empty pool.
func NewPool(o Options) *Pool {
	return &Pool{options: o, shelves: make(map[int]*shelf)}
}

// Cost returns what Alloc charges for n bytes: whole pages, in steps of a
// quarter of the next lower power of two.
func Cost(n int64) int64 {
	page := int64(os.Getpagesize())
	pages := n/page + min(n%page, 1)
	if shift := bits.Len64(uint64(max(pages-1, 0))) - 3; shift > 0 {
		step := int64(1) << shift
		pages = (pages + step - 1) / step * step
	}
	return pages * page
}

// Alloc maps n bytes, or takes idle ones, and charges their Cost to g. What
// they contain is undefined. The error wraps budget.ErrExhausted.
func (p *Pool) Alloc(g *budget.Grant, k budget.Kind, n int) (*Region, error) {
	if n < 0 || int64(n) > 1<<46 {
		return nil, fmt.Errorf("frame: region of %d bytes: %w, %w", n, budget.ErrExhausted, budget.ErrTooLarge)
	}
	size := int(Cost(int64(n)))
	if err := g.Charge(k, int64(size)); err != nil {
		return nil, err
	}
	mem, fresh, err := p.take(size)
	if err != nil {
		g.Credit(k, int64(size))
		return nil, fmt.Errorf("frame: map %d bytes: %w (%w)", size, budget.ErrExhausted, err)
	}
	if p.options.Poison {
		fill(mem, poison)
		fresh = false
	}
	return &Region{pool: p, grant: g, kind: k, mem: mem, n: n, fresh: fresh}, nil
}

// Ahead returns what gives memory for bytes of a store that are read ahead, charged
// to g: so many bytes, and how to give them back.
func (p *Pool) Ahead(g *budget.Grant) func(n int) (bytes []byte, free func(), err error) {
	return func(n int) ([]byte, func(), error) {
		r, err := p.Alloc(g, budget.Ahead, n)
		if err != nil {
			return nil, nil, err
		}
		return r.Bytes(), r.Free, nil
	}
}

// take finds size bytes and counts a live region.
func (p *Pool) take(size int) (mem []byte, fresh bool, err error) {
	cpu := processor()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Regions++
	p.stats.Live += int64(size)
	if s := p.shelves[size]; s != nil && len(*s) > 0 {
		mem = s.take(cpu)
		p.stats.Idle -= int64(size)
	}
	if mem != nil || size == 0 {
		return mem, false, nil
	}
	if mem, err = p.cut(size); err != nil {
		p.stats.Regions--
		p.stats.Live -= int64(size)
	}
	return mem, true, err
}

// Bytes returns the memory, as long as was asked for. It must not be touched after Free.
func (r *Region) Bytes() []byte { return r.mem[:r.n:r.n] }

// Free gives the memory back and credits the grant. Freeing again does nothing.
func (r *Region) Free() {
	if r.freed.Swap(true) {
		return
	}
	if r.pool.options.Poison {
		fill(r.mem, poison)
	}
	r.pool.put(r.mem)
	r.grant.Credit(r.kind, int64(len(r.mem)))
}

// pay lets another grant pay, if it can. A lease keeps the region, and whoever
// frees it learns of that lease's end.
func (r *Region) pay(to *budget.Grant) bool {
	passed := r.grant.Pass(r.kind, int64(len(r.mem)), to)
	if passed {
		r.grant = to
	}
	return passed
}

// put shelves memory that is no longer live, or unmaps it if it does not fit Idle.
func (p *Pool) put(mem []byte) {
	size, cpu := len(mem), processor()
	p.mu.Lock()
	p.stats.Regions--
	p.stats.Live -= int64(size)
	keep := size > 0 && int64(size) <= p.options.Idle
	var dropped [][]byte
	for keep && p.stats.Idle+int64(size) > p.options.Idle {
		dropped = append(dropped, p.dropOldest())
	}
	if keep {
		s := p.shelves[size]
		if s == nil {
			s = &shelf{}
			p.shelves[size] = s
		}
		p.clock++
		*s = append(*s, idleMemory{mem, p.clock, cpu})
		p.stats.Idle += int64(size)
	} else if size > 0 {
		dropped = append(dropped, mem)
	}
	p.mu.Unlock()
	for _, m := range dropped {
		unmapMemory(m)
	}
}

// dropOldest takes the memory that has been idle longest. The lock is held and there is some.
func (p *Pool) dropOldest() []byte {
	var oldest *shelf
	for _, s := range p.shelves {
		if len(*s) > 0 && (oldest == nil || (*s)[0].time < (*oldest)[0].time) {
			oldest = s
		}
	}
	mem := (*oldest)[0].mem
	*oldest = (*oldest)[1:]
	p.stats.Idle -= int64(len(mem))
	return mem
}

// Stats returns the numbers of this moment; they agree with each other.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

// Close unmaps idle memory and files. If any is live the error, wrapping ErrLive, says
// how much (built with the tag leases: who took the leases); it stays usable.
func (p *Pool) Close() error {
	p.files.close()
	p.mu.Lock()
	var idle [][]byte
	for _, s := range p.shelves {
		for _, i := range *s {
			idle = append(idle, i.mem)
		}
	}
	clear(p.shelves)
	p.dropSlab()
	p.stats.Idle = 0
	p.options.Idle = 0 // what comes back later is unmapped at once
	s := p.stats
	p.mu.Unlock()
	for _, m := range idle {
		unmapMemory(m)
	}
	if s.Regions == 0 && s.Frames == 0 && s.Leases == 0 && s.Files == 0 {
		return nil
	}
	return fmt.Errorf("frame: %d regions of %d bytes, %d frames, %d leases, %d mapped files: %w%s",
		s.Regions, s.Live, s.Frames, s.Leases, s.Files, ErrLive, p.traces.report())
}

// fill sets every byte of mem, doubling what is set so that it runs as fast as copies do.
func fill(mem []byte, b byte) {
	if len(mem) == 0 {
		return
	}
	mem[0] = b
	for n := 1; n < len(mem); n *= 2 {
		copy(mem[n:], mem[:n])
	}
}

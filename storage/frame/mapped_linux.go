package frame

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/headrace/headrace/storage/budget"
)

// part is what a frame shows of a mapped file.
type part struct {
	file  *File
	grant *budget.Grant
	pages []extent // in order
	size  int64    // bytes of the pages
}

// slot is the size of the largest pages that files are mapped by. Taking a part
// of one out of the process takes all of it.
const slot = 2 << 20

// slots visits the slots that the part has pages in, in order.
func (p *part) slots(visit func(i int64)) {
	next := int64(0)
	for _, e := range p.pages {
		for i := max(e.from/slot, next); i*slot < e.to; i++ {
			visit(i)
			next = i + 1
		}
	}
}

// mapAll maps the size bytes of the file, not one of which is read yet. A large
// file as a whole is mapped by large pages, where its pages are large: that
// makes bringing a block in ten times cheaper than with a mapping for each.
func (f *File) mapAll(size int64) error {
	if size == 0 {
		return io.ErrUnexpectedEOF
	}
	n := extent{to: size}.paged().to
	at, err := unix.MmapPtr(f.fd, 0, nil, uintptr(n), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	f.mem = unsafe.Slice((*byte)(at), n)
	f.uses = make([]int32, (n+slot-1)/slot)
	// Advice: read large pieces ahead, and do not keep what was read in the place of what others need.
	_ = unix.Madvise(f.mem, unix.MADV_SEQUENTIAL)
	return nil
}

func unmap(mem []byte) {
	if err := unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem))); err != nil {
		panic("frame: unmap: " + err.Error())
	}
}

// open takes what a frame needs of the file, and brings its pages into memory,
// so that a bad disk shows here and not where nobody can handle it.
func (f *File) open(g *budget.Grant, s *shape) (*part, error) {
	if s.reach.to > int64(len(f.mem)) {
		return nil, fmt.Errorf("%w: the file ends before", ErrNotInPlace)
	}
	p := &part{file: f, grant: g, pages: s.pages, size: s.size}
	if err := g.Charge(budget.Mapped, p.size); err != nil {
		return nil, err
	}
	if !f.join(p) {
		g.Credit(budget.Mapped, p.size)
		return nil, fmt.Errorf("%w: somebody waits to write to the file", ErrNotInPlace)
	}
	for _, e := range p.pages {
		// An old kernel cannot, and bytes that are not there, or not to be read, are an error.
		if err := f.advise(e, bite, unix.MADV_POPULATE_READ); err != nil {
			p.free()
			return nil, fmt.Errorf("%w: %w", ErrNotInPlace, err)
		}
	}
	return p, nil
}

// bite is how many bytes are brought into memory at a time: small pages of so
// many take a twentieth of a millisecond.
const bite = 512 << 10

// advise calls madvise for so many bytes at a time, and lets other goroutines
// go on in between. The scheduler takes up to ten milliseconds to notice that
// all processors are in calls of the system, in which those that send batches
// would wait.
func (f *File) advise(e extent, step int64, advice int) error {
	for at := e.from; at < e.to; at += step {
		if err := unix.Madvise(f.mem[at:min(at+step, e.to)], advice); err != nil {
			return err
		}
		runtime.Gosched()
	}
	return nil
}

// pay lets another grant pay, if it can. A lease keeps the part.
func (p *part) pay(to *budget.Grant) bool {
	p.file.mu.Lock()
	defer p.file.mu.Unlock()
	kind := budget.Mapped
	if p.file.copied {
		kind = budget.Copies
	}
	passed := p.grant.Pass(kind, p.size, to)
	if passed {
		p.grant = to
	}
	return passed
}

// bytes returns the bytes [from, to) of the file.
func (p *part) bytes(from, to int64) []byte { return p.file.mem[from:to:to] }

// free gives the pages back. The last lease of the frame calls it.
func (p *part) free() {
	f := p.file
	f.mu.Lock()
	f.pool.files.mu.Lock()
	delete(f.parts, p)
	f.pool.files.mu.Unlock()
	kind := budget.Mapped
	gone := f.unused(p)
	if f.copied {
		kind, gone = budget.Copies, without(p.pages, f.shown())
	}
	f.drop(gone)
	f.mu.Unlock()
	p.grant.Credit(kind, p.size)
	f.pool.count(func(s *Stats) {
		if kind == budget.Copies {
			s.Copied -= p.size
		} else {
			s.Mapped -= p.size
		}
	})
	f.leave()
}

// unused ends the use of p's slots and returns those that nobody uses any more.
func (f *File) unused(p *part) (out []extent) {
	p.slots(func(i int64) {
		if f.uses[i]--; f.uses[i] > 0 {
			return
		}
		e := extent{i * slot, min((i+1)*slot, int64(len(f.mem)))}
		if last := len(out) - 1; last >= 0 && out[last].to == e.from {
			out[last].to = e.to
			return
		}
		out = append(out, e)
	})
	return out
}

// drop takes pages out of the process: those of the file stay in the system's
// cache, copies are gone. It fails for addresses that are not mapped only.
func (f *File) drop(pages []extent) {
	for _, e := range pages {
		if err := f.advise(e, slot, unix.MADV_DONTNEED); err != nil { // less would take large pages apart
			panic("frame: drop pages: " + err.Error())
		}
	}
}

// without returns what of a is not in b. Both are in order.
func without(a, b []extent) (out []extent) {
	for _, e := range a {
		for _, o := range b {
			if o.to <= e.from || o.from >= e.to {
				continue
			}
			if e.from < o.from {
				out = append(out, extent{e.from, o.from})
			}
			e.from = o.to
		}
		if e.from < e.to {
			out = append(out, e)
		}
	}
	return out
}

// yield puts memory with the same bytes in the place of what frames show of the
// file, and nothing in the place of the rest, and lets the writer go on. Who
// reads meanwhile waits for the kernel, or notices nothing. If there is no
// memory the writer goes on waiting, and the next poll tries again.
func (f *File) yield() {
	n := uintptr(len(f.mem))
	// Pages that nobody writes to take no memory.
	at, err := unix.MmapPtr(-1, 0, nil, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return
	}
	copies := unsafe.Slice((*byte)(at), n)
	pages := f.shown()
	if f.read(copies, pages) != nil || f.replace(copies, pages) != nil {
		unmap(copies)
		return
	}
	f.pool.files.mu.Lock()
	defer f.pool.files.mu.Unlock()
	f.end()
}

// read fills the pages in dst.
func (f *File) read(dst []byte, pages []extent) error {
	const step = 8 << 20
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, e := range pages {
		for at := e.from; at < e.to; at += step {
			group.Go(func() error { return f.readAt(dst[at:min(at+step, e.to)], at) })
		}
	}
	return group.Wait()
}

// readAt fills dst as far as the file goes: what lies behind its end in the last page is zero in a mapping too.
func (f *File) readAt(dst []byte, at int64) error {
	for len(dst) > 0 {
		n, err := unix.Pread(f.fd, dst, at)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n > 0:
			dst, at = dst[n:], at+int64(n)
		case len(dst) < os.Getpagesize():
			return nil
		default:
			return io.ErrUnexpectedEOF
		}
	}
	return nil
}

// replace moves the copies of pages to where the file is mapped, all at once.
func (f *File) replace(copies []byte, pages []extent) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := uintptr(len(f.mem))
	to, from := unsafe.Pointer(unsafe.SliceData(f.mem)), unsafe.Pointer(unsafe.SliceData(copies))
	if _, err := unix.MremapPtr(from, n, to, n, unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED); err != nil {
		return err
	}
	f.copied = true
	f.drop(without(pages, f.shown())) // frames that ended meanwhile
	f.pool.files.mu.Lock()
	defer f.pool.files.mu.Unlock()
	for p := range f.parts {
		p.grant.Move(budget.Mapped, budget.Copies, p.size)
		f.pool.count(func(s *Stats) { s.Mapped, s.Copied = s.Mapped-p.size, s.Copied+p.size })
	}
	return nil
}

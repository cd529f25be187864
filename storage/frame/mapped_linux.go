package frame

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/headrace/headrace/storage/budget"
)

// mapping is a part of a file at an address of its own, for one frame. It is
// one mapping however scattered the frame's rows are; only their pages are
// brought into memory, counted and, when it comes to that, copied.
type mapping struct {
	file  *File
	grant *budget.Grant
	pages []extent
	size  int64 // bytes of pages
	base  int64 // where in the file it begins

	mu     sync.Mutex
	mem    []byte // nil: not mapped
	copied bool   // it is memory of our own by now
}

// open maps what a frame needs, and brings its pages into memory so that a bad
// disk shows here and not where nobody can handle it.
func (f *File) open(g *budget.Grant, s *shape) (*mapping, error) {
	whole := s.reach.paged()
	m := &mapping{file: f, grant: g, pages: s.pages, size: s.size, base: whole.from}
	if err := g.Charge(budget.Mapped, m.size); err != nil {
		return nil, err
	}
	if !f.join(m) {
		g.Credit(budget.Mapped, m.size)
		return nil, fmt.Errorf("%w: somebody waits to write to the file", ErrNotInPlace)
	}
	f.pool.count(func(s *Stats) { s.Mapped += m.size })
	err := m.mapFile(int(whole.len()))
	if err == nil {
		err = m.populate()
	}
	if err != nil {
		m.free()
		return nil, fmt.Errorf("%w: %w", ErrNotInPlace, err)
	}
	return m, nil
}

func (m *mapping) mapFile(n int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, err := unix.MmapPtr(m.file.fd, m.base, nil, uintptr(n), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	m.mem = unsafe.Slice((*byte)(at), n)
	return nil
}

// populate reads the pages in. An old kernel cannot, and bytes that are not
// there, or not to be read, are an error.
func (m *mapping) populate() error {
	for _, e := range m.pages {
		mem := m.bytes(e.from, e.to)
		if err := unix.Madvise(mem, unix.MADV_POPULATE_READ); err != nil {
			return err
		}
	}
	return nil
}

// bytes returns the mapped bytes [from, to) of the file. Only the holder may call it.
func (m *mapping) bytes(from, to int64) []byte {
	from, to = from-m.base, to-m.base
	return m.mem[from:to:to]
}

// detach puts memory with the same bytes in the place of the file. Whoever
// reads them meanwhile waits for the kernel, or notices nothing.
func (m *mapping) detach() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mem == nil || m.copied {
		return nil
	}
	n := uintptr(len(m.mem))
	// Pages that nobody writes to take no memory: what the frame does not show stays empty.
	at, err := unix.MmapPtr(-1, 0, nil, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return err
	}
	if err = m.read(unsafe.Slice((*byte)(at), n)); err == nil {
		_, err = unix.MremapPtr(at, n, unsafe.Pointer(unsafe.SliceData(m.mem)), n, unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED)
	}
	if err != nil {
		return errors.Join(err, unix.MunmapPtr(at, n))
	}
	m.copied = true
	m.grant.Move(budget.Mapped, budget.Copies, m.size)
	m.file.pool.count(func(s *Stats) { s.Mapped, s.Copied = s.Mapped-m.size, s.Copied+m.size })
	return nil
}

// read fills the pages in dst, as far as the file goes: what lies behind its end is zero in a mapping too.
func (m *mapping) read(dst []byte) error {
	for _, e := range m.pages {
		for at := e.from; at < e.to; {
			n, err := unix.Pread(m.file.fd, dst[at-m.base:e.to-m.base], at)
			switch {
			case errors.Is(err, unix.EINTR):
			case err != nil:
				return err
			case n > 0:
				at += int64(n)
			case e.to-at < int64(os.Getpagesize()):
				at = e.to
			default:
				return io.ErrUnexpectedEOF
			}
		}
	}
	return nil
}

// free unmaps. The last lease of the frame calls it.
func (m *mapping) free() {
	m.mu.Lock()
	if m.mem != nil {
		if err := unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(m.mem)), uintptr(len(m.mem))); err != nil {
			panic("frame: unmap: " + err.Error())
		}
	}
	m.mem = nil
	kind := budget.Mapped
	if m.copied {
		kind = budget.Copies
	}
	m.mu.Unlock()
	m.grant.Credit(kind, m.size)
	m.file.pool.count(func(s *Stats) {
		if kind == budget.Copies {
			s.Copied -= m.size
		} else {
			s.Mapped -= m.size
		}
	})
	m.file.leave(m)
}

package frame

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// pollEvery is how often leases are looked at. A writer waits that long at most
// before its turn is prepared.
const pollEvery = 150 * time.Millisecond

// leastBreak is the shortest time that the kernel must grant for giving a lease
// back, in seconds; by default it is 45.
const leastBreak = 10

// local are the file systems whose every change comes through this kernel. On
// network and user-space file systems others cut files short without asking it,
// whatever leases it gives.
var local = map[int64]bool{
	unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true, unix.F2FS_SUPER_MAGIC: true,
	unix.TMPFS_MAGIC: true, unix.RAMFS_MAGIC: true, unix.OVERLAYFS_SUPER_MAGIC: true,
	0x2fc12fc1: true, // ZFS
	0xca451a4e: true, // bcachefs
}

// files are the mapped files of a pool.
type files struct {
	mu   sync.Mutex
	open map[inode]*File
	stop chan struct{} // closed when the last one goes: it ends the poller
	poll sync.WaitGroup
}

type inode struct{ dev, ino uint64 }

// File is a file under a read lease of the kernel's: as long as it has not been
// given back, the bytes do not change.
type File struct {
	pool *Pool
	id   inode
	fd   int

	// Guarded by pool.files.mu.
	holds    int // calls of Map without their Close, and mappings
	mappings map[*mapping]struct{}
	wanted   bool // somebody waits to write: nothing more is mapped
	ended    bool // the lease is given back, the descriptor closed
}

// Map takes a lease on the open file fd, or another share of the one there is,
// and keeps a descriptor of its own. Close ends the share. The caller checks
// that the file is the version it wants after Map, not before. ErrNoLease says
// why there is none to be had: the file belongs to somebody else and the
// process may not ask for such leases (CAP_LEASE), it is open for writing, or
// lies where others can change it behind the kernel's back.
func (p *Pool) Map(fd uintptr) (*File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(fd), &st); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoLease, err)
	}
	//nolint:unconvert // narrower on some processors
	id := inode{uint64(st.Dev), uint64(st.Ino)}
	fs := &p.files
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f := fs.open[id]; f != nil {
		if f.wanted {
			return nil, fmt.Errorf("%w: somebody waits to write to it", ErrNoLease)
		}
		f.holds++
		return f, nil
	}
	if len(fs.open) == 0 && !patient() {
		return nil, fmt.Errorf("%w: the kernel waits less than %d s for leases to be given back", ErrNoLease, leastBreak)
	}
	own, err := lease(int(fd))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoLease, err)
	}
	f := &File{pool: p, id: id, fd: own, holds: 1, mappings: map[*mapping]struct{}{}}
	fs.add(f)
	return f, nil
}

// lease duplicates fd and puts a read lease on it. Leases belong to what was
// opened, not to the thread or to the number that asked for it.
//
// The kernel would tell of a writer by SIGIO, whose default is to end the
// process and from which nobody learns which file it is about. So nobody is to
// be told: a poller asks instead. In the moment before F_SETOWN the signal may
// still come; Go's runtime has a handler for it that does nothing.
func lease(fd int) (int, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return 0, err
	}
	//nolint:unconvert // narrower on some processors
	if !local[int64(st.Type)] {
		return 0, fmt.Errorf("file system %#x", st.Type)
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if _, err = unix.FcntlInt(uintptr(own), unix.F_SETLEASE, unix.F_RDLCK); err == nil {
		_, err = unix.FcntlInt(uintptr(own), unix.F_SETOWN, 0)
	}
	if err != nil {
		_ = unix.Close(own)
		return 0, err
	}
	return own, nil
}

// patient tells whether the kernel waits long enough for leases to be given back.
func patient() bool {
	b, err := os.ReadFile("/proc/sys/fs/lease-break-time")
	if err != nil {
		return false
	}
	seconds, err := strconv.Atoi(strings.TrimSpace(string(b)))
	return err == nil && (seconds == 0 || seconds >= leastBreak) // 0: for ever
}

// add registers a file and sees that there is a poller. The lock is held.
func (fs *files) add(f *File) {
	if len(fs.open) == 0 {
		fs.open = map[inode]*File{}
		stop := make(chan struct{})
		fs.stop = stop
		fs.poll.Go(func() { fs.run(stop) })
	}
	fs.open[f.id] = f
	f.pool.count(func(s *Stats) { s.Files++ })
}

// run is the poller: it lives while there are files.
func (fs *files) run(stop <-chan struct{}) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		for _, f := range fs.waited() {
			f.yield()
		}
	}
}

// wait waits for the poller, which has been told to end.
func (fs *files) wait() { fs.poll.Wait() }

// waited returns the files that somebody waits to write to. Nothing more is mapped of them.
func (fs *files) waited() (out []*File) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, f := range fs.open {
		if kind, err := unix.FcntlInt(uintptr(f.fd), unix.F_GETLEASE, 0); err != nil || kind != unix.F_RDLCK {
			f.wanted = true
		}
		if f.wanted {
			out = append(out, f)
		}
	}
	return out
}

// yield makes memory of all that is mapped of f and lets the writer go on. If
// memory is short the writer goes on waiting, and the next poll tries again.
func (f *File) yield() {
	fs := &f.pool.files
	fs.mu.Lock()
	var all []*mapping
	for m := range f.mappings {
		all = append(all, m)
	}
	fs.mu.Unlock()
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, m := range all {
		group.Go(m.detach)
	}
	if group.Wait() != nil {
		return
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.end()
}

// Close ends one share of the file. Frames of it stay.
func (f *File) Close() { f.leave(nil) }

// join admits a mapping, unless somebody waits to write.
func (f *File) join(m *mapping) bool {
	f.pool.files.mu.Lock()
	defer f.pool.files.mu.Unlock()
	if f.wanted {
		return false
	}
	f.mappings[m] = struct{}{}
	f.holds++
	return true
}

// leave ends one hold, that of a mapping if m is not nil. The last one gives the lease back.
func (f *File) leave(m *mapping) {
	f.pool.files.mu.Lock()
	defer f.pool.files.mu.Unlock()
	delete(f.mappings, m)
	if f.holds--; f.holds == 0 {
		f.end()
	}
}

// end gives the lease back. The lock is held.
func (f *File) end() {
	if f.ended {
		return
	}
	f.ended, f.wanted = true, true
	// The descriptor shares what it was opened as with the caller's, so closing it does not end the lease.
	_, _ = unix.FcntlInt(uintptr(f.fd), unix.F_SETLEASE, unix.F_UNLCK)
	_ = unix.Close(f.fd)
	fs := &f.pool.files
	if delete(fs.open, f.id); len(fs.open) == 0 {
		close(fs.stop)
	}
	f.pool.count(func(s *Stats) { s.Files-- })
}

// count changes the pool's numbers.
func (p *Pool) count(change func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.stats)
}

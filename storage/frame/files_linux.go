package frame

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

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

// canMap tells whether files can be mapped on this system.
const canMap = true

// files are the mapped files of a pool.
type files struct {
	mu   sync.Mutex
	open map[inode]*File
	stop chan struct{} // closed when the last one goes: it ends the poller
	poll sync.WaitGroup
}

type inode struct{ dev, ino uint64 }

// File is a file under a read lease of the kernel's: as long as it has not been
// given back, the bytes do not change. All of it is mapped, at one address.
type File struct {
	pool *Pool
	id   inode
	fd   int
	mem  []byte

	// Guarded by pool.files.mu.
	holds  int  // calls of Map without their Close, and parts
	idle   bool // nobody held it at the last poll
	parts  map[*part]struct{}
	wanted bool // somebody waits to write: nothing more is shown
	ended  bool // the lease is given back, the descriptor closed

	mu     sync.Mutex // held while pages come or go; taken before files.mu
	uses   []int32    // by slot: how many parts have pages there
	copied bool       // mem is memory of our own by now
}

// Map takes a lease on the open file fd, or another share of the one there is,
// and keeps a descriptor of its own. Close ends the share; the lease stays for a
// moment, for the next segment is likely to want it again. The caller checks
// that the file is the version it wants after Map, not before. ErrNoLease says
// why there is none to be had: the file belongs to somebody else and the
// process may not ask for such leases (CAP_LEASE), it is open for writing, or
// lies where others can change it behind the kernel's back.
func (p *Pool) Map(fd uintptr) (*File, error) {
	id, size, err := inodeOf(int(fd))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoLease, err)
	}
	fs := &p.files
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f := fs.open[id]; f != nil {
		if f.wanted {
			return nil, fmt.Errorf("%w: somebody waits to write to it", ErrNoLease)
		}
		f.holds++
		f.idle = false
		return f, nil
	}
	if len(fs.open) == 0 {
		if err := willing(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoLease, err)
		}
	}
	own, err := lease(int(fd), id)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoLease, err)
	}
	f := &File{pool: p, id: id, fd: own, holds: 1, parts: map[*part]struct{}{}}
	if err := f.mapAll(size); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoLease, errors.Join(err, unix.Close(own)))
	}
	fs.add(f)
	return f, nil
}

// inodeOf tells which file fd is, and its size.
func inodeOf(fd int) (inode, int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return inode{}, 0, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return inode{}, 0, errors.New("not a regular file")
	}
	//nolint:unconvert // narrower on some processors
	return inode{uint64(st.Dev), uint64(st.Ino)}, st.Size, nil
}

// lease opens the file of fd again and puts a read lease on that. A lease belongs
// to what was opened, not to the thread that asked for it; and the kernel reads
// ahead for the mapping alone, without being led astray by other reads.
//
// The kernel would tell of a writer by SIGIO, whose default is to end the
// process and from which nobody learns which file it is about. So nobody is to
// be told: a poller asks instead. In the moment before F_SETOWN the signal may
// still come; Go's runtime has a handler for it that does nothing.
func lease(fd int, id inode) (int, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return 0, err
	}
	//nolint:unconvert // narrower on some processors
	if !local[int64(fs.Type)] {
		return 0, fmt.Errorf("file system %#x", fs.Type)
	}
	own, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if _, err = unix.FcntlInt(uintptr(own), unix.F_SETLEASE, unix.F_RDLCK); err == nil {
		_, err = unix.FcntlInt(uintptr(own), unix.F_SETOWN, 0)
	}
	if again, _, statErr := inodeOf(own); err == nil && (statErr != nil || again != id) {
		err = errors.Join(statErr, errors.New("opening it again leads elsewhere"))
	}
	if err != nil {
		return 0, errors.Join(err, unix.Close(own))
	}
	return own, nil
}

// willing tells whether the system lets a writer wait long enough, and promises
// memory that it may never have to give: both are so unless an administrator
// decided otherwise.
func willing() error {
	if wait, err := sysctl("fs/lease-break-time"); err != nil || wait != 0 && wait < leastBreak { // 0: for ever
		return fmt.Errorf("the system waits %d s only for leases to be given back (%w)", wait, err)
	}
	if strict, err := sysctl("vm/overcommit_memory"); err != nil || strict == 2 {
		return fmt.Errorf("the system commits no memory that it may lack (%w)", err)
	}
	return nil
}

func sysctl(name string) (int, error) {
	b, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
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

// run is the poller: it lives while there are files. It ends those that nobody
// has held for a while, and lets writers into those that they wait for.
func (fs *files) run(stop <-chan struct{}) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		fs.forget(func(f *File) bool {
			was := f.idle
			f.idle = true
			return was
		})
		for _, f := range fs.waited() {
			f.yield()
			f.leave()
		}
	}
}

// close ends the files that nobody holds, and waits for the poller if there are no others.
func (fs *files) close() {
	fs.forget(func(*File) bool { return true })
	fs.mu.Lock()
	left := len(fs.open)
	fs.mu.Unlock()
	if left == 0 {
		fs.poll.Wait()
	}
}

// forget ends those files of which old says so, among those that nobody holds.
func (fs *files) forget(old func(*File) bool) {
	var ended []*File
	fs.mu.Lock()
	for _, f := range fs.open {
		if f.holds == 0 && old(f) {
			f.end()
			ended = append(ended, f)
		}
	}
	fs.mu.Unlock()
	for _, f := range ended {
		unmap(f.mem)
	}
}

// waited returns the files that somebody waits to write to, each with a hold on
// it. They will show nothing more.
func (fs *files) waited() (out []*File) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, f := range fs.open {
		if kind, err := unix.FcntlInt(uintptr(f.fd), unix.F_GETLEASE, 0); err != nil || kind != unix.F_RDLCK {
			f.wanted = true
		}
		if f.wanted {
			f.holds++
			out = append(out, f)
		}
	}
	return out
}

// Close ends one share of the file. Frames of it stay.
func (f *File) Close() { f.leave() }

// join admits a part, unless somebody waits to write.
func (f *File) join(p *part) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pool.files.mu.Lock()
	defer f.pool.files.mu.Unlock()
	if f.wanted {
		return false
	}
	p.slots(func(i int64) { f.uses[i]++ })
	f.parts[p] = struct{}{}
	f.holds++
	f.pool.count(func(s *Stats) { s.Mapped += p.size })
	return true
}

// leave ends one hold. The last one on a file that has been written to unmaps it.
func (f *File) leave() {
	f.pool.files.mu.Lock()
	f.holds--
	last := f.holds == 0 && f.ended
	f.pool.files.mu.Unlock()
	if last {
		unmap(f.mem)
	}
}

// end lets writers in. The lock is held.
func (f *File) end() {
	if f.ended {
		return
	}
	f.ended, f.wanted = true, true
	_, _ = unix.FcntlInt(uintptr(f.fd), unix.F_SETLEASE, unix.F_UNLCK) // the mapping alone would keep it
	_ = unix.Close(f.fd)
	fs := &f.pool.files
	if delete(fs.open, f.id); len(fs.open) == 0 {
		close(fs.stop)
	}
	f.pool.count(func(s *Stats) { s.Files-- })
}

// shown are the pages of the file that frames show.
func (f *File) shown() []extent {
	f.pool.files.mu.Lock()
	defer f.pool.files.mu.Unlock()
	var all []extent
	for p := range f.parts {
		all = append(all, p.pages...)
	}
	return merged(all)
}

// count changes the pool's numbers.
func (p *Pool) count(change func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.stats)
}

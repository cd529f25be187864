package shm

import (
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Supported tells whether this system has memory that can be handed over.
const Supported = true

// memory makes a file in memory that nobody can make shorter or longer, and maps it.
func memory(size int) (*os.File, []byte, error) {
	fd, err := unix.MemfdCreate("headrace", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("shm: a file in memory: %w", err)
	}
	file := os.NewFile(uintptr(fd), "headrace")
	mem, err := seal(fd, size)
	if err != nil {
		file.Close()
		return nil, nil, fmt.Errorf("shm: a file in memory: %w", err)
	}
	return file, mem, nil
}

func seal(fd, size int) ([]byte, error) {
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, err
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return nil, err
	}
	return unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

func unmap(mem []byte) { _ = unix.Munmap(mem) }

// provide has the system find memory for a part of the file now, when that can still be refused.
func provide(f *os.File, from, n int64) error {
	for {
		if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, from, n); err != unix.EINTR { // a signal of the runtime's
			return err
		}
	}
}

// release gives the memory of a part of the file back.
func release(f *os.File, from, n int64) {
	_ = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE|unix.FALLOC_FL_PUNCH_HOLE, from, n)
}

// send hands the descriptor over.
func (r *Ring) send() error {
	_, _, err := r.conn.WriteMsgUnix(greeting(), unix.UnixRights(int(r.file.Fd())), nil)
	return err
}

// poll reads what is there to be read, which may be nothing.
func poll(conn *net.UnixConn, to []byte) (n int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		n, failed = unix.Read(int(fd), to)
		return true
	})
	switch {
	case err != nil:
		return 0, err
	case failed == unix.EAGAIN || failed == unix.EINTR:
		return 0, nil
	case failed == nil && n == 0:
		return 0, io.EOF
	}
	return max(n, 0), failed
}

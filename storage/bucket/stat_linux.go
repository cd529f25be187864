package bucket

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// openFlags: without O_NONBLOCK, opening a FIFO that took a file's place
// between the look and the opening would wait for its writer.
const openFlags = os.O_RDONLY | syscall.O_NONBLOCK

// version is what the kernel says about a file's bytes.
type version struct {
	dev, ino, links uint64
	size            int64
	mtime, ctime    syscall.Timespec
}

func versionOf(info fs.FileInfo) version {
	s := info.Sys().(*syscall.Stat_t)
	//nolint:unconvert // narrower on some processors
	return version{dev: uint64(s.Dev), ino: s.Ino, links: uint64(s.Nlink), size: s.Size, mtime: s.Mtim, ctime: s.Ctim}
}

func (v version) pin() Pin {
	return Pin(fmt.Sprintf("%x.%x.%x.%x.%x.%x.%x", v.dev, v.ino, v.size, v.mtime.Sec, v.mtime.Nsec, v.ctime.Sec, v.ctime.Nsec))
}

// sameBytes tells whether v, seen later, can still hold the bytes of was. The
// inode's own time moves whenever the file is written to, even if the writer
// sets the other time back; it also moves when a name is taken away or added,
// which the number of links shows and which leaves the bytes alone.
func (v version) sameBytes(was version) bool {
	return v.size == was.size && v.mtime == was.mtime && (v.ctime == was.ctime || v.links != was.links)
}

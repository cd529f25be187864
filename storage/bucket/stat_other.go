//go:build !linux

package bucket

import (
	"fmt"
	"io/fs"
	"os"
)

const openFlags = os.O_RDONLY

// version is what every system says about a file's bytes: its size and the
// time of its last change. Inodes are not asked for here, so a file replaced
// by another of the same size and time passes for the same.
type version struct {
	size  int64
	mtime int64 // nanoseconds
}

func versionOf(info fs.FileInfo) version {
	return version{size: info.Size(), mtime: info.ModTime().UnixNano()}
}

func (v version) pin() Pin { return Pin(fmt.Sprintf("%x.%x", v.size, v.mtime)) }

func (v version) sameBytes(was version) bool { return v == was }

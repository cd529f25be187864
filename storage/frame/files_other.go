//go:build !linux

package frame

import (
	"fmt"
	"runtime"

	"github.com/headrace/headrace/storage/budget"
)

// canMap tells whether files can be mapped on this system.
const canMap = false

// files would be the mapped files of a pool.
type files struct{}

func (*files) close() {}

// File is a file that may be mapped. There are none here.
type File struct{ pool *Pool }

// Map always fails with ErrNoLease: only Linux tells before a file is cut short,
// and a mapping that nobody warns about can kill the process.
func (p *Pool) Map(uintptr) (*File, error) {
	return nil, fmt.Errorf("%w on %s", ErrNoLease, runtime.GOOS)
}

// Close does nothing.
func (f *File) Close() {}

// part would be what a frame shows of a mapped file.
type part struct {
	grant *budget.Grant
	size  int64
}

func (f *File) open(*budget.Grant, *shape) (*part, error) { return nil, ErrNotInPlace }

func (p *part) pay(*budget.Grant) bool { return true }

func (p *part) bytes(int64, int64) []byte { return nil }

func (p *part) free() {}

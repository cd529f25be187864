//go:build !linux

package frame

import (
	"fmt"
	"runtime"

	"github.com/headrace/headrace/storage/budget"
)

// files would be the mapped files of a pool.
type files struct{}

func (*files) wait() {}

// File is a file that may be mapped. There are none here.
type File struct{ pool *Pool }

// Map always fails with ErrNoLease: only Linux tells before a file is cut short,
// and a mapping that nobody warns about can kill the process.
func (p *Pool) Map(uintptr) (*File, error) {
	return nil, fmt.Errorf("%w on %s", ErrNoLease, runtime.GOOS)
}

// Close does nothing.
func (f *File) Close() {}

// mapping would be a mapped part of a file.
type mapping struct {
	size int64
}

func (f *File) open(*budget.Grant, *shape) (*mapping, error) { return nil, ErrNotInPlace }

func (m *mapping) bytes(int64, int64) []byte { return nil }

func (m *mapping) free() {}

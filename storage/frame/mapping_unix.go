//go:build linux || darwin

package frame

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapMemory returns zeroed memory outside the Go heap, on a page border.
func mapMemory(size int) ([]byte, error) {
	at, err := unix.MmapPtr(-1, 0, nil, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	mem := unsafe.Slice((*byte)(at), size)
	largePages(mem)
	return mem, nil
}

// unmapMemory takes what mapMemory gave, or whole pages of it. It fails only for memory that is not
// mapped, and going on with such books would hand out memory twice.
func unmapMemory(mem []byte) {
	if err := unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem))); err != nil {
		panic("frame: unmap: " + err.Error())
	}
}

//go:build linux || darwin

package frame

import "golang.org/x/sys/unix"

// mapMemory returns zeroed memory outside the Go heap, on a page border.
func mapMemory(size int) ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err == nil {
		largePages(mem)
	}
	return mem, err
}

// unmapMemory takes what mapMemory gave. It fails only for memory that is not
// mapped, and going on with such books would hand out memory twice.
func unmapMemory(mem []byte) {
	if err := unix.Munmap(mem); err != nil {
		panic("frame: unmap: " + err.Error())
	}
}

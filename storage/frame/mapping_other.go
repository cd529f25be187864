//go:build !linux && !darwin

package frame

import "unsafe"

// mapMemory returns zeroed memory that starts on a multiple of 64. Where the
// system has no anonymous mappings that we know, it is the Go heap's.
func mapMemory(size int) ([]byte, error) {
	raw := make([]byte, size+align)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(raw))) % align
	return raw[skip:][:size:size], nil
}

// unmapMemory leaves the memory to the garbage collector.
func unmapMemory([]byte) {}

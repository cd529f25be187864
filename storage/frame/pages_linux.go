package frame

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// largePages asks for pages of 2 MiB where a mapping has room for them: copies into fresh memory then fault, and miss
// the processor's table of pages, far less often. It is only a wish.
func largePages(mem []byte) {
	if len(mem) >= 2<<20 {
		_ = unix.Madvise(mem, unix.MADV_HUGEPAGE)
	}
}

// processor is the number of the one that the caller runs on, at this moment.
func processor() int {
	var cpu uint32
	_, _, _ = unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0)
	return int(cpu)
}

package encoding

import (
	"sync"
	"syscall"
)

// Decoders are shown bytes that end where memory ends, and fill memory that
// ends there too: one byte too far is a fault.

// fences are pieces of memory before a page that nobody may touch, which are not in use.
var fences struct {
	sync.Mutex
	free [][]byte
}

func fence(t world) []byte {
	t.Helper()
	fences.Lock()
	defer fences.Unlock()
	if n := len(fences.free); n > 0 {
		b := fences.free[n-1]
		fences.free = fences.free[:n-1]
		return b
	}
	b, err := syscall.Mmap(-1, 0, guarded+1<<16, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	must(t, err)
	must(t, syscall.Mprotect(b[guarded:], syscall.PROT_NONE))
	return b[:guarded:guarded]
}

// room is n bytes of such memory until the test ends. What comes before them must stay as it is.
func room(t world, n int) []byte {
	t.Helper()
	if n > guarded-64 {
		t.Fatalf("no room for %d bytes", n)
	}
	b := fence(t)
	before := b[guarded-n-64 : guarded-n]
	for i := range before {
		before[i] = canary
	}
	t.Cleanup(func() {
		for _, x := range before {
			if x != canary {
				t.Fatalf("written before what was to be filled")
			}
		}
		fences.Lock()
		defer fences.Unlock()
		fences.free = append(fences.free, b)
	})
	return b[guarded-n:]
}

// fenced is a copy of b in such memory.
func fenced(t world, b []byte) []byte {
	t.Helper()
	c := room(t, len(b))
	copy(c, b)
	return c
}

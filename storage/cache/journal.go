package cache

import "sync/atomic"

// journal remembers which entries were used, in order, until the policy hears of
// it: so a hit does not wait for the policy's lock.
type journal struct {
	slots      [journalSize]atomic.Pointer[entry]
	head, tail atomic.Uint64 // drained, and claimed, so far
}

const (
	journalSize = 1024
	drainEvery  = 64
)

// note writes an entry down, and tells whether it is time to drain. When the
// journal is full, the use is forgotten: somebody is draining.
func (j *journal) note(e *entry) (drain bool) {
	for {
		tail := j.tail.Load()
		if tail-j.head.Load() >= journalSize {
			return true
		}
		if j.tail.CompareAndSwap(tail, tail+1) {
			j.slots[tail%journalSize].Store(e)
			return tail%drainEvery == drainEvery-1
		}
	}
}

// drain calls use with every entry that was noted, in order. One goroutine at a time does.
func (j *journal) drain(use func(*entry)) {
	for head := j.head.Load(); head != j.tail.Load(); head++ {
		e := j.slots[head%journalSize].Swap(nil)
		if e == nil {
			return // who claimed the slot has not yet written: the next drain goes on here
		}
		j.head.Store(head + 1)
		use(e)
	}
}

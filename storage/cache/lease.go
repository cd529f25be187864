package cache

import (
	"sync/atomic"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

// Lease is one holder's claim on a block. It is given back with Release, once.
type Lease struct {
	entry      *entry
	grant      *budget.Grant // that can pay for the block; nil: it is only held
	prev, next *Lease        // of the entry's; guarded by the lock of its shard
	views      *views        // nil: it shows all of the block
	released   atomic.Bool
}

// views are leases on frames that show some of their columns.
type views []*frame.Lease

func (v views) release() {
	for _, f := range v {
		f.Release()
	}
}

// Frames returns the frames of the block, in order. They live as long as the lease.
func (l *Lease) Frames() []*frame.Lease {
	if l.views != nil {
		return *l.views
	}
	return l.entry.frames
}

// Payer returns the grant that pays for the frames: whoever loaded them or took
// them over; nil while the cache does.
func (l *Lease) Payer() *budget.Grant {
	l.entry.shard.mu.Lock()
	defer l.entry.shard.mu.Unlock()
	if l.entry.payer == l.entry.cache.grant {
		return nil
	}
	return l.entry.payer
}

// Mapped tells whether the frames lie in a file: such blocks are not kept.
func (l *Lease) Mapped() bool { return l.entry.mapped }

// Bytes returns the memory that the block holds, whatever the lease shows of it.
func (l *Lease) Bytes() int64 { return l.entry.bytes }

// Release gives the block back. It is kept if the policy has it so. What is
// not, and is still leased frame by frame, is the heirs' of those leases to pay for.
func (l *Lease) Release() {
	if l.released.Swap(true) {
		return
	}
	if l.views != nil {
		l.views.release()
	}
	l.entry.cache.leave(l)
}

// disown makes a lease one that only holds: its grant does not pay for the whole.
func (l *Lease) disown() {
	l.entry.shard.mu.Lock()
	defer l.entry.shard.mu.Unlock()
	l.grant = nil
}

package cache

import (
	"sync"
	"sync/atomic"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

// shard is a part of the index.
type shard struct {
	mu     sync.Mutex
	blocks map[Key][]*entry // with different columns; seldom more than one
}

// each calls do with every entry until it returns false, and tells whether it never did.
func (s *shard) each(do func(*entry) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, entries := range s.blocks {
		for _, e := range entries {
			if !do(e) {
				return false
			}
		}
	}
	return true
}

// entry is one block with one set of columns, or the loading of it.
type entry struct {
	item
	key     Key
	columns *Columns
	shard   *shard
	part    *part
	tenant  string // whose it is: of whoever loaded it
	mapped  bool   // its frames lie in a file of somebody else's
	done    chan struct{}
	frames  []*frame.Lease // once done is closed
	err     error          // once done is closed

	// guarded by shard.mu, as is the number of leases
	payer *budget.Grant // the cache's, or of whoever loaded it and has not given it back
	user  *budget.Grant // the first that has leased it, and not only held, since nobody did
}

// loaded tells whether the frames are there, or will never be.
func (e *entry) loaded() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

// free gives back the cache's leases on the frames of an entry that was taken out.
func (e *entry) free() {
	for _, f := range e.frames {
		f.Bequeath()
	}
}

// Lease is one holder's claim on a block. It is given back with Release, once.
type Lease struct {
	cache    *Cache
	entry    *entry
	frames   []*frame.Lease
	selected bool // frames are the lease's own
	released atomic.Bool
}

// Frames returns the frames of the block, in order. They live as long as the lease.
func (l *Lease) Frames() []*frame.Lease { return l.frames }

// Payer returns the grant that pays for the frames: whoever loaded them or took
// them over; nil while the cache does.
func (l *Lease) Payer() *budget.Grant {
	l.entry.shard.mu.Lock()
	defer l.entry.shard.mu.Unlock()
	if l.entry.payer == l.cache.grant {
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
	if l.selected {
		for _, f := range l.frames {
			f.Release()
		}
	}
	l.cache.leave(l.entry)
}

package cache

import (
	"sync/atomic"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

// entry is one block with one set of columns, or the loading of it.
type entry struct {
	// guarded by shard.mu, as is the number of leases
	holder *Lease        // the newest of those there are
	payer  *budget.Grant // the cache's, or of whoever loaded it and has not given it back; changed under the cache's lock too
	chain  *entry        // another one of the same hash
	item

	key     Key
	columns *Columns
	cache   *Cache
	shard   *shard
	part    *part
	tenant  string // whose it is: of whoever loaded it
	mapped  bool   // its frames lie in a file of somebody else's
	ended   atomic.Bool
	done    chan struct{}  // closed once that is so
	frames  []*frame.Lease // then
	err     error          // then
}

// take makes a lease one on the entry. Its shard's lock is held.
func (e *entry) take(l *Lease) {
	e.leases.Add(1)
	l.entry = e
	if l.next = e.holder; l.next != nil {
		l.next.prev = l
	}
	e.holder = l
}

// leave ends a lease, and tells whether it was the last and who pays for the entry now.
func (e *entry) leave(l *Lease) (last bool, payer *budget.Grant) {
	e.shard.mu.Lock()
	defer e.shard.mu.Unlock()
	if l.next != nil {
		l.next.prev = l.prev
	}
	if l.prev != nil {
		l.prev.next = l.next
	} else {
		e.holder = l.next
	}
	l.next, l.prev = nil, nil
	return e.leases.Add(-1) == 0, e.payer
}

// end tells all who wait that loading has ended.
func (e *entry) end() {
	e.ended.Store(true)
	close(e.done)
}

// loaded tells whether the frames are there, or will never be.
func (e *entry) loaded() bool { return e.ended.Load() }

// free gives back the cache's leases on the frames of an entry that was taken out.
func (e *entry) free() {
	for _, f := range e.frames {
		f.Bequeath()
	}
}

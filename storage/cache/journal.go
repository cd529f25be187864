package cache

import (
	"slices"
	"sync/atomic"
)

// journal puts in order what was used, until the policies hear of it: so a hit
// does not wait for their lock. Uses are written down where their blocks are, each
// with a number. Nothing is forgotten, and what was used first is told first.
type journal struct {
	_      [64]byte
	given  atomic.Uint64 // numbers so far; all write that, so it lies in a line of its own
	_      [56]byte
	told   uint64 // numbers that were told
	unread []use  // those from there on, by number; some of the last may not be known yet
}

// use is one hit.
type use struct {
	number uint64
	entry  *entry
	tenant string
}

const (
	drainEvery = 16   // uses in a shard: then it is time, unless somebody has the lock
	drainAt    = 1024 // then it is waited for
)

// note writes a use down in a shard, which is locked, and tells how many there are.
func (j *journal) note(s *shard, u use) int {
	u.number = j.given.Add(1) - 1
	s.uses = append(s.uses, u)
	return len(s.uses)
}

// read calls tell with all uses that were noted, in order. One goroutine at a time does.
func (j *journal) read(x *index, tell func(use)) {
	known := int(j.given.Load() - j.told) // so many are written down by the time their shard can be locked
	for i := range x.shards {
		j.collect(&x.shards[i])
	}
	for _, u := range j.unread[:known] {
		tell(u)
	}
	rest := copy(j.unread, j.unread[known:])
	clear(j.unread[rest:])
	j.unread = j.unread[:rest]
	j.told += uint64(known)
}

// collect takes the uses that are written down in a shard.
func (j *journal) collect(s *shard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.uses {
		at := int(u.number - j.told)
		if more := at + 1 - len(j.unread); more > 0 {
			j.unread = slices.Grow(j.unread, more)[:at+1]
		}
		j.unread[at] = u
	}
	clear(s.uses)
	s.uses = s.uses[:0]
}

// touch notes that a request was served by an entry that was there.
func (c *Cache) touch(e *entry, r Request) {
	e.shard.mu.Lock()
	n := c.note(e, r)
	e.shard.mu.Unlock()
	c.noted(n)
}

// note writes that down, and tells how much there is of the entry's shard, which is locked.
func (c *Cache) note(e *entry, r Request) int {
	if e.plan.Load() != r.Plan {
		e.plan.Store(r.Plan)
	}
	return c.journal.note(e.shard, use{entry: e, tenant: r.Tenant})
}

// noted drains if it is time, with so many uses in a shard. None is locked.
func (c *Cache) noted(n int) {
	switch {
	case n >= drainAt:
		c.mu.Lock()
	case n%drainEvery != 0 || !c.mu.TryLock():
		return
	}
	c.drain()
	c.mu.Unlock()
}

// drain tells the policies and the counts what was used. The cache's lock is held.
func (c *Cache) drain() {
	var tenant string
	var t *tally // of that tenant, for most uses are of the one before
	c.journal.read(c.index, func(u use) {
		if t == nil || u.tenant != tenant {
			tenant, t = u.tenant, c.counts.of(u.tenant, c.active)
		}
		t.memory++
		if u.entry.list != nil { // else it has gone meanwhile
			c.use(u.entry)
		}
	})
}

// use tells an entry's policy that it was used.
func (c *Cache) use(e *entry) {
	c.clock++
	e.used = c.clock
	e.part.use(e)
}

package cache

import "github.com/headrace/headrace/storage/budget"

// charge makes a grant pay for an entry that the cache pays for, unless somebody
// else leases it anyway. It tells whether the entry may stay leased.
func (c *Cache) charge(e *entry, g *budget.Grant) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.shard.mu.Lock()
	defer e.shard.mu.Unlock()
	if e.payer != c.grant || e.leases.Load() > 1 {
		return true
	}
	return c.pay(e, g)
}

// pay lets another grant pay for an entry, if it can. The locks of the cache and
// of the entry's shard are held.
func (c *Cache) pay(e *entry, to *budget.Grant) bool {
	for i, f := range e.frames {
		if !f.Pay(to) {
			for _, back := range e.frames[:i] {
				back.Pay(e.payer) // unless the bytes are another's by now: each frame knows who pays
			}
			return false
		}
	}
	if e.payer == c.grant {
		c.kept -= e.bytes
	}
	if to == c.grant {
		c.kept += e.bytes
	}
	e.payer = to
	return true
}

// leave ends a lease on an entry. After the last one's it is kept, if there is room.
func (c *Cache) leave(l *Lease) {
	e := l.entry
	last, payer := e.leave(l)
	switch {
	case !last || e.err != nil:
	case payer != c.grant:
		c.keep(e)
	case c.keeper.Wanted() > 0:
		c.keeper.Repay()
	}
}

// keep takes over an entry that nobody leases any more, or gives it up.
func (c *Cache) keep(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drain()
	for e.list != nil { // else it was a victim
		short, calm := c.keeper.Short(e.payer, e.bytes)
		short = max(short, c.kept+e.bytes-c.limit)
		gone := []*entry{e}
		switch {
		case e.mapped || !calm || e.bytes > c.limit:
			if !c.drop(e) {
				return // it is leased again
			}
		case short <= 0:
			if c.settle(e) || !c.drop(e) {
				return
			}
		default:
			if gone = c.victims(short, e.part); len(gone) == 0 && !c.drop(e) {
				return
			} else if len(gone) == 0 {
				gone = []*entry{e}
			}
		}
		c.free(gone)
	}
}

// settle takes over the payment for an entry unless it is leased again, and tells
// whether all is well.
func (c *Cache) settle(e *entry) bool {
	e.shard.mu.Lock()
	defer e.shard.mu.Unlock()
	return e.leases.Load() > 0 || e.payer == c.grant || c.pay(e, c.grant)
}

// free gives up frames. The cache's lock is held, but not meanwhile: unmapping takes time.
func (c *Cache) free(gone []*entry) {
	c.mu.Unlock()
	for _, e := range gone {
		e.free()
	}
	c.mu.Lock()
}

// give gives up so many bytes: what is not leased, and if that is not enough, the
// payment for what is.
func (c *Cache) give(n int64) (freed int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drain()
	gone := c.victims(n, nil)
	for _, e := range gone {
		freed += e.bytes
	}
	if freed < n {
		freed += c.handOver(n - freed)
	}
	c.free(gone)
	return freed
}

// handOver lets those who lease kept entries pay for them.
func (c *Cache) handOver(n int64) (freed int64) {
	c.index.each(func(e *entry) bool {
		if e.payer == c.grant && c.payHolder(e) {
			freed += e.bytes
		}
		return freed < n
	})
	return freed
}

// payHolder lets one of those who lease an entry pay for it, if any can. The locks
// of the cache and of the entry's shard are held.
func (c *Cache) payHolder(e *entry) bool {
	for l := e.holder; l != nil; l = l.next {
		if l.grant != nil && c.pay(e, l.grant) {
			return true
		}
	}
	return false
}

// drop takes an entry out, unless it is leased.
func (c *Cache) drop(e *entry) bool {
	e.shard.mu.Lock()
	defer e.shard.mu.Unlock()
	if e.leased() {
		return false
	}
	e.shard.drop(e)
	if e.payer == c.grant {
		c.kept -= e.bytes
	}
	e.part.remove(e)
	return true
}

package feed

import (
	"cmp"
	"slices"
	"sync"
)

// Pass is what reading one epoch of a plan has taken so far, by the streams of one tenant. Sizes are bytes in memory.
type Pass struct {
	Tenant, Dataset string
	Epoch           int64
	Read            int64 // blocks that were needed, each counted once
	Fetched         int64 // blocks that were loaded from the store, as often as they were
	Least           int64 // what had to be: the least that a later epoch could fetch if all memory that streams leave were its own
}

// Passes are those read last, newest first, and the sums of all so far by tenant and dataset.
type Passes struct{ Last, Sums []Pass }

// passes counts what epochs read and fetch. The zero value is ready.
type passes struct {
	mu   sync.Mutex
	live map[passKey]*pass
	last []*pass // in the order in which they began
	sums map[whose]Pass
}

type (
	whose   struct{ tenant, dataset string }
	passKey struct {
		plan   planKey
		tenant string
		epoch  int64
	}
)

// pass is one on its way.
type pass struct {
	key  passKey
	room int64    // bytes that blocks could have when it began
	seen []uint64 // a bit for each block that was counted; nil: nobody is expected to read on
	Pass
}

// manyPasses is how many are remembered one by one.
const manyPasses = 256

// count notes that a block of a plan was needed, of so many bytes, and whether they were fetched.
func (c *passes) count(p *plan, epoch int64, tenant string, block int, bytes int64, fetched bool) {
	key := passKey{p.key, tenant, epoch}
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.live[key]
	if a == nil {
		a = c.begin(key, p)
	}
	if a.seen == nil {
		a.seen = make([]uint64, (p.walk.Blocks.Len()+63)/64)
	}
	if word, bit := &a.seen[block/64], uint64(1)<<(block%64); *word&bit == 0 {
		*word |= bit
		a.Read += bytes
	}
	if fetched {
		a.Fetched += bytes
	}
	a.Least = min(a.Fetched, max(0, a.Read-a.room))
}

// begin makes a pass, and forgets the oldest one if there are too many. The lock is held.
func (c *passes) begin(key passKey, p *plan) *pass {
	if c.live == nil {
		c.live, c.sums = map[passKey]*pass{}, map[whose]Pass{}
	}
	a := &pass{key: key, room: p.feed.cache.Capacity(), Pass: Pass{Tenant: key.tenant, Dataset: p.walk.Snapshot.Dataset, Epoch: key.epoch}}
	c.live[key] = a
	c.last = append(c.last, a)
	for _, o := range c.last { // an epoch begins while the one before ends, but nobody is two behind
		if o.key.plan == key.plan && o.Epoch < key.epoch-1 {
			o.seen = nil
		}
	}
	if len(c.last) > manyPasses {
		old := c.last[0]
		c.last = slices.Delete(c.last, 0, 1)
		delete(c.live, old.key)
		c.sums[old.whose()] = old.plus(c.sums[old.whose()])
	}
	return a
}

// end lets go of what is only needed while a plan has streams.
func (c *passes) end(plan planKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.last {
		if a.key.plan == plan {
			a.seen = nil
		}
	}
}

func (a *pass) whose() whose { return whose{a.Tenant, a.Dataset} }

// plus adds a pass to a sum.
func (a *pass) plus(sum Pass) Pass {
	return Pass{Tenant: a.Tenant, Dataset: a.Dataset, Read: sum.Read + a.Read, Fetched: sum.Fetched + a.Fetched, Least: sum.Least + a.Least}
}

// Passes tells what epochs have read and fetched.
func (f *Feed) Passes() (all Passes) {
	c := &f.passes
	c.mu.Lock()
	defer c.mu.Unlock()
	sums := map[whose]Pass{}
	for w, sum := range c.sums {
		sums[w] = sum
	}
	for _, a := range slices.Backward(c.last) {
		all.Last = append(all.Last, a.Pass)
		sums[a.whose()] = a.plus(sums[a.whose()])
	}
	for _, sum := range sums {
		all.Sums = append(all.Sums, sum)
	}
	slices.SortFunc(all.Sums, func(a, b Pass) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Dataset, b.Dataset))
	})
	return all
}

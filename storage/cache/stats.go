package cache

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/headrace/headrace/storage/budget"
)

// The tiers: frames in memory, and what lies below.
const (
	Memory = "memory"
	Disk   = "disk"
)

// Stats are the numbers of a cache at one moment.
type Stats struct {
	Policy string // as set
	Active string // in use
	Limit  int64  // bytes that are kept at most
	Kept   int64  // bytes that the cache pays for
	Blocks int    // resident
	Leased int    // of those, that somebody leases
	// Waiting is how many wait for a block that another loads.
	Waiting int
	Tenants []Held
	Counts  []Count
}

// Held is what the blocks of one tenant take: those that it loaded.
type Held struct {
	Tenant string
	Share  float64 // of what is kept, below which no other tenant pushes it; 0: none of its own
	Bytes  int64   // in use or kept
	Kept   int64   // of those, bytes that the cache pays for
	Blocks int
	Leased int // of those, that somebody leases
}

// Count is how often blocks were asked for, of one tenant under one policy.
type Count struct {
	Tenant, Policy string
	Hits           map[string]int64 // by tier
	Misses         int64
	Loaded         int64 // bytes that were loaded for misses
}

// counts are all counts so far. The zero value is ready.
type counts struct {
	mu    sync.RWMutex
	tally map[who]*tally
}

type who struct{ tenant, policy string }

type tally struct{ memory, disk, misses, loaded atomic.Int64 }

// load counts a block of so many bytes that memory did not have as it was asked for.
func (t *tally) load(tier string, bytes int64) {
	switch tier {
	case Memory:
		t.memory.Add(1)
	case Disk:
		t.disk.Add(1)
	default:
		t.misses.Add(1)
		t.loaded.Add(bytes)
	}
}

func (c *counts) of(tenant, policy string) *tally {
	key := who{tenant, policy}
	c.mu.RLock()
	t := c.tally[key]
	c.mu.RUnlock()
	if t != nil {
		return t
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if t = c.tally[key]; t == nil {
		if c.tally == nil {
			c.tally = map[who]*tally{}
		}
		t = &tally{}
		c.tally[key] = t
	}
	return t
}

// Stats returns the numbers of this moment.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	s := Stats{Policy: c.policy, Active: c.active(), Limit: c.limit, Kept: c.kept}
	held := map[string]*Held{}
	for tenant, p := range c.tenant {
		held[tenant] = &Held{Tenant: tenant, Share: p.share}
	}
	c.each(func(e *entry) bool {
		h := held[e.tenant]
		if h == nil {
			h = &Held{Tenant: e.tenant}
			held[e.tenant] = h
		}
		s.Waiting += h.count(e, c.grant)
		return true
	})
	c.mu.Unlock()
	for _, h := range held {
		s.Blocks += h.Blocks
		s.Leased += h.Leased
		s.Tenants = append(s.Tenants, *h)
	}
	slices.SortFunc(s.Tenants, func(a, b Held) int { return cmp.Compare(a.Tenant, b.Tenant) })
	s.Counts = c.counts.list(c.options.Below != nil)
	return s
}

// count adds an entry, and returns how many wait for it to be loaded. Its shard is locked.
func (h *Held) count(e *entry, cache *budget.Grant) (waiting int) {
	n := e.leases.Load()
	h.Blocks++
	if n > 0 {
		h.Leased++
	}
	switch {
	case !e.loaded():
		return int(max(n-1, 0))
	case e.payer == cache:
		h.Kept += e.bytes
	}
	h.Bytes += e.bytes
	return 0
}

func (c *counts) list(below bool) (all []Count) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for w, t := range c.tally {
		n := Count{
			Tenant: w.tenant, Policy: w.policy, Misses: t.misses.Load(), Loaded: t.loaded.Load(),
			Hits: map[string]int64{Memory: t.memory.Load()},
		}
		if below {
			n.Hits[Disk] = t.disk.Load()
		}
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b Count) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Policy, b.Policy))
	})
	return all
}

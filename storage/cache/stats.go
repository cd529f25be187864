package cache

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
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
	Counts  []Count
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
	c.each(func(e *entry) bool {
		s.Blocks++
		if n := e.leases.Load(); n > 0 {
			s.Leased++
			if !e.loaded() {
				s.Waiting += int(n) - 1
			}
		}
		return true
	})
	c.mu.Unlock()
	s.Counts = c.counts.list(c.options.Below != nil)
	return s
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

package cache

import (
	"cmp"
	"slices"

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

// counts are all counts so far.
type counts map[who]*tally

type who struct{ tenant, policy string }

type tally struct{ memory, disk, misses, loaded int64 }

// load counts a block of so many bytes that memory did not have as it was asked for.
func (t *tally) load(tier string, bytes int64) {
	switch tier {
	case Memory:
		t.memory++
	case Disk:
		t.disk++
	default:
		t.misses++
		t.loaded += bytes
	}
}

func (c counts) of(tenant, policy string) *tally {
	key := who{tenant, policy}
	t := c[key]
	if t == nil {
		t = &tally{}
		c[key] = t
	}
	return t
}

// Stats returns the numbers of this moment.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	c.drain()
	s := Stats{Policy: c.policy, Active: c.active, Limit: c.limit, Kept: c.kept}
	held := map[string]*Held{}
	for tenant, p := range c.tenant {
		held[tenant] = &Held{Tenant: tenant, Share: p.share}
	}
	c.index.each(func(e *entry) bool {
		h := held[e.tenant]
		if h == nil {
			h = &Held{Tenant: e.tenant}
			held[e.tenant] = h
		}
		s.Waiting += h.count(e, c.grant)
		return true
	})
	s.Counts = c.counts.list(c.options.Below != nil)
	c.mu.Unlock()
	for _, h := range held {
		s.Blocks += h.Blocks
		s.Leased += h.Leased
		s.Tenants = append(s.Tenants, *h)
	}
	slices.SortFunc(s.Tenants, func(a, b Held) int { return cmp.Compare(a.Tenant, b.Tenant) })
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

func (c counts) list(below bool) (all []Count) {
	for w, t := range c {
		n := Count{
			Tenant: w.tenant, Policy: w.policy, Misses: t.misses, Loaded: t.loaded,
			Hits: map[string]int64{Memory: t.memory},
		}
		if below {
			n.Hits[Disk] = t.disk
		}
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b Count) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Policy, b.Policy))
	})
	return all
}

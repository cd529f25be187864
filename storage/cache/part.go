package cache

// The names of the policies.
const (
	Auto     = "auto"
	LRU      = "lru"
	LFU      = "lfu"
	Adaptive = "adaptive"
	Pinned   = "pinned"
)

// Policies lists the names of all policies.
var Policies = []string{Auto, LRU, LFU, Adaptive, Pinned}

// policies makes them by name. Auto chooses among them.
var policies = map[string]func() Policy{
	LRU:      func() Policy { return &lru{} },
	LFU:      func() Policy { return &lfu{} },
	Adaptive: func() Policy { return newAdaptive() },
	Pinned:   func() Policy { return newPinned() },
}

// part is what one tenant with a share, or all that have none, keep. It is
// guarded by the cache's lock.
type part struct {
	share  float64 // of what all parts have, that no other pushes it below
	policy Policy
	bytes  int64 // that the policy has, in use or kept
}

// use lets the policy know of a use.
func (p *part) use(e *entry) {
	if e.list == nil {
		p.bytes += e.bytes
	}
	p.policy.Use(&e.item)
}

func (p *part) remove(e *entry) {
	p.bytes -= e.bytes
	p.policy.Remove(&e.item)
}

// leastShare is that of tenants without one when the others have all.
const leastShare = 1e-6

// fullest returns the parts by how much they have of their shares, most first.
// When all memory is in use, the first one has at least its share.
func (c *Cache) fullest() []*part {
	c.order = c.order[:0]
	for _, p := range c.parts {
		at := len(c.order)
		c.order = append(c.order, p)
		for ; at > 0 && c.order[at-1].fill() < p.fill(); at-- {
			c.order[at-1], c.order[at] = c.order[at], c.order[at-1]
		}
	}
	return c.order
}

func (p *part) fill() float64 { return float64(p.bytes) / p.share }

// victims takes entries out, those that have to go first, until they are so many bytes: for a part that wants to keep
// more, or, if that is nil, for streams.
func (c *Cache) victims(n int64, whose *part) (gone []*entry) {
	for freed := int64(0); freed < n; {
		e := c.victim(whose)
		if e == nil {
			break
		}
		freed += e.bytes
		gone = append(gone, e)
	}
	return gone
}

// victim takes out the entry that has to go first, nil if all are leased. To keep what one part has read, others give
// only what they have beyond their shares.
func (c *Cache) victim(whose *part) *entry {
	var all int64
	for _, p := range c.parts {
		all += p.bytes
	}
	for _, p := range c.fullest() {
		if whose != nil && p != whose && float64(p.bytes) <= p.share*float64(all) {
			continue
		}
		for i := p.policy.Victim(); i != nil; i = p.policy.Victim() {
			if c.drop(i.entry) {
				return i.entry
			}
		}
	}
	return nil
}

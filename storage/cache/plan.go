package cache

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
)

// Plan stands for the streams that read one plan with one set of columns.
type Plan struct {
	name    string
	once    bool // each block is read once an epoch, for several epochs as far as is known
	streams atomic.Int32
}

// Name tells the plan and its columns from others.
func (p *Plan) Name() string { return p.name }

// Live tells whether a stream of the plan is open.
func (p *Plan) Live() bool { return p.streams.Load() > 0 }

// manyPlans is how many are remembered without streams: a job may come back for its next epoch.
const manyPlans = 1024

// Open counts a stream of a plan with a name. Once tells that the plan reads each
// block once an epoch, for more than one epoch as far as is known: for such plans
// alone, Auto pins. Close must follow.
func (c *Cache) Open(name string, once bool) *Plan {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.plans[name]
	if p == nil {
		p = &Plan{name: name, once: once}
		c.plans[name] = p
	}
	p.streams.Add(1)
	c.follow()
	return p
}

// ClosePlan ends a stream of a plan.
func (c *Cache) ClosePlan(p *Plan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.streams.Add(-1)
	c.follow()
	if len(c.plans) > manyPlans {
		for name, p := range c.plans {
			if !p.Live() {
				delete(c.plans, name)
			}
		}
	}
}

// SetPolicy changes the policy. What is resident stays.
func (c *Cache) SetPolicy(name string) error {
	if _, known := policies[name]; !known && name != Auto {
		return fmt.Errorf("cache: no policy %q: there are %v", name, Policies)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.policy = name
	c.follow()
	return nil
}

// follow makes the policy that which was asked for, or with Auto that which suits
// the live plans: pinned if each of them reads its blocks once an epoch. While no
// plan is live it stays what it was. The cache's lock is held.
func (c *Cache) follow() {
	want, live := c.policy, 0
	if want == Auto {
		want = Pinned
		for _, p := range c.plans {
			if p.Live() {
				live++
				if !p.once {
					want = Adaptive
				}
			}
		}
		if live == 0 {
			want = Adaptive
			if c.parts[0].policy != nil {
				want = c.active
			}
		}
	}
	c.activate(want)
}

// activate changes the policy in use. The cache's lock is held.
func (c *Cache) activate(policy string) {
	if c.parts[0].policy != nil && c.active == policy {
		return
	}
	c.drain()
	var all []*entry
	c.index.each(func(e *entry) bool {
		if e.list != nil {
			all = append(all, e)
		}
		return true
	})
	slices.SortFunc(all, func(a, b *entry) int { return cmp.Compare(a.used, b.used) })
	for _, e := range all {
		e.part.policy.Remove(&e.item)
	}
	for _, p := range c.parts {
		p.policy = policies[policy]()
	}
	for _, e := range all {
		e.part.policy.Use(&e.item)
	}
	c.active = policy
}

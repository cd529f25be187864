package bucket

import (
	"sync"
	"time"
)

// Clock adds up for how long bytes of objects were waited for. Reads that overlap
// count once.
type Clock struct {
	mu      sync.Mutex
	waiting int
	since   time.Time // that somebody waits
	total   time.Duration
}

// Total returns the time waited until now.
func (c *Clock) Total() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting > 0 {
		return c.total + time.Since(c.since)
	}
	return c.total
}

func (c *Clock) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting++; c.waiting == 1 {
		c.since = time.Now()
	}
}

func (c *Clock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting--; c.waiting == 0 {
		c.total += time.Since(c.since)
	}
}

// Clocked returns o as an object whose reads are added up by c. It is the same
// object, closed once.
func (o *Object) Clocked(c *Clock) *Object {
	clocked := *o
	clocked.clock = c
	return &clocked
}

package cache

import "math"

// climber finds the share of the window by climbing along the slope of the hit
// ratio. A little more window would have kept the newcomers that went last: those
// of them that are asked for again tell what it is worth. A little less of what
// is beyond would have cost hits there: as many as there are for that part of it.
// When one is clearly more than the other, the window takes a step that way.
type climber struct {
	window float64 // its share of all bytes
	uses   int     // since the last step
	missed float64 // of them, of newcomers that went lately
	served float64 // hits beyond the window, each over the number of items there
	gone   ghosts
}

const (
	leastWindow = 0.01
	mostWindow  = 0.8
	windowStep  = 0.1
	leastSample = 256 // uses before a step; more if there are more items
	ghostShare  = 8   // of so many items one newcomer that went is remembered
	oldest      = 0.6 // what is oldest beyond the window is worth of the average there
	deviations  = 3   // that the two have to differ by
)

func newClimber() climber { return climber{window: leastWindow} }

// hit counts a use of one of so many items beyond the window.
func (c *climber) hit(items int) { c.served += 1 / float64(items) }

// miss counts a use of what is not there.
func (c *climber) miss(hash uint64) {
	if c.gone.take(hash) {
		c.missed++
	}
}

// left remembers a newcomer that had to go.
func (c *climber) left(hash uint64, items int) { c.gone.put(hash, remembered(items)) }

func remembered(items int) int { return max(items/ghostShare, 1) }

// step counts a use, and tells whether the window has changed.
func (c *climber) step(items int) bool {
	if c.uses++; c.uses < max(leastSample, items) {
		return false
	}
	more, less := c.missed, oldest*c.served*float64(remembered(items))
	gap, before := deviations*math.Sqrt(more+less), c.window
	switch {
	case more-less > gap:
		c.window = min(c.window+windowStep, mostWindow)
	case less-more > gap:
		c.window = max(c.window-windowStep, leastWindow)
	}
	c.uses, c.missed, c.served = 0, 0, 0
	return c.window != before
}

// ghosts are the hashes of the last few items that went.
type ghosts struct {
	ring []uint64
	next int
	at   map[uint64]int // in the ring
}

// put remembers a hash, and forgets the oldest when there are more than most.
func (g *ghosts) put(hash uint64, most int) {
	if g.next == len(g.ring) {
		if len(g.ring) != most {
			g.ring, g.at = make([]uint64, most), make(map[uint64]int, most)
		}
		g.next = 0
	}
	if at, known := g.at[g.ring[g.next]]; known && at == g.next {
		delete(g.at, g.ring[g.next])
	}
	g.ring[g.next], g.at[hash] = hash, g.next
	g.next++
}

// take forgets a hash, and tells whether it was known.
func (g *ghosts) take(hash uint64) bool {
	_, known := g.at[hash]
	delete(g.at, hash)
	return known
}

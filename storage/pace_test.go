package storage

import (
	"container/heap"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// link is a store that answers after a while, and sends so many bytes a second over all its answers.
type link struct {
	latency time.Duration
	rate    float64
	free    time.Duration // when it has sent all that was asked for so far
	flying  ends
}

type ends []time.Duration

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i] < e[j] }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(time.Duration)) }
func (e *ends) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// follow reads for some time with as many blocks on their way as the pace says, and returns the bytes that came in the
// second half, and how many were on their way at last.
func (l *link) follow(p *pace, block int64, most int, span time.Duration) (bytes int64, depth int) {
	start := time.Unix(1e9, 0)
	for now := time.Duration(0); now < span; {
		for depth = p.blocks(most); len(l.flying) < depth; {
			p.ask(start.Add(now))
			l.free = max(l.free, now+l.latency) + time.Duration(float64(block)/l.rate*1e9)
			heap.Push(&l.flying, l.free)
		}
		now = heap.Pop(&l.flying).(time.Duration)
		p.answered(l.latency)
		p.came(start.Add(now), block)
		p.decoded()
		if now > span/2 {
			bytes += block
		}
		if now >= span {
			for ; len(l.flying) > 0; heap.Pop(&l.flying) {
				p.came(start.Add(now), 0)
			}
		}
	}
	return bytes, depth
}

// However far away a store is and however fast, and however large blocks are: what it can send is asked for, and not
// much more.
func TestPaceFollowsLittlesLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &link{
			latency: time.Duration(rapid.IntRange(1, 200).Draw(t, "latency")) * time.Millisecond,
			rate:    math.Exp(rapid.Float64Range(math.Log(1e7), math.Log(2e9)).Draw(t, "rate")),
		}
		block := rapid.Int64Range(1<<20, 4<<20).Draw(t, "block")
		const most, span = 1 << 20, 12 * time.Second
		bytes, depth := l.follow(&pace{}, block, most, span)
		if got := float64(bytes) / (span / 2).Seconds(); got < .95*l.rate {
			t.Errorf("%.0f bytes a second of %.0f, with %d blocks on their way", got, l.rate, depth)
		}
		if enough := l.rate * l.latency.Seconds() / float64(block); float64(depth) > max(leastFlying, 2.2*enough+3) {
			t.Errorf("%d blocks on their way, where %.1f are enough", depth, enough)
		}
	})
}

// No more are on their way than requests may be, and before anything is known a few.
func TestPaceHasBounds(t *testing.T) {
	p := &pace{}
	if n := p.blocks(64); n != leastFlying {
		t.Errorf("%d before anything came", n)
	}
	l := &link{latency: time.Second, rate: 2e9}
	if _, depth := l.follow(p, 1<<20, 64, 20*time.Second); depth != 64 {
		t.Errorf("%d, and 64 requests may be in flight", depth)
	}
	if _, depth := l.follow(&pace{}, 1<<20, 2, 20*time.Second); depth != leastFlying {
		t.Errorf("%d, where two requests may be in flight", depth)
	}
}

// What nobody asked for is no sign of a slow store, and what was measured long ago is forgotten.
func TestPaceForgets(t *testing.T) {
	fast, slow := &link{latency: 100 * time.Millisecond, rate: 1e9}, &link{latency: 10 * time.Millisecond, rate: 1e7}
	p := &pace{}
	_, before := fast.follow(p, 1<<20, 4096, 6*time.Second)
	start := time.Unix(2e9, 0)
	for i := range 100 { // one block a second, by somebody who needs no more
		p.ask(start.Add(time.Duration(i) * time.Second))
		p.came(start.Add(time.Duration(i)*time.Second+10*time.Millisecond), 1<<20)
		p.decoded()
	}
	if after := p.blocks(4096); after != before {
		t.Errorf("%d blocks after a rest, %d before", after, before)
	}
	if _, depth := slow.follow(p, 1<<20, 4096, 20*time.Second); depth != leastFlying {
		t.Errorf("%d blocks from a slow store", depth)
	}
}

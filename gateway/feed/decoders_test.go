package feed

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// clocked is a pool whose time, and what it uses of the processors, the test tells.
type clocked struct {
	*pool
	at   time.Time
	cpus time.Duration
}

func newClocked(d Decoders) *clocked {
	c := &clocked{pool: newPool(d), at: time.Unix(1e9, 0)}
	c.now, c.used = func() time.Time { return c.at }, func() (time.Duration, bool) { return c.cpus, true }
	return c
}

// pass lets time pass in which so much of the processors is in use, and has the pool look.
func (c *clocked) pass(load float64) int {
	c.at = c.at.Add(adaptEvery)
	c.cpus += time.Duration(load * float64(adaptEvery) * float64(runtime.GOMAXPROCS(0)))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.adapt()
	return c.size
}

// queue has a block of a plan wait, and returns what to end that with, which tells whether it was served.
func (c *clocked) queue(t fataler, p *plan) (end func() *turn) {
	ctx, cancel := context.WithCancel(context.Background())
	before, got := c.stats("t").Waiting, make(chan *turn, 1)
	go func() {
		turn, err := c.enter(ctx, p, "t")
		if err != nil && !errors.Is(err, context.Canceled) {
			panic(err)
		}
		got <- turn
	}()
	eventually(t, "a block that waits", func() bool { return c.stats("t").Waiting == before+1 })
	return func() *turn {
		cancel()
		return <-got
	}
}

func enter(t fataler, c *clocked, p *plan) *turn {
	turn, err := c.enter(context.Background(), p, "t")
	must(t, err)
	return turn
}

// The pool grows while many wait and processors are idle, shrinks while little is used, and keeps its bounds.
func TestDecodersComeAndGo(t *testing.T) {
	c := newClocked(Decoders{Min: 2, Max: 4, GrowAt: 3, ShrinkBelow: .3})
	p := &plan{}
	for range 2 {
		enter(t, c, p)
	}
	var ends []func() *turn
	for range 6 {
		ends = append(ends, c.queue(t, p))
	}
	for _, step := range []struct {
		load float64
		want int
	}{{.95, 2}, {.5, 3}, {.1, 4}, {.1, 4}} {
		if got := c.pass(step.load); got != step.want {
			t.Fatalf("%d decoders, not %d, with a load of %.2f: %+v", got, step.want, step.load, c.stats("t"))
		}
	}
	for _, end := range ends {
		end()
	}
	if s := c.stats("t"); s.Waiting != 0 || s.Busy != 4 {
		t.Fatalf("%+v", s)
	}
	for _, step := range []struct {
		load float64
		want int
	}{{.5, 4}, {.2, 3}, {.2, 2}, {.2, 2}} {
		if got := c.pass(step.load); got != step.want {
			t.Fatalf("%d decoders, not %d, with a load of %.2f", got, step.want, step.load)
		}
	}
	c.at = c.at.Add(adaptEvery / 2)
	if c.pass(.5); c.stats("t").Busy != 4 { // those that are at work stay
		t.Fatalf("%+v", c.stats("t"))
	}
}

// By default there are as many as processors, and bounds that contradict each other are no bounds.
func TestDecodersByDefault(t *testing.T) {
	d := newPool(Decoders{}).Decoders
	if n := runtime.GOMAXPROCS(0); d.Min != n || d.Max != 4*n || d.GrowAt != 128 || d.ShrinkBelow != .3 {
		t.Errorf("%+v with %d processors", d, n)
	}
	if d := newPool(Decoders{Min: 1000}).Decoders; d.Max != 1000 {
		t.Errorf("%+v", d)
	}
}

// A plan of which one block waits is served after one of another plan's, however many of those wait.
func TestPlansTakeTurns(t *testing.T) {
	c := newClocked(Decoders{Min: 1, Max: 1})
	many, few := &plan{}, &plan{}
	first := enter(t, c, many)
	var ends []func() *turn
	for range 5 {
		ends = append(ends, c.queue(t, many))
	}
	one := c.queue(t, few)
	first.leave()
	next := ends[0]()
	if next == nil {
		t.Fatal("it was not the one who came first")
	}
	next.leave()
	turn := one()
	if turn == nil {
		t.Fatal("five of one plan, and the other one was not next")
	}
	turn.leave()
	for _, end := range ends[1:] {
		if turn := end(); turn != nil {
			turn.leave()
		}
	}
	if s := c.stats("t"); s.Busy != 0 || s.Waiting != 0 || len(c.lines) != 0 {
		t.Errorf("left: %+v", s)
	}
}

// Who waits for a store has no decoder, however many of its reads do; then it goes on at once.
func TestWaitingForAStoreFreesTheDecoder(t *testing.T) {
	c := newClocked(Decoders{Min: 1, Max: 1})
	first := enter(t, c, &plan{})
	one := first.wait()
	two := first.wait()
	second := enter(t, c, &plan{}) // it need not wait
	one()
	if s := c.stats("t"); s.Busy != 1 {
		t.Errorf("%+v while one of two reads still waits", s)
	}
	two()
	if s := c.stats("t"); s.Busy != 2 {
		t.Errorf("%+v when the bytes are there", s)
	}
	end := c.queue(t, &plan{})
	second.leave()
	if s := c.stats("t"); s.Busy != 1 || s.Waiting != 1 {
		t.Errorf("%+v", s)
	}
	first.leave()
	end().leave()
	if s := c.stats("t"); s.Busy != 0 || s.Waiting != 0 {
		t.Errorf("left: %+v", s)
	}
}

// Whatever blocks do, no more are begun than there are decoders, nobody waits while one is free, and nothing is left.
func TestDecodersAreCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newClocked(Decoders{Min: rapid.IntRange(1, 3).Draw(t, "size"), Max: 3})
		plans := []*plan{{}, {}, {}}
		var turns []*turn
		var backs []func()
		var ends []func() *turn
		served := func() {
			for i := 0; i < len(ends); i++ {
				if c.stats("t").Waiting >= len(ends) {
					return
				}
				if turn := ends[i](); turn != nil {
					turns = append(turns, turn)
				}
				ends = append(ends[:i], ends[i+1:]...)
				i--
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"enter": func(t *rapid.T) {
				p := rapid.SampledFrom(plans).Draw(t, "plan")
				if s := c.stats("t"); s.Busy < s.Decoders {
					turns = append(turns, enter(t, c, p))
				} else if len(ends) < 5 {
					ends = append(ends, c.queue(t, p))
				}
			},
			"leave": func(t *rapid.T) {
				if len(turns) > 0 && len(backs) == 0 {
					turns[0].leave()
					turns = turns[1:]
				}
			},
			"wait": func(t *rapid.T) {
				if len(turns) > 0 {
					backs = append(backs, rapid.SampledFrom(turns).Draw(t, "turn").wait())
				}
			},
			"back": func(t *rapid.T) {
				if len(backs) > 0 {
					backs[0]()
					backs = backs[1:]
				}
			},
			"give up": func(t *rapid.T) { served() },
			"": func(t *rapid.T) {
				if s := c.stats("t"); s.Waiting > 0 && s.Busy < s.Decoders {
					t.Fatalf("%+v", s)
				}
			},
		})
		for _, back := range backs {
			back()
		}
		for len(turns)+len(ends) > 0 {
			for _, turn := range turns {
				turn.leave()
			}
			turns = nil
			for _, end := range ends {
				if turn := end(); turn != nil {
					turns = append(turns, turn)
				}
			}
			ends = nil
		}
		if s := c.stats("t"); s.Busy != 0 || s.Waiting != 0 || len(c.lines) != 0 {
			t.Fatalf("left: %+v", s)
		}
	})
}

// A tenant is told of its own blocks only; whoever runs the gateway of all.
func TestATenantSeesItsOwnBlocks(t *testing.T) {
	c := newClocked(Decoders{Min: 1, Max: 1})
	turn := enter(t, c, &plan{})
	end := c.queue(t, &plan{})
	if s := c.stats("other"); s != (Decoding{Decoders: 1}) {
		t.Errorf("another tenant is told %+v", s)
	}
	for _, tenant := range []string{"t", ""} {
		if s := c.stats(tenant); s != (Decoding{Decoders: 1, Busy: 1, Waiting: 1}) {
			t.Errorf("tenant %q is told %+v", tenant, s)
		}
	}
	turn.leave()
	end().leave()
}

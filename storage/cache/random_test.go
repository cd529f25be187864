package cache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

// sound checks the books of a cache that nobody calls at the moment, and that what tenants are told adds up.
func (w *world) sound() error {
	defer w.still()()
	s, told := w.cache.Stats(), Held{}
	for _, h := range s.Tenants {
		told.Kept, told.Bytes, told.Blocks, told.Leased = told.Kept+h.Kept, told.Bytes+h.Bytes, told.Blocks+h.Blocks, told.Leased+h.Leased
	}
	err := w.books()
	if told.Kept != s.Kept || told.Blocks != s.Blocks || told.Leased != s.Leased || told.Bytes != w.pool.Stats().Live {
		err = errors.Join(err, fmt.Errorf("tenants are told of %+v, %d bytes live: %+v", told, w.pool.Stats().Live, s))
	}
	return err
}

// still ends the repaying of what those who could not wait wanted back, which goes on beside all callers, and waits for
// what it is giving up. It begins again with the function that is returned.
func (w *world) still() (again func()) {
	c := w.cache
	close(c.done)
	c.work.Wait()
	return func() {
		c.done = make(chan struct{})
		c.work.Go(c.repay)
	}
}

func (w *world) books() error {
	c := w.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drain()
	kept, parts, err := int64(0), map[*part]int64{}, error(nil)
	c.index.each(func(e *entry) bool {
		switch {
		case !e.loaded() || e.err != nil:
			err = errors.Join(err, fmt.Errorf("an entry that was not loaded: %v", e.err))
		case e.list == nil:
			err = errors.Join(err, errors.New("the policy does not know an entry"))
		case !e.leased() && e.payer != c.grant:
			err = errors.Join(err, errors.New("somebody else pays for what nobody leases"))
		}
		if e.payer == c.grant {
			kept += e.bytes
		}
		parts[e.part] += e.bytes
		return true
	})
	if kept != c.kept || kept > c.limit {
		err = errors.Join(err, fmt.Errorf("%d bytes are kept, by the books %d, limit %d", kept, c.kept, c.limit))
	}
	for _, p := range c.parts {
		if p.bytes != parts[p] {
			err = errors.Join(err, fmt.Errorf("%d bytes of a tenant's, by the books %d", parts[p], p.bytes))
		}
	}
	return errors.Join(err, w.counted())
}

// counted checks that all memory is accounted for.
func (w *world) counted() error {
	s, live := w.ledger.Stats(), w.pool.Stats().Live
	if s.Reserved > s.Limit || s.Used[budget.Frames] != live {
		return fmt.Errorf("%d bytes live: %+v", live, s)
	}
	return nil
}

var someColumns = []*Columns{onlyA, columns("b"), columns("a", "b"), columns("b", "a", "c"), columns("a", "b", "c", "d", "e")}

// TestOneCaller does at random all that one caller can: whatever it is, what is
// leased holds what it should, and the books are right.
func TestOneCaller(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		t.Run("", func(t *testing.T) {
			w := newWorld(t, 24, Options{Limit: int64(rapid.IntRange(1, 24).Draw(rt, "limit")) * page, Shares: map[string]float64{"x": .5}})
			var leases []*Lease
			var grants []*budget.Grant
			var holder *budget.Grant // of the leases
			plans := []*Plan{w.cache.Open("p", true), w.cache.Open("q", false)}
			rt.Repeat(map[string]func(*rapid.T){
				"get": func(rt *rapid.T) {
					if holder == nil {
						var err error
						if holder, err = w.ledger.Try(page * rapid.Int64Range(1, 6).Draw(rt, "window")); err != nil {
							return
						}
					}
					k, c := block(rapid.IntRange(0, 14).Draw(rt, "block")), rapid.SampledFrom(someColumns).Draw(rt, "columns")
					r := w.request(k, c, holder)
					r.Tenant, r.Plan = rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "tenant"), rapid.SampledFrom(plans).Draw(rt, "plan")
					l, err := w.cache.Get(context.Background(), r)
					if err == nil {
						leases = append(leases, l)
						err = check(l, k, c)
					}
					if err != nil && !errors.Is(err, budget.ErrExhausted) {
						rt.Fatal(err)
					}
				},
				"release": func(rt *rapid.T) {
					for _, l := range leases {
						l.Release()
						l.Release() // does nothing
					}
					leases = nil
					if holder != nil {
						holder.Close()
						holder = nil
					}
				},
				"admit": func(rt *rapid.T) {
					n := page * rapid.Int64Range(1, 8).Draw(rt, "need")
					before := w.ledger.Stats()
					g, err := w.ledger.Try(n)
					if fits := before.Reserved-before.Lent+n <= before.Limit; fits && err != nil && len(leases) == 0 {
						rt.Fatalf("%v though only the cache was in the way: %+v", err, before)
					}
					if err == nil {
						grants = append(grants, g)
					}
				},
				"close": func(*rapid.T) {
					if len(grants) > 0 {
						grants[0].Close()
						grants = grants[1:]
					}
				},
				"policy": func(rt *rapid.T) {
					if err := w.cache.SetPolicy(rapid.SampledFrom(Policies).Draw(rt, "policy")); err != nil {
						rt.Fatal(err)
					}
				},
				"": func(rt *rapid.T) {
					if err := w.sound(); err != nil {
						rt.Fatal(err)
					}
				},
			})
			for _, l := range leases {
				l.Release()
			}
			for _, g := range append(grants, holder) {
				if g != nil {
					g.Close()
				}
			}
		})
	})
}

// TestManyCallers: streams with windows, with loads that fail and waits that are
// cancelled, beside others that need all memory. Nothing is lost, nothing is ever
// over the limit, and every block holds what it should.
func TestManyCallers(t *testing.T) {
	for _, policy := range Policies {
		t.Run(policy, func(t *testing.T) {
			w := newWorld(t, 64, Options{Policy: policy, Shares: map[string]float64{"t0": .3, "t1": .3}})
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			done := make(chan struct{})
			var watch, callers sync.WaitGroup
			watch.Go(func() { w.watch(done) })
			for n := range 16 {
				callers.Go(func() { w.call(ctx, n) })
			}
			callers.Wait()
			close(done)
			watch.Wait()
			if ctx.Err() != nil {
				t.Fatal("some waited for ever")
			}
			if err := w.sound(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// watch checks that the limit holds at all times.
func (w *world) watch(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		default:
		}
		if s := w.ledger.Stats(); s.Reserved > s.Limit || w.pool.Stats().Live > s.Limit {
			w.Errorf("over the limit: %+v", s)
			return
		}
		w.cache.Stats()
		time.Sleep(100 * time.Microsecond)
	}
}

// call is one stream: windows of a few blocks, now and then of all memory.
func (w *world) call(ctx context.Context, seed int) {
	r := rand.New(rand.NewPCG(uint64(seed), 5))
	plan := w.cache.Open(fmt.Sprint("plan ", seed%4), seed%3 > 0)
	defer w.cache.ClosePlan(plan)
	for range 40 {
		need := int64(1 + r.IntN(6))
		if r.IntN(20) == 0 {
			need = 64
		}
		g, err := w.ledger.Admit(ctx, need*page)
		if err != nil {
			return // the caller reports it
		}
		var leases []*Lease
		for range r.IntN(8) {
			if l := w.try(ctx, r, g, seed, plan); l != nil {
				leases = append(leases, l)
			}
		}
		for _, l := range leases {
			l.Release()
		}
		g.Close()
	}
}

// try asks for a block; some loads fail, and some callers do not wait.
func (w *world) try(ctx context.Context, r *rand.Rand, g *budget.Grant, seed int, plan *Plan) *Lease {
	k, c := block(r.IntN(40)), someColumns[r.IntN(len(someColumns))]
	q := w.request(k, c, g)
	q.Tenant, q.Plan = fmt.Sprint("t", seed%3), plan
	if load := q.Load; r.IntN(10) == 0 {
		q.Load = func(ctx context.Context) ([]*frame.Lease, error) {
			time.Sleep(time.Microsecond)
			if frames, err := load(ctx); err == nil {
				frames[0].Release()
			}
			return nil, context.Canceled
		}
	}
	if r.IntN(10) == 0 {
		short, cancel := context.WithTimeout(ctx, time.Microsecond)
		defer cancel()
		ctx = short
	}
	l, err := w.cache.Get(ctx, q)
	if err == nil {
		err = check(l, k, c)
	}
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, budget.ErrExhausted) {
		w.Error(err)
	}
	return l
}

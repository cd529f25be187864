package cache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

func TestWhatFitsIsLoadedOnce(t *testing.T) {
	for _, policy := range Policies {
		w := newWorld(t, 40, Options{Policy: policy})
		if n := w.pass(upTo(30)...); n != 30 {
			t.Fatalf("%s: %d loads in the first pass", policy, n)
		}
		if n := w.pass(upTo(30)...); n != 0 {
			t.Fatalf("%s: %d loads in the second", policy, n)
		}
		if s := w.cache.Stats(); s.Kept != 30*page || s.Blocks != 30 || s.Leased != 0 {
			t.Fatalf("%+v", s)
		}
	}
}

// TestPinnedHasWhatFits: of each further pass, all but what does not fit.
func TestPinnedHasWhatFits(t *testing.T) {
	w := newWorld(t, 21, Options{Policy: Pinned}) // a page is for the one that is read
	w.pass(upTo(40)...)
	for range 3 {
		if n := w.pass(upTo(40)...); n != 20 {
			t.Fatalf("%d loads, 20 blocks of 40 fit", n)
		}
	}
}

func TestLRUHasNothingOfALoop(t *testing.T) {
	w := newWorld(t, 21, Options{Policy: LRU})
	w.pass(upTo(40)...)
	if n := w.pass(upTo(40)...); n != 40 {
		t.Fatalf("%d loads", n)
	}
}

// TestSingleFlight: however many want a block, it is loaded once.
func TestSingleFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 100, Options{})
		g := w.admit(50)
		var wait sync.WaitGroup
		for range 50 {
			wait.Go(func() {
				r := w.request(block(0), onlyA, g)
				load := r.Load
				r.Load = func(ctx context.Context) ([]*frame.Lease, error) {
					time.Sleep(time.Second)
					return load(ctx)
				}
				l, err := w.cache.Get(context.Background(), r)
				if err != nil {
					t.Error(err)
					return
				}
				defer l.Release()
				if err := check(l, block(0), onlyA); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
		g.Close()
		if n := w.loads.Load(); n != 1 {
			t.Fatalf("%d loads", n)
		}
		if c := w.cache.Stats().Counts; len(c) != 1 || c[0].Misses != 1 || c[0].Hits[Memory] != 49 {
			t.Fatalf("%+v", c)
		}
	})
}

// TestWhoWaitsIsNotHarmedByWhoGivesUp: only the loader's own error is the loader's alone.
func TestWhoWaitsIsNotHarmedByWhoGivesUp(t *testing.T) {
	corrupt := errors.New("corrupt")
	for _, c := range []struct {
		err   error
		again bool
	}{{context.Canceled, true}, {budget.ErrExhausted, true}, {corrupt, false}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 10, Options{})
			g := w.admit(2)
			defer g.Close()
			first := w.request(block(0), onlyA, g)
			first.Load = func(context.Context) ([]*frame.Lease, error) {
				time.Sleep(time.Second)
				return nil, c.err
			}
			failed := make(chan error)
			go func() {
				_, err := w.cache.Get(context.Background(), first)
				failed <- err
			}()
			synctest.Wait()
			l, err := w.cache.Get(context.Background(), w.request(block(0), onlyA, g))
			if first := <-failed; !errors.Is(first, c.err) {
				t.Fatal(first)
			}
			if !c.again {
				if !errors.Is(err, corrupt) {
					t.Fatal(err)
				}
				l = w.get(w.request(block(0), onlyA, g)) // the next one tries anew
			} else if err != nil {
				t.Fatal(err)
			}
			l.Release()
		})
	}
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 10, Options{})
		g := w.admit(2)
		defer g.Close()
		r := w.request(block(0), onlyA, g)
		load := r.Load
		r.Load = func(ctx context.Context) ([]*frame.Lease, error) {
			time.Sleep(time.Hour)
			return load(ctx)
		}
		var wait sync.WaitGroup
		wait.Go(func() { w.get(r).Release() })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := w.cache.Get(ctx, w.request(block(0), onlyA, g)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		wait.Wait()
	})
}

// TestPanicWhileLoading reaches its caller, and nobody waits for ever.
func TestPanicWhileLoading(t *testing.T) {
	w := newWorld(t, 10, Options{})
	g := w.admit(1)
	defer g.Close()
	r := w.request(block(0), onlyA, g)
	r.Load = func(context.Context) ([]*frame.Lease, error) { panic("no such thing") }
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is gone")
			}
		}()
		_, _ = w.cache.Get(context.Background(), r)
	}()
	w.get(w.request(block(0), onlyA, g)).Release()
}

// TestMoreColumnsServeFewer, in any order, without a load; fewer do not serve more.
func TestMoreColumnsServeFewer(t *testing.T) {
	w := newWorld(t, 40, Options{})
	g := w.admit(20)
	defer g.Close()
	all := columns("a", "b", "c", "d")
	w.get(w.request(block(0), all, g)).Release()
	for _, c := range []*Columns{columns("c", "a"), columns("b"), columns("d", "c", "b", "a"), all} {
		l := w.get(w.request(block(0), c, g))
		if w.loads.Load() != 1 {
			t.Fatalf("%v was loaded", c.names)
		}
		l.Release()
	}
	w.get(w.request(block(0), columns("a", "e"), g)).Release()
	if w.loads.Load() != 2 {
		t.Fatal("a column that is not there was served")
	}
}

// TestMoreColumnsOnTheirWayServeFewer: who wants fewer waits for the load of more, and has none of its own.
func TestMoreColumnsOnTheirWayServeFewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 40, Options{})
		g := w.admit(20)
		defer g.Close()
		r := w.request(block(0), columns("a", "b", "c"), g)
		load := r.Load
		r.Load = func(ctx context.Context) ([]*frame.Lease, error) {
			time.Sleep(time.Second)
			return load(ctx)
		}
		var wait sync.WaitGroup
		wait.Go(func() { w.get(r).Release() })
		synctest.Wait()
		for _, c := range []*Columns{columns("b"), columns("c", "a")} {
			wait.Go(func() { w.get(w.request(block(0), c, g)).Release() })
		}
		wait.Go(func() { w.get(w.request(block(0), columns("a", "d"), g)).Release() }) // which it does not have
		wait.Wait()
		if n := w.loads.Load(); n != 2 {
			t.Errorf("%d loads", n)
		}
	})
}

// TestOneColumnOfManyIsCopied when the whole is more than the holder can pay for:
// then the rest stays the cache's to give up.
func TestOneColumnOfManyIsCopied(t *testing.T) {
	w := newWorld(t, 40, Options{})
	g := w.admit(8)
	w.get(w.request(block(0), columns("a", "b", "c", "d", "e", "f", "g", "h"), g)).Release()
	g.Close()

	small, rest := w.admit(1), w.admit(31)
	l := w.get(w.request(block(0), onlyA, small))
	if l.Payer() != small || l.Frames()[0].Bytes() != page {
		t.Fatalf("%d bytes", l.Frames()[0].Bytes())
	}
	if w.loads.Load() != 1 {
		t.Fatal("it was loaded")
	}
	rest.Close()
	big := w.admit(39) // all but the copy
	l.Release()
	big.Close()
	small.Close()
}

// TestMemoryThatIsNeededIsGivenUpAtOnce: by what only fits without the cache, a bit at a time.
func TestMemoryThatIsNeededIsGivenUpAtOnce(t *testing.T) {
	w := newWorld(t, 32, Options{Policy: LRU})
	w.pass(upTo(31)...)
	kept := func() int64 { return w.cache.Stats().Kept / page }
	if kept() != 31 {
		t.Fatalf("%d blocks are kept", kept())
	}
	g := w.admit(4) // waits in line
	if kept() != 28 {
		t.Fatalf("%d blocks are kept beside 4 pages", kept())
	}
	try, err := w.ledger.Try(2 * page)
	if err != nil || kept() != 26 {
		t.Fatal(kept(), err)
	}
	if err := g.Charge(budget.Scratch, 6*page); err != nil || kept() != 24 { // grows
		t.Fatal(kept(), err)
	}
	loan, _ := w.ledger.Loan()
	if err := loan.Charge(budget.Scratch, page); err != nil || kept() != 23 {
		t.Fatal(kept(), err)
	}
	loan.Credit(budget.Scratch, page)
	loan.Close()
	g.Credit(budget.Scratch, 6*page)
	g.Close()
	try.Close()
	if n := w.pass(upTo(31)[31-23:]...); n != 0 {
		t.Fatalf("%d of the last used were given up", n)
	}
}

// TestWhoLeasesTakesOverThePayment when what is kept is wanted back.
func TestWhoLeasesTakesOverThePayment(t *testing.T) {
	w := newWorld(t, 16, Options{})
	w.pass(upTo(8)...)
	window := w.admit(4)
	var leases []*Lease
	for n := range 4 {
		leases = append(leases, w.get(w.request(block(n), onlyA, window)))
	}
	if w.loads.Load() != 8 || leases[0].Payer() == window {
		t.Fatal("hits are not what they were")
	}
	rest := w.admit(12) // all but the window
	if leases[0].Payer() != window || window.Free() != 0 {
		t.Fatalf("the window has %d bytes free", window.Free())
	}
	rest.Close()
	for _, l := range leases {
		l.Release()
	}
	window.Close()
	if n := w.pass(upTo(4)...); n != 0 {
		t.Fatalf("%d of the leased ones were given up", n)
	}
}

// TestWhatIsStillBeingSentIsPaidForByWhoSends when the block has to go.
func TestWhatIsStillBeingSentIsPaidForByWhoSends(t *testing.T) {
	w := newWorld(t, 8, Options{})
	window, stream := w.admit(1), w.admit(1)
	l := w.get(w.request(block(0), onlyA, window))
	sent := l.Frames()[0].ShareFor(stream)
	l.Release()
	window.Close()
	rest := w.admit(7)
	if s := w.cache.Stats(); s.Kept != 0 || stream.Free() != 0 {
		t.Fatalf("%+v, %d bytes free", s, stream.Free())
	}
	sent.Release()
	stream.Close()
	rest.Close()
}

// TestNothingIsKeptWhileOthersWait
func TestNothingIsKeptWhileOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 8, Options{})
		window := w.admit(4)
		l := w.get(w.request(block(0), onlyA, window))
		got := make(chan *budget.Grant)
		go func() { got <- w.admit(7) }()
		synctest.Wait()
		l.Release()
		window.Close()
		(<-got).Close()
		if n := w.cache.Stats().Blocks; n != 0 {
			t.Fatalf("%d blocks", n)
		}
	})
}

// TestShares: no tenant is pushed below its share by a neighbour, and who has none
// uses what nobody needs.
func TestShares(t *testing.T) {
	w := newWorld(t, 101, Options{Policy: LRU, Shares: map[string]float64{"a": .5, "b": .25}})
	read := func(tenant string, from, to int) {
		for n := from; n < to; n++ {
			g := w.admit(1)
			r := w.request(block(n), onlyA, g)
			r.Tenant = tenant
			w.get(r).Release()
			g.Close()
		}
	}
	has := func(tenant string) int64 {
		w.cache.mu.Lock()
		defer w.cache.mu.Unlock()
		if p := w.cache.tenant[tenant]; p != nil {
			return p.bytes / page
		}
		return w.cache.shared.bytes / page
	}
	read("c", 0, 200)
	if has("c") != 100 {
		t.Fatalf("c has %d", has("c"))
	}
	read("a", 1000, 1040)
	if has("a") != 40 || has("c") != 60 {
		t.Fatalf("a has %d, c %d", has("a"), has("c"))
	}
	read("b", 2000, 2100)
	if has("a") != 40 {
		t.Fatalf("a has %d, its share is 50: b and c pushed it down", has("a"))
	}
	read("a", 3000, 3200)
	read("c", 4000, 4200)
	read("b", 5000, 5200)
	for tenant, share := range map[string]int64{"a": 50, "b": 25, "c": 25} {
		if n := has(tenant); n < share-1 || n > share+1 {
			t.Errorf("%s has %d of its %d", tenant, n, share)
		}
	}
}

func TestSharesThatCannotBe(t *testing.T) {
	for _, shares := range []map[string]float64{{"a": 0}, {"a": -1}, {"a": 1.5}, {"a": .6, "b": .5}} {
		if _, err := New(Options{Ledger: budget.New(budget.Options{Limit: 1}), Shares: shares}); err == nil {
			t.Errorf("%v was taken", shares)
		}
	}
	if _, err := New(Options{Ledger: budget.New(budget.Options{Limit: 1}), Policy: "mru"}); err == nil {
		t.Error("a policy that is not was taken")
	}
}

// TestPolicyChangesWhileItRuns keeps what is resident, whichever it was.
func TestPolicyChangesWhileItRuns(t *testing.T) {
	w := newWorld(t, 21, Options{Policy: Pinned})
	w.pass(upTo(20)...)
	for _, policy := range []string{LRU, LFU, Adaptive, Pinned, LRU} {
		if err := w.cache.SetPolicy(policy); err != nil {
			t.Fatal(err)
		}
		if s := w.cache.Stats(); s.Active != policy || s.Blocks != 20 {
			t.Fatalf("%+v", s)
		}
		if n := w.pass(upTo(20)...); n != 0 {
			t.Fatalf("%s: %d loads", policy, n)
		}
	}
	w.pass(20, 21) // by LRU the two that were used first go
	if n := w.pass(slices.Concat(upTo(22)[2:], []int{0})...); n != 1 {
		t.Fatalf("%d loads", n)
	}
	if err := w.cache.SetPolicy("mru"); err == nil {
		t.Fatal("a policy that is not was taken")
	}
}

// TestAutoFollowsTheLivePlans: pinned while all read each block once an epoch.
func TestAutoFollowsTheLivePlans(t *testing.T) {
	w := newWorld(t, 10, Options{})
	active := func(want string) {
		t.Helper()
		if s := w.cache.Stats(); s.Active != want || s.Policy != Auto {
			t.Fatalf("%s, not %s", s.Active, want)
		}
	}
	active(Adaptive)
	job := w.cache.Open("job", true)
	active(Pinned)
	other := w.cache.Open("other job", true)
	active(Pinned)
	unknown := w.cache.Open("somebody", false)
	active(Adaptive)
	w.cache.ClosePlan(other)
	w.cache.ClosePlan(unknown)
	active(Pinned)
	w.cache.ClosePlan(job)
	active(Pinned)
	if again := w.cache.Open("job", true); again != job {
		t.Fatal("the job is another one in its next epoch")
	} else {
		w.cache.ClosePlan(again)
	}
	for n := range 2 * manyPlans {
		w.cache.ClosePlan(w.cache.Open(fmt.Sprint(n), true))
	}
	if n := len(w.cache.plans); n > manyPlans+1 {
		t.Fatalf("%d plans are remembered", n)
	}
}

// TestTwoJobsOneAfterTheOther: what the first one left makes room for the second.
func TestTwoJobsOneAfterTheOther(t *testing.T) {
	w := newWorld(t, 21, Options{})
	for job := range 3 {
		plan := w.cache.Open(fmt.Sprint("job ", job), true)
		for epoch := range 3 {
			before := w.loads.Load()
			for n := range 20 {
				g := w.admit(1)
				r := w.request(block(100*job+n), onlyA, g)
				r.Plan = plan
				w.get(r).Release()
				g.Close()
			}
			if n := w.loads.Load() - before; epoch > 0 && n > 0 {
				t.Fatalf("job %d, epoch %d: %d loads", job, epoch, n)
			}
		}
		w.cache.ClosePlan(plan)
	}
}

func TestCloseTellsOfLeases(t *testing.T) {
	ledger, pool := budget.New(budget.Options{Limit: 10 * page}), frame.NewPool(frame.Options{})
	c, err := New(Options{Ledger: ledger, Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{TB: t, ledger: ledger, pool: pool, cache: c}
	g := w.admit(1)
	l := w.get(w.request(block(0), onlyA, g))
	if err := c.Close(); err == nil {
		t.Fatal("closed with a lease, without a word")
	}
	l.Release()
	g.Close()
	if s := ledger.Stats(); s.Reserved != 0 {
		t.Fatalf("%+v", s)
	}
}

// TestWhatIsHeldStays: who is about to ask for memory does not take it from what it needs as well.
func TestWhatIsHeldStays(t *testing.T) {
	w := newWorld(t, 6, Options{Policy: LRU})
	w.pass(upTo(4)...)
	if l := w.cache.Hold(block(9), onlyA); l != nil {
		t.Fatal("a block that is not there is held")
	}
	held := w.cache.Hold(block(0), onlyA) // the first to go
	g := w.admit(5)                       // with one page left over
	if w.cache.Missing(block(0), onlyA) || !w.cache.Missing(block(3), onlyA) {
		t.Error("what is held has gone, or what is not has stayed")
	}
	l := w.get(w.request(block(0), onlyA, g))
	held.Release()
	held.Release() // does nothing
	freed := w.cache.give(page)
	if freed != page || l.Payer() != g {
		t.Errorf("%d bytes came back of a block whose holder can pay for it", freed)
	}
	l.Release()
	g.Close()
	if s := w.cache.Stats(); s.Leased != 0 || len(s.Counts) != 1 || s.Counts[0].Hits[Memory] != 1 {
		t.Errorf("%+v", s)
	}
}

package budget

import (
	"context"
	"errors"
	"math/rand"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func admit(t *testing.T, l *Ledger, need int64) *Grant {
	t.Helper()
	g, err := l.Admit(context.Background(), need)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// empty fails unless everything was given back.
func empty(t *testing.T, l *Ledger) {
	t.Helper()
	if s := l.Stats(); s.Reserved != 0 || len(s.Used) != 0 || s.Waiting != 0 || s.Grants != 0 {
		t.Fatalf("not empty: %+v", s)
	}
}

func TestTooLargeIsRefusedAtOnce(t *testing.T) {
	l := New(Options{Limit: 10})
	if _, err := l.Admit(context.Background(), 11); !errors.Is(err, ErrTooLarge) {
		t.Fatal(err)
	}
	if _, err := l.Admit(context.Background(), -1); err == nil {
		t.Fatal("a negative need was admitted")
	}
	g := admit(t, l, 10)
	if err := g.Charge(Frames, 11); !errors.Is(err, ErrTooLarge) || !errors.Is(err, ErrExhausted) {
		t.Fatal(err)
	}
	g.Close()
	empty(t, l)
}

func TestGrantGrowsOnlyIntoFreeMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Limit: 100})
		g := admit(t, l, 10)
		if err := g.Charge(Scratch, 60); err != nil {
			t.Fatal(err)
		}
		if s := l.Stats(); s.Reserved != 60 || s.Used[Scratch] != 60 {
			t.Fatalf("%+v", s)
		}
		if err := g.Charge(Frames, 41); !errors.Is(err, ErrExhausted) || errors.Is(err, ErrTooLarge) {
			t.Fatal(err)
		}
		done := make(chan *Grant)
		go func() { done <- admit(t, l, 90) }()
		synctest.Wait()
		if err := g.Charge(Scratch, 1); !errors.Is(err, ErrScratch) {
			t.Fatalf("a decoder grew past one who waits: %v", err)
		}
		if err := g.Charge(Frames, 1); err != nil { // there is no large slot for frames
			t.Fatal(err)
		}
		g.Credit(Frames, 1)
		g.Credit(Scratch, 60) // the growth returns, the admitted part stays
		other := <-done
		if s := l.Stats(); s.Reserved != 100 {
			t.Fatalf("%+v", s)
		}
		g.Close()
		other.Close()
		empty(t, l)
	})
}

func TestChargesOutliveTheGrant(t *testing.T) {
	l := New(Options{Limit: 100})
	g := admit(t, l, 50)
	if err := g.Charge(Frames, 20); err != nil {
		t.Fatal(err)
	}
	g.Close()
	g.Close()
	if s := l.Stats(); s.Reserved != 20 || s.Grants != 0 {
		t.Fatalf("%+v", s)
	}
	if err := g.Charge(Frames, 1); !errors.Is(err, ErrExhausted) {
		t.Fatal(err)
	}
	g.Credit(Frames, 20)
	empty(t, l)
}

func TestCreditOfMoreThanWasChargedPanics(t *testing.T) {
	l := New(Options{Limit: 100})
	g := admit(t, l, 50)
	if err := g.Charge(Frames, 5); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		k Kind
		n int64
	}{{Frames, 6}, {Scratch, 1}, {Frames, -1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("credit of %d %s went through", c.n, c.k)
				}
			}()
			g.Credit(c.k, c.n)
		}()
	}
}

func TestWaitersEndByDeadlineAndByCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Limit: 10})
		g := admit(t, l, 10)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := l.Admit(ctx, 1); !errors.Is(err, ErrTimeout) {
			t.Fatal(err)
		}
		ctx, cancel = context.WithCancel(context.Background())
		cancel()
		if _, err := l.Admit(ctx, 1); !errors.Is(err, context.Canceled) || errors.Is(err, ErrTimeout) {
			t.Fatal(err)
		}
		g.Close()
		empty(t, l)
	})
}

// A small need behind a large one waits its turn, and is served when the large one gives up.
func TestTheLineMovesOnWhenItsHeadLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Limit: 10})
		g := admit(t, l, 6)
		ctx, cancel := context.WithCancel(context.Background())
		large := make(chan error)
		go func() { _, err := l.Admit(ctx, 8); large <- err }()
		synctest.Wait()
		small := make(chan *Grant, 1)
		go func() { small <- admit(t, l, 2) }()
		synctest.Wait()
		if s := l.Stats(); s.Waiting != 2 || s.Reserved != 6 {
			t.Fatalf("%+v", s)
		}
		cancel()
		if err := <-large; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		(<-small).Close()
		g.Close()
		empty(t, l)
	})
}

func TestManyAtOnce(t *testing.T) {
	l := New(Options{Limit: 100})
	var all sync.WaitGroup
	for seed := range int64(8) {
		all.Go(func() {
			r := rand.New(rand.NewSource(seed))
			for range 300 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.Intn(3))*time.Millisecond)
				if g, err := l.Admit(ctx, r.Int63n(100)); err == nil {
					n := r.Int63n(100)
					charged := g.Charge(Batches, n) == nil
					if s := l.Stats(); s.Reserved > s.Limit {
						t.Errorf("over the limit: %+v", s)
					}
					g.Close()
					if charged {
						g.Credit(Batches, n)
					}
				}
				cancel()
			}
		})
	}
	all.Wait()
	empty(t, l)
}

func TestTheHeapIsToldInCoarseSteps(t *testing.T) {
	var told []int64
	l := New(Options{Limit: 100 << 20, Heap: func(n int64) { told = append(told, n>>20) }})
	g := admit(t, l, 0)
	for range 40 {
		if err := g.ChargeHeap(Scratch, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Charge(Scratch, 20<<20); err != nil { // not on the heap
		t.Fatal(err)
	}
	if s := l.Stats(); s.Heap != 40<<20 || s.Used[Scratch] != 60<<20 {
		t.Fatalf("%+v", s)
	}
	for range 40 {
		g.CreditHeap(Scratch, 1<<20)
	}
	g.Credit(Scratch, 20<<20)
	g.Close()
	empty(t, l)
	if want := []int64{8, 16, 24, 32, 40, 24, 8}; !slices.Equal(told, want) {
		t.Fatalf("told %v MiB, want %v", told, want)
	}
}

func TestPeakRemembersWhatWasRefused(t *testing.T) {
	l := New(Options{Limit: 100})
	g := admit(t, l, 10)
	for _, n := range []int64{30, 20, 60} {
		if err := g.Charge(Scratch, n); (err == nil) != (n < 60) {
			t.Fatal(err)
		}
	}
	if err := g.Charge(Frames, 40); err != nil {
		t.Fatal(err)
	}
	g.Credit(Scratch, 30)
	if peak := g.Peak(); peak != 110 {
		t.Fatal(peak)
	}
	if peak := g.Peak(); peak != 20 {
		t.Fatal(peak)
	}
	g.Credit(Scratch, 20)
	g.Credit(Frames, 40)
	g.Close()
	empty(t, l)
}

func TestWaitingCountsFromTheFirstWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Limit: 10, Large: 2})
		g := admit(t, l, 8)
		began := time.Now()
		got := make(chan *Grant)
		go func() { got <- admit(t, l, 1) }()
		time.Sleep(time.Second)
		go func() { got <- admit(t, l, 1) }()
		time.Sleep(time.Second)
		if since := l.Waiting(); !since.Equal(began) {
			t.Fatal(since.Sub(began))
		}
		g.Close()
		a, b := <-got, <-got
		if since := l.Waiting(); !since.IsZero() {
			t.Fatal(since)
		}
		a.Close()
		b.Close()
		empty(t, l)
	})
}

// What moves from kind to kind is neither freed nor taken, even from a grant that is closed.
func TestMoveKeepsWhatIsHeld(t *testing.T) {
	l := New(Options{Limit: 100})
	g, err := l.Admit(context.Background(), 100)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Charge(Mapped, 70); err != nil {
		t.Fatal(err)
	}
	g.Close()
	g.Move(Mapped, Copies, 30)
	if s := l.Stats(); s.Reserved != 70 || s.Used[Mapped] != 40 || s.Used[Copies] != 30 {
		t.Errorf("%+v", s)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("more was moved than there is")
			}
		}()
		g.Move(Mapped, Copies, 41)
	}()
	g.Credit(Mapped, 40)
	g.Credit(Copies, 30)
	if s := l.Stats(); s.Reserved != 0 || len(s.Used) != 0 {
		t.Errorf("%+v", s)
	}
}

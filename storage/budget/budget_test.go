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

	"pgregory.net/rapid"
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

func TestGrantGrowsOnlyIntoFreeMemoryThatNobodyAwaits(t *testing.T) {
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
		if err := g.Charge(Frames, 1); !errors.Is(err, ErrExhausted) {
			t.Fatalf("grew past one who waits: %v", err)
		}
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

// model is what the ledger should be, in the plainest form.
type model struct {
	limit int64
	held  []*share
	line  []*share
}

type share struct {
	need   int64
	used   int64
	closed bool
	grant  *Grant
	got    chan *Grant
	cancel context.CancelFunc
}

func (s *share) hold() int64 {
	if s.closed {
		return s.used
	}
	return max(s.need, s.used)
}

func (m *model) reserved() (sum int64) {
	for _, s := range m.held {
		sum += s.hold()
	}
	return sum
}

// serve moves the line and checks that exactly the same callers got through.
func (m *model) serve(t *rapid.T) {
	synctest.Wait()
	for len(m.line) > 0 && m.line[0].need <= m.limit-m.reserved() {
		s := m.line[0]
		m.line = m.line[1:]
		select {
		case s.grant = <-s.got:
		default:
			t.Fatalf("need %d should have been served", s.need)
		}
		m.held = append(m.held, s)
	}
	for _, s := range m.line {
		select {
		case <-s.got:
			t.Fatalf("need %d was served out of turn", s.need)
		default:
		}
	}
}

func (m *model) check(t *rapid.T, l *Ledger) {
	var used int64
	open := 0
	for _, s := range m.held {
		used += s.used
		if !s.closed {
			open++
		}
	}
	got := l.Stats()
	var sum int64
	for _, n := range got.Used {
		sum += n
	}
	if got.Reserved != m.reserved() || sum != used || got.Waiting != len(m.line) || got.Grants != open || got.Reserved > m.limit {
		t.Fatalf("ledger %+v, model: reserved %d, used %d, waiting %d, open %d", got, m.reserved(), used, len(m.line), open)
	}
}

func (m *model) arrive(l *Ledger, need int64) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &share{need: need, got: make(chan *Grant, 1), cancel: cancel}
	m.line = append(m.line, s)
	go func() {
		if g, err := l.Admit(ctx, need); err == nil {
			s.got <- g
		}
	}()
}

func (m *model) charge(t *rapid.T, s *share, n int64) {
	growth := s.used + n - s.hold()
	want := !s.closed && (growth <= 0 || len(m.line) == 0 && growth <= m.limit-m.reserved())
	if err := s.grant.Charge(Frames, n); (err == nil) != want {
		t.Fatalf("charge of %d: %v, want success %v", n, err, want)
	}
	if want {
		s.used += n
	}
}

func TestLedgerAgreesWithItsModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The wrapper hides Deadline, which may not be asked for in a bubble of fake time.
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			const limit = 40
			l := New(Options{Limit: limit})
			m := &model{limit: limit}
			pick := func(t *rapid.T) *share {
				if len(m.held) == 0 {
					t.Skip("nobody holds anything")
				}
				return rapid.SampledFrom(m.held).Draw(t, "holder")
			}
			t.Repeat(map[string]func(*rapid.T){
				"admit":  func(t *rapid.T) { m.arrive(l, rapid.Int64Range(0, limit).Draw(t, "need")) },
				"charge": func(t *rapid.T) { m.charge(t, pick(t), rapid.Int64Range(0, 20).Draw(t, "n")) },
				"credit": func(t *rapid.T) {
					s := pick(t)
					n := rapid.Int64Range(0, s.used).Draw(t, "n")
					s.grant.Credit(Frames, n)
					s.used -= n
				},
				"close": func(t *rapid.T) { s := pick(t); s.grant.Close(); s.closed = true },
				"leave": func(t *rapid.T) {
					if len(m.line) == 0 {
						t.Skip("nobody waits")
					}
					i := rapid.IntRange(0, len(m.line)-1).Draw(t, "who")
					m.line[i].cancel()
					m.line = slices.Delete(m.line, i, i+1)
				},
				"": func(t *rapid.T) { m.serve(t); m.check(t, l) },
			})
			m.drain(t, l)
		})
	})
}

// drain lets everybody finish: nobody may be left waiting, nothing left reserved.
func (m *model) drain(t *rapid.T, l *Ledger) {
	for len(m.held) > 0 || len(m.line) > 0 {
		if len(m.held) == 0 {
			t.Fatal("deadlock: some wait, nobody holds")
		}
		s := m.held[0]
		m.held = m.held[1:]
		s.grant.Credit(Frames, s.used)
		s.grant.Close()
		s.cancel()
		m.serve(t)
	}
	if s := l.Stats(); s.Reserved != 0 || s.Grants != 0 || len(s.Used) != 0 {
		t.Fatalf("left over: %+v", s)
	}
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

package budget

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// world is many streams that live off one ledger, in fake time: what a gateway
// does, without the data.
type world struct {
	t       *rapid.T
	ledger  *Ledger
	mu      sync.Mutex
	arrived []*stream
}

type stream struct {
	*world
	rand     *rand.Rand
	windows  int
	window   int64 // bytes, as all below
	batch    int64
	scratch  int64
	life     time.Duration // then it is cancelled; 0: never
	patience time.Duration // in line; 0: without end
	start    time.Duration
	admitted time.Time
	err      error
}

// nap sleeps for some time up to d, or until ctx ends.
func (s *stream) nap(ctx context.Context, d time.Duration) error {
	s.look()
	select {
	case <-time.After(time.Duration(s.rand.Int64N(int64(d))) + 1):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run reads window after window: one part of what it was admitted with pays for
// those, the other one for batches.
func (s *stream) run(ctx context.Context) (err error) {
	line := ctx
	if s.patience > 0 {
		var cancel context.CancelFunc
		line, cancel = context.WithTimeout(ctx, s.patience)
		defer cancel()
	}
	own, err := s.admit(line)
	if err != nil {
		return err
	}
	s.admitted = time.Now()
	defer own.Close()
	pays := own.Split(s.window + s.scratch)
	defer pays.Close()
	for range s.windows {
		if err := s.read(ctx, own, pays); err != nil {
			return err
		}
	}
	return nil
}

// admit reserves what the stream needs, which some know only when their turn has come.
func (s *stream) admit(ctx context.Context) (*Grant, error) {
	need := 2*s.batch + s.scratch + s.window
	if s.rand.IntN(2) == 0 {
		return s.ledger.Admit(ctx, need)
	}
	place, err := s.ledger.Queue(ctx, need)
	if err != nil {
		return nil, err
	}
	defer place.Leave()
	if s.rand.IntN(2) == 0 {
		if g, err := place.Try(need); err == nil {
			return g, nil
		}
	}
	if s.rand.IntN(4) == 0 { // it has changed its mind
		g, err := place.Admit(ctx, s.rand.Int64N(need))
		if err != nil {
			return nil, err
		}
		g.Close()
	}
	return place.Admit(ctx, need)
}

// read reads one window, with memory that is free if there is some.
func (s *stream) read(ctx context.Context, own, pays *Grant) error {
	n := 1 + s.rand.Int64N(s.window)
	if s.rand.IntN(2) == 0 {
		if free, err := s.ledger.Try(n); err == nil {
			pays = free
			defer free.Close()
		}
	}
	if err := pays.Charge(Frames, n); err != nil {
		s.t.Errorf("a window of %d bytes does not fit its share of %d: %v", n, s.window, err)
		return err
	}
	err := s.decode(ctx, pays)
	for range s.rand.IntN(3) {
		if err == nil {
			err = s.send(ctx, own)
		}
	}
	// A slice is still on its way when the window goes.
	if slice := min(n, s.rand.Int64N(s.batch+1)); pays.Pass(Frames, slice, own) {
		n -= slice
		defer own.Credit(Frames, slice)
	} else {
		s.t.Errorf("a slice of %d bytes does not fit beside one batch of %d", slice, s.batch)
	}
	pays.Credit(Frames, n)
	if err == nil {
		err = s.send(ctx, own)
	}
	return err
}

// send makes a batch and sends it.
func (s *stream) send(ctx context.Context, g *Grant) error {
	n := s.rand.Int64N(s.batch + 1)
	if err := g.Charge(Batches, n); err != nil {
		s.t.Errorf("a batch of %d bytes does not fit: %v", n, err)
		return err
	}
	defer g.Credit(Batches, n)
	return s.nap(ctx, 10*time.Millisecond)
}

// decode takes scratch: on a loan if there is one to be had, else from the
// window's share. When it outgrows that it gives all back and takes the large slot.
func (s *stream) decode(ctx context.Context, g *Grant) error {
	n := s.rand.Int64N(s.scratch + 1)
	if s.rand.IntN(4) == 0 {
		n = s.rand.Int64N(s.ledger.large + 1)
	}
	loan, revoked := s.ledger.Loan()
	if s.rand.IntN(2) == 0 && loan.ChargeHeap(Scratch, n) == nil {
		err := s.nap(ctx, 5*time.Millisecond)
		select {
		case <-revoked:
		case <-time.After(s.scratchKept()):
		}
		loan.CreditHeap(Scratch, n)
		loan.Close()
		return err
	}
	loan.Close()
	if g.ChargeHeap(Scratch, n) != nil {
		var err error
		if g, _, err = s.ledger.Large(ctx); err != nil {
			return err
		}
		defer g.Close()
		if err := g.ChargeHeap(Scratch, n); err != nil {
			s.t.Errorf("scratch of %d bytes does not fit the large slot of %d: %v", n, s.ledger.large, err)
			return err
		}
	}
	err := s.nap(ctx, 5*time.Millisecond)
	g.CreditHeap(Scratch, n)
	return err
}

// scratchKept is how long a decoder stays open after its block.
func (s *stream) scratchKept() time.Duration {
	return time.Duration(s.rand.Int64N(int64(10 * time.Millisecond)))
}

// newStreams draws the streams of a world.
func newStreams(t *rapid.T, w *world) (all []*stream) {
	most := w.ledger.Most()
	for range rapid.IntRange(1, 24).Draw(t, "streams") {
		s := &stream{
			world: w, rand: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)),
			windows: rapid.IntRange(0, 6).Draw(t, "windows"), window: rapid.Int64Range(1, most/4).Draw(t, "window"),
			batch: rapid.Int64Range(0, most/8).Draw(t, "batch"), scratch: rapid.Int64Range(0, most/8).Draw(t, "scratch"),
			// No two arrive at the same time, for their order would be chance.
			start: time.Duration(rapid.IntRange(0, 50).Draw(t, "start"))*time.Millisecond + time.Duration(len(all))*time.Microsecond,
		}
		switch rapid.IntRange(0, 5).Draw(t, "fate") {
		case 0:
			s.life = time.Duration(rapid.IntRange(1, 80).Draw(t, "life")) * time.Millisecond
		case 1:
			s.patience = time.Duration(rapid.IntRange(1, 40).Draw(t, "patience")) * time.Millisecond
		}
		all = append(all, s)
	}
	return all
}

// TestStreamsShareOneLimit lets streams of all sizes read, borrow, fail, give up
// and be cancelled. Whatever they do: never over the limit, nobody waits for ever
// (the bubble would find out), everybody is served in order, and nothing is left.
func TestStreamsShareOneLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			limit := rapid.Int64Range(40, 400).Draw(t, "limit")
			w := &world{t: t, ledger: New(Options{Limit: limit, Large: limit / 4})}
			all := newStreams(t, w)
			var running sync.WaitGroup
			for _, s := range all {
				running.Go(func() { s.live() })
			}
			running.Wait()
			for _, s := range all {
				if s.err != nil && !errors.Is(s.err, ErrTimeout) && !errors.Is(s.err, context.Canceled) {
					t.Fatal(s.err)
				}
			}
			w.inOrder()
			if st := w.ledger.Stats(); st.Reserved != 0 || st.Grants != 0 || len(st.Used) != 0 || st.Waiting != 0 ||
				st.Heap != 0 || len(w.ledger.loans) != 0 || !w.ledger.Waiting().IsZero() {
				t.Fatalf("left over: %+v", st)
			}
		})
	})
}

// live runs a stream from its arrival on. Its arrival is noted in order.
func (s *stream) live() {
	time.Sleep(s.start)
	s.mu.Lock()
	s.arrived = append(s.arrived, s)
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if s.life > 0 {
		defer time.AfterFunc(s.life, cancel).Stop()
	}
	s.err = s.run(ctx)
}

// look checks the ledger's sums.
func (w *world) look() {
	st := w.ledger.Stats()
	var used int64
	for _, n := range st.Used {
		used += n
	}
	if st.Reserved > st.Limit || used > st.Reserved || st.Lent > st.Reserved {
		w.t.Errorf("over the limit: %+v", st)
	}
}

// inOrder checks that nobody was admitted before one who came earlier.
func (w *world) inOrder() {
	var last time.Time
	for _, s := range w.arrived {
		if s.admitted.IsZero() {
			continue
		}
		if s.admitted.Before(last) {
			w.t.Fatalf("admitted at %s, one who came later at %s", s.admitted, last)
		}
		last = s.admitted
	}
}

// A loan holds what its decoder is expected to need, also before it does.
func TestLoansHoldWhatIsExpected(t *testing.T) {
	l := New(Options{Limit: 100, Large: 20})
	loan, _ := l.Loan()
	other, _ := l.Loan()
	if !loan.Expect(60) || loan.Expect(101) || !loan.Expect(60) || other.Expect(41) {
		t.Fatalf("%+v", l.Stats())
	}
	charge := func(g *Grant, k Kind, n int64, ok bool) {
		t.Helper()
		if err := g.Charge(k, n); (err == nil) != ok {
			t.Errorf("%d bytes of %s: %v, with %+v", n, k, err, l.Stats())
		}
	}
	charge(loan, Input, 50, true)
	if s := l.Stats(); s.Lent != 60 {
		t.Errorf("%+v", s)
	}
	charge(loan, Ahead, 10, true) // comes on top
	charge(other, Input, 31, false)
	charge(other, Input, 30, true)
	charge(loan, Scratch, 11, false)
	charge(loan, Scratch, 10, true)
	loan.Credit(Input, 50)
	if s := l.Stats(); s.Lent != 100 || loan.Used() != 20 {
		t.Errorf("%+v", s)
	}
	loan.Expect(0)
	if s := l.Stats(); s.Lent != 50 || s.Reserved != 50 {
		t.Errorf("%+v", s)
	}
	if !loan.Plenty(0) || loan.Plenty(1) {
		t.Errorf("%+v", l.Stats())
	}
	if !loan.Expect(60) {
		t.Errorf("%+v", l.Stats())
	}
	loan.Close()
	loan.Credit(Ahead, 10)
	loan.Credit(Scratch, 10)
	other.Credit(Input, 30)
	other.Close()
	empty(t, l)
}

// What is only kept makes room for what is expected, and counts as spare; who waits in line takes a loan back with it.
func TestExpectedMemoryGoesBefore(t *testing.T) {
	l := New(Options{Limit: 100})
	var k *Keeper
	k = l.Keep(func(n int64) int64 {
		n = min(n, k.Grant().Used())
		k.Grant().Credit(Frames, n)
		return n
	})
	if err := k.Grant().Charge(Frames, 100); err != nil {
		t.Fatal(err)
	}
	loan, revoked := l.Loan()
	if !loan.Plenty(50) || !loan.Expect(40) || k.Grant().Used() != 60 {
		t.Fatalf("%+v", l.Stats())
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if g, err := l.Admit(t.Context(), 100); err == nil {
			g.Close()
		}
	}()
	for served := false; !served; {
		select {
		case <-k.Wake():
			k.Repay()
		case <-revoked:
			if loan.Expect(50) {
				t.Error("it grows though it is wanted back")
			}
			loan.Close()
			served = true
		}
	}
	for done := false; !done; {
		select {
		case <-k.Wake():
			k.Repay()
		case <-ended:
			done = true
		}
	}
	k.Close()
	empty(t, l)
}

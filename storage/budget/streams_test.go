package budget

import (
	"context"
	"errors"
	"fmt"
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
	windows map[string]*loaded // frames, by plan and window
	arrived []*stream
}

// loaded is the frames of one window, loaded once for all who lease them.
type loaded struct {
	grant  *Grant
	bytes  int64
	leases int
}

type stream struct {
	*world
	rand     *rand.Rand
	spans    []string // a plan of several spans has a window of each at a time
	first    int64
	last     int64 // window
	bytes    int64 // of a window
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

func (s *stream) run(ctx context.Context) (err error) {
	line := ctx
	if s.patience > 0 {
		var cancel context.CancelFunc
		line, cancel = context.WithTimeout(ctx, s.patience)
		defer cancel()
	}
	var windows []Window
	for _, span := range s.spans {
		windows = append(windows, Window{Plan: span, Number: s.first, Bytes: s.bytes})
	}
	g, err := s.ledger.Admit(line, s.batch+s.scratch, windows...)
	if err != nil {
		return err
	}
	s.admitted = time.Now()
	defer g.Close()
	if len(windows) == 0 {
		return s.work(ctx, g)
	}
	ahead := make([]*prefetch, len(windows))
	defer func() {
		for _, p := range ahead {
			p.stop()
		}
	}()
	for number := s.first; number <= s.last; number++ {
		for i, seat := range g.Seats() {
			if ahead[i], err = s.window(ctx, g, seat, ahead[i], s.spans[i], number); err != nil {
				return err
			}
		}
	}
	return nil
}

// window reads one window of a span: enter, load or lease, work, give back, move on.
func (s *stream) window(ctx context.Context, g *Grant, seat *Seat, had *prefetch, span string, number int64) (next *prefetch, err error) {
	s.behindSlower(seat)
	pays, err := seat.Enter(ctx)
	if err != nil {
		return had, err
	}
	w, err := s.lease(pays, span, number)
	had.stop()
	if err != nil {
		return nil, err
	}
	if number < s.last && s.rand.IntN(2) == 0 {
		next = s.prefetch(seat, span, number+1)
	}
	err = s.work(ctx, g)
	s.release(w, span, number)
	if err == nil && number < s.last {
		seat.Move(number + 1)
	}
	return next, err
}

// behindSlower checks what the whole order rests on: who waits for a window
// waits for somebody in an earlier one.
func (s *stream) behindSlower(seat *Seat) {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	if seat.charge != nil {
		return
	}
	for _, c := range seat.plan.charges {
		if c.seats > 0 && c.number < seat.want {
			return
		}
	}
	s.t.Errorf("the slowest waits for window %d: %+v", seat.want, seat.plan.charges)
}

// lease takes the frames of a window, or loads them.
func (s *stream) lease(pays *Grant, span string, number int64) (*loaded, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := fmt.Sprint(span, number)
	if w := s.windows[name]; w != nil {
		w.leases++
		if w.grant != pays { // a prefetch that was revoked: who wanted it back must not wait for us
			if err := w.grant.Pass(Frames, w.bytes, pays); err != nil {
				s.t.Errorf("frames of %d bytes that are there do not fit: %v", w.bytes, err)
			}
			w.grant = pays
		}
		return w, nil
	}
	n := 1 + s.rand.Int64N(s.bytes)
	if err := pays.Charge(Frames, n); err != nil {
		s.t.Errorf("a window of %d bytes does not fit its charge of %d: %v", n, s.bytes, err)
		return nil, err
	}
	w := &loaded{grant: pays, bytes: n, leases: 1}
	s.windows[name] = w
	return w, nil
}

func (s *stream) release(w *loaded, span string, number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.leases--; w.leases == 0 {
		delete(s.windows, fmt.Sprint(span, number))
		w.grant.Credit(Frames, w.bytes)
	}
}

// prefetch is a window that was loaded ahead of need.
type prefetch struct{ done, gone chan struct{} }

// prefetch loads the next window, if it may. When it is wanted back it is given
// back, also while the stream waits to enter it.
func (s *stream) prefetch(seat *Seat, span string, number int64) *prefetch {
	pays, revoked, ok := seat.Ahead(number)
	if !ok {
		return nil
	}
	w, err := s.lease(pays, span, number)
	if err != nil {
		return nil
	}
	p := &prefetch{make(chan struct{}), make(chan struct{})}
	whim := time.Duration(s.rand.Int64N(int64(50 * time.Millisecond)))
	go func() {
		defer close(p.gone)
		select {
		case <-revoked:
			time.Sleep(time.Millisecond)
		case <-time.After(whim):
		case <-p.done:
		}
		s.release(w, span, number)
		seat.Retract()
	}()
	return p
}

// stop ends it, when the window was entered or is not needed any more.
func (p *prefetch) stop() {
	if p != nil {
		close(p.done)
		<-p.gone
	}
}

// work decodes, makes batches and sends them.
func (s *stream) work(ctx context.Context, g *Grant) error {
	for range 1 + s.rand.IntN(3) {
		if err := s.decode(ctx, g); err != nil {
			return err
		}
		n := s.rand.Int64N(s.batch + 1)
		if err := g.Charge(Batches, n); err != nil {
			s.t.Errorf("a batch of %d bytes does not fit: %v", n, err)
			return err
		}
		err := s.nap(ctx, 10*time.Millisecond)
		g.Credit(Batches, n)
		if err != nil {
			return err
		}
	}
	return nil
}

// decode takes scratch: on a loan if there is one to be had, else from its own
// share. When it outgrows that it gives all back and takes the large slot.
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

// newStreams draws the streams of a world: jobs of one to four ranks that share
// a plan or two, and streams without windows.
func newStreams(t *rapid.T, w *world) (all []*stream) {
	most := w.ledger.Most()
	for job := range rapid.IntRange(1, 8).Draw(t, "jobs") {
		spans := rapid.IntRange(0, 2).Draw(t, "spans")
		bytes := rapid.Int64Range(1, most/4).Draw(t, "bytes")
		windows := rapid.Int64Range(1, 6).Draw(t, "windows")
		for rank := range rapid.IntRange(1, 4).Draw(t, "ranks") {
			s := &stream{
				world: w, bytes: bytes, last: windows, rand: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), uint64(rank))),
				batch: rapid.Int64Range(0, most/8).Draw(t, "batch"), scratch: rapid.Int64Range(0, most/8).Draw(t, "scratch"),
				first: rapid.Int64Range(0, windows).Draw(t, "first"),
				// No two arrive at the same time, for their order would be chance.
				start: time.Duration(rapid.IntRange(0, 50).Draw(t, "start"))*time.Millisecond + time.Duration(len(all))*time.Microsecond,
			}
			for span := range spans {
				s.spans = append(s.spans, fmt.Sprint("plan ", job, " span ", span, " window "))
			}
			switch rapid.IntRange(0, 5).Draw(t, "fate") {
			case 0:
				s.life = time.Duration(rapid.IntRange(1, 80).Draw(t, "life")) * time.Millisecond
			case 1:
				s.patience = time.Duration(rapid.IntRange(1, 40).Draw(t, "patience")) * time.Millisecond
			}
			all = append(all, s)
		}
	}
	return all
}

// TestStreamsShareOneLimit lets streams of all sizes share windows, run ahead,
// fail, give up and be cancelled. Whatever they do: never over the limit, nobody
// waits for ever (the bubble would find out), everybody is served in order, and
// nothing is left.
func TestStreamsShareOneLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			limit := rapid.Int64Range(40, 400).Draw(t, "limit")
			w := &world{t: t, windows: map[string]*loaded{}, ledger: New(Options{Limit: limit, Large: limit / 4})}
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
			if st := w.ledger.Stats(); st.Reserved != 0 || st.Grants != 0 || len(st.Used) != 0 || st.Windows != 0 || st.Waiting != 0 ||
				st.Heap != 0 || len(w.ledger.plans) != 0 || len(w.ledger.ahead) != 0 || !w.ledger.Waiting().IsZero() {
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
	if st.Reserved > st.Limit || used > st.Reserved || st.Revocable > st.Reserved {
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

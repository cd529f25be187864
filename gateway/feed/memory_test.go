package feed

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/storage/budget"
)

// windows is a request of many windows.
func windows(ranks int64) request {
	return request{
		dataset: "segments", plan: sampler.Plan{Shuffle: sampler.ShuffleWindow, WindowBlocks: 1, Seed: 4}, ranks: ranks, columns: []string{"id", "text"},
		cut: sampler.Cut{Batch: 40, End: 1, Tail: sampler.Keep},
	}
}

// tight is a rig with memory for a convoy of so many streams, and some bytes.
func tight(t *testing.T, q request, spare int64) (*rig, Walk) {
	t.Helper()
	need(t)
	r := newRig(t, 0)
	w := r.walk(t, q)
	p := newPlan(r.Feed, planKey{}, w)
	defer p.close()
	var own int64
	for _, w := range streams(w) {
		s, err := newStream(p, w)
		must(t, err)
		own += s.own()
	}
	r.account(t, budget.Options{Limit: own + p.leading(0, math.MaxInt64) + spare}, nothing)
	return r, w
}

func (r *rig) open(t *testing.T, w Walk) *Stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	s, err := r.Open(ctx, w)
	must(t, err)
	return s
}

// take reads steps and returns how many there were.
func take(t *testing.T, s *Stream, most int) (n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for ; n < most; n++ {
		b, err := s.Next(ctx)
		if err == io.EOF {
			return n
		}
		must(t, err)
		rows, _ := share(s.walk, s.walk.Schedule.Step(b.Step))
		must(t, verify(b, rows))
		b.Release()
	}
	return n
}

// Ranks that train together, none of which goes on before all have their batch, need no more than one window's memory.
func TestTogetherInLittleMemory(t *testing.T) {
	for _, test := range []struct {
		name         string
		plan         sampler.Plan
		ranks, batch int64
	}{
		{name: "as stored", ranks: 3, batch: 40},
		{name: "as stored, steps of many blocks", ranks: 2, batch: 1000},
		{name: "as stored, split", plan: sampler.Plan{Split: &sampler.Split{To: 6000}}, ranks: 3, batch: 40},
		{name: "window", plan: sampler.Plan{Shuffle: sampler.ShuffleWindow, WindowBlocks: 2}, ranks: 4, batch: 60},
		{name: "steps of many windows", plan: sampler.Plan{Shuffle: sampler.ShuffleWindow, WindowBlocks: 1}, ranks: 3, batch: 900},
		{name: "groups", plan: sampler.Plan{Shuffle: sampler.ShuffleWindow, WindowBlocks: 1, Groups: 4}, ranks: 3, batch: 70},
		{name: "as many groups as ranks", plan: sampler.Plan{Shuffle: sampler.ShuffleWindow, WindowBlocks: 1, Groups: 3}, ranks: 3, batch: 60},
		{name: "full", plan: sampler.Plan{Shuffle: sampler.ShuffleFull}, ranks: 3, batch: 300},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, w := tight(t, request{
				dataset: "segments", plan: test.plan, ranks: test.ranks, columns: []string{"id", "list"},
				cut: sampler.Cut{Batch: test.batch, End: 2, Tail: sampler.Pad},
			}, 0)
			began := time.Now()
			r.together(t, w)
			t.Logf("%v, %d rows decoded in two epochs of %d", time.Since(began), r.rows(), w.Snapshot.Rows())
			r.close(t)
		})
	}
}

// A client that does not read keeps others of its convoy back when there is no memory beside the convoy's; but they hold
// none of it meanwhile, and what it does take is theirs at once.
func TestOthersWaitForTheLastWithoutMemory(t *testing.T) {
	r, w := tight(t, windows(2), 0)
	all := streams(w)
	last, ahead := r.open(t, all[0]), r.open(t, all[1])
	defer r.close(t)
	defer last.Close()
	defer ahead.Close()
	read := make(chan error, 1)
	var steps atomic.Int64
	go func() {
		for {
			b, err := ahead.Next(context.Background())
			if err != nil {
				read <- err
				return
			}
			steps.Add(1)
			b.Release()
		}
	}()
	eventually(t, "the stream ahead waits", func() bool {
		ahead.plan.mu.Lock()
		defer ahead.plan.mu.Unlock()
		return ahead.plan.changed != nil
	})
	if used := r.ledger.Stats().Used; len(used) > 0 {
		t.Errorf("it holds %v", used)
	}
	waited := steps.Load()
	if waited == last.walk.Schedule.Count() {
		t.Fatal("nobody had to wait")
	}
	n := take(t, last, 1<<30)
	if err := <-read; err != io.EOF {
		t.Fatal(err)
	}
	if int64(n) != steps.Load() {
		t.Errorf("%d and %d steps", n, steps.Load())
	}
}

// Who comes one window behind a client that has stopped reading is served all the same, from the same memory.
func TestNewcomerBehindSomebodyWhoStopped(t *testing.T) {
	r, w := tight(t, windows(2), 0)
	all := streams(w)
	stopped := r.open(t, all[0])
	take(t, stopped, 4)
	behind := r.open(t, all[1])
	if behind.convoy != stopped.convoy {
		t.Fatal("they are no convoy")
	}
	if n := take(t, behind, 5); n != 5 {
		t.Errorf("%d steps", n)
	}
	behind.Close()
	stopped.Close()
	r.close(t)
}

// Memory that one job uses beyond its own is given up for another that waits to be admitted, though its client has
// stopped reading.
func TestAdmissionTakesWhatIsBeyond(t *testing.T) {
	need(t)
	q := windows(1)
	r, w := tight(t, q, 0)
	r.account(t, budget.Options{Limit: 2*r.ledger.Stats().Limit + 1<<20}, nothing)
	stopped := r.open(t, w)
	take(t, stopped, 1)
	eventually(t, "a window is read ahead", func() bool { return r.ledger.Stats().Reserved > r.ledger.Stats().Limit/2 || r.rows() > 100 })
	q.plan.Seed = 5
	other := r.open(t, r.walk(t, q))
	take(t, other, 1<<30)
	other.Close()
	take(t, stopped, 1<<30)
	stopped.Close()
	r.close(t)
}

// A convoy ends with its last member, whoever waits to join it.
func TestConvoyEndsWhileSomebodyWaits(t *testing.T) {
	r, w := tight(t, windows(1), 0)
	first := r.open(t, w)
	opened := make(chan *Stream)
	go func() { opened <- r.open(t, w) }()
	eventually(t, "the second is in line", func() bool { return r.ledger.Stats().Waiting > 0 })
	first.Close()
	second := <-opened
	take(t, second, 1<<30)
	second.Close()
	r.close(t)
}

// Streams are admitted in the order in which they came, also where some could share the memory of one that came before.
func TestStreamsAreAdmittedInOrder(t *testing.T) {
	q := windows(2)
	r, _ := tight(t, q, 0)
	all, err := r.ledger.Admit(t.Context(), r.ledger.Most())
	must(t, err)
	var group errgroup.Group
	var order []int
	for i, seed := range []uint64{4, 5, 4, 6, 5, 6} {
		q.plan.Seed = seed
		w := streams(r.walk(t, q))[i/3]
		group.Go(func() error {
			s := r.open(t, w)
			order = append(order, i) // nobody else is admitted before this one closes
			take(t, s, 1<<30)
			s.Close()
			return nil
		})
		eventually(t, "it is in line", func() bool { return r.ledger.Stats().Waiting == i+1 })
	}
	all.Close()
	must(t, group.Wait())
	if !slices.IsSorted(order) {
		t.Errorf("admitted in the order %v", order)
	}
	r.close(t)
}

// Who waits in line gives up at its deadline, and leaves nothing.
func TestAdmissionEnds(t *testing.T) {
	r, w := tight(t, windows(1), 0)
	first := r.open(t, w)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	var group errgroup.Group
	for range 3 { // one in line, the others behind it
		group.Go(func() error {
			_, err := r.Open(ctx, w)
			if !errors.Is(err, budget.ErrTimeout) {
				t.Errorf("error %v", err)
			}
			return err
		})
	}
	if group.Wait() == nil {
		t.Error("there was memory")
	}
	first.Close()
	r.close(t)
}

// Rows that take a thousand times what their file says end the stream; they are neither sent nor kept.
func TestWindowOutgrowsItsMemory(t *testing.T) {
	for _, test := range []struct {
		shuffle sampler.Shuffle
		spare   int64
	}{{sampler.ShuffleNone, 0}, {sampler.ShuffleFull, 0}, {sampler.ShuffleFull, 16 << 20}} {
		r, w := tight(t, request{
			dataset: "liars", plan: sampler.Plan{Shuffle: test.shuffle}, columns: []string{"id", "text"}, cut: sampler.Cut{Batch: 10, End: 1},
		}, test.spare)
		s := r.open(t, w)
		_, err := s.Next(context.Background())
		if !errors.Is(err, budget.ErrExhausted) {
			t.Errorf("%+v: error %v", test, err)
		}
		s.Close()
		r.close(t)
	}
}

// A batch that is filled up with repeated rows takes memory like any other, however few rows there are.
func TestPaddedBatchBeyondMemory(t *testing.T) {
	need(t)
	r := newRig(t, 1<<30)
	for _, shuffle := range []sampler.Shuffle{sampler.ShuffleNone, sampler.ShuffleFull} {
		for _, batch := range []int64{1 << 31, 1 << 47, 1 << 61} {
			q := windows(1)
			q.plan, q.cut = sampler.Plan{Shuffle: shuffle}, sampler.Cut{Batch: batch, Tail: sampler.Pad, End: 1}
			if _, err := r.Open(context.Background(), r.walk(t, q)); !errors.Is(err, budget.ErrTooLarge) {
				t.Errorf("shuffle %d, %d rows: error %v", shuffle, batch, err)
			}
		}
	}
	r.close(t)
}

// Repeated rows come one by one: they are joined on the way, and all are there.
func TestManyPaddedRows(t *testing.T) {
	need(t)
	r := newRig(t, 1<<30)
	q := windows(1)
	q.plan = sampler.Plan{}
	q.cut = sampler.Cut{Batch: r.walk(t, q).Order.Rows() + 20_000, Tail: sampler.Pad, End: 1}
	w := r.walk(t, q)
	s := r.open(t, w)
	b, err := s.Next(context.Background())
	must(t, err)
	rows, _ := share(w, w.Schedule.Step(0))
	must(t, verify(b, rows))
	must(t, check(w, 0, b, b.Sum))
	b.Release()
	s.Close()
	r.close(t)
}

// Joining chunks of strings was seen to pass what 32-bit offsets, or a message, can hold: such a batch comes in pieces,
// out of blocks that are more than a frame, too.
func TestB93_BatchesLargerThanAFrame(t *testing.T) {
	need(t)
	for _, test := range []struct {
		dataset, column string
		shuffle         sampler.Shuffle
	}{
		{"liars", "text", sampler.ShuffleNone},
		{"liars", "text", sampler.ShuffleFull},
		{"giant", "text", sampler.ShuffleNone},
		{"giant", "text", sampler.ShuffleFull},
		{"giant", "bytes", sampler.ShuffleFull},
		{"series", "series", sampler.ShuffleNone},
		{"series", "series", sampler.ShuffleFull},
	} {
		r := newRig(t, 1<<30)
		w := r.walk(t, request{
			dataset: test.dataset, plan: sampler.Plan{Shuffle: test.shuffle}, columns: []string{"id", test.column}, cut: sampler.Cut{Batch: 1800, End: 1},
		})
		s := r.open(t, w)
		b, err := s.Next(context.Background())
		must(t, err)
		rows, _ := share(w, w.Schedule.Step(0))
		if len(b.Pieces) < 2 {
			t.Errorf("%+v: %d pieces", test, len(b.Pieces))
		}
		must(t, verify(b, rows))
		must(t, check(w, 0, b, b.Sum))
		b.Release()
		s.Close()
		r.close(t)
	}
}

// Streams as stored, of convoys that meet, whose clients are slow by turns, never fail for what they still send: each pays
// for its own batches, and for nobody else's.
func TestSlowClientsPayForTheirOwn(t *testing.T) {
	r, w := tight(t, request{dataset: "segments", ranks: 1, columns: []string{"id", "pad"}, cut: sampler.Cut{End: 4}}, 1<<20)
	defer r.close(t)
	s := r.open(t, w)
	own, leading := s.own(), s.plan.leading(0, math.MaxInt64)
	s.Close()
	const clients, convoys = 4, 2
	r.account(t, budget.Options{Limit: clients*own + convoys*leading}, nothing)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var group errgroup.Group
	for i := range clients {
		w := w
		w.First = int64(i % convoys * 3)
		group.Go(func() error {
			_, err := r.read(ctx, w, habits{leave: 1 << 30, queue: queued, keep: time.Duration(i) * time.Millisecond})
			return err
		})
	}
	must(t, group.Wait())
}

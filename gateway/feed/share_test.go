package feed

import (
	"context"
	"io"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/sampler"
)

// barrier lets its members go on together.
type barrier struct {
	mu      sync.Mutex
	members int
	waiting int
	open    chan struct{}
}

func newBarrier(members int) *barrier { return &barrier{members: members, open: make(chan struct{})} }

func (b *barrier) wait() {
	b.mu.Lock()
	open := b.open
	if b.waiting++; b.waiting == b.members {
		b.waiting, b.open = 0, make(chan struct{})
		close(open)
	}
	b.mu.Unlock()
	<-open
}

// together reads all streams of a walk, step by step, as ranks that train together do, and returns the row ids by step.
func (r *rig) together(t *testing.T, w Walk) map[int64][]int64 {
	t.Helper()
	all := streams(w)
	ids, mu, gate := map[int64][]int64{}, sync.Mutex{}, newBarrier(len(all))
	open := make([]*Stream, len(all))
	for i, w := range all {
		s, err := r.Open(context.Background(), w)
		must(t, err)
		defer s.Close()
		open[i] = s
	}
	var group errgroup.Group
	for i, s := range open {
		group.Go(func() error {
			for done := false; !done; gate.wait() {
				b, err := s.Next(context.Background())
				if done = err != nil; done {
					if err != io.EOF {
						return err
					}
					continue
				}
				mu.Lock()
				rows, _ := share(all[i], w.Schedule.Step(b.Step))
				ids[b.Step] = append(ids[b.Step], rows...)
				err = verify(b, rows)
				mu.Unlock()
				b.Release()
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	must(t, group.Wait())
	return ids
}

// However many ranks read a plan, each block is decoded once an epoch.
func TestOneLoadForAllRanks(t *testing.T) {
	need(t)
	for _, test := range []struct {
		name string
		plan sampler.Plan
	}{
		{name: "as stored"},
		{name: "windows", plan: sampler.Plan{Shuffle: sampler.ShuffleWindow, WindowBlocks: 3, Seed: 9}},
		{name: "full", plan: sampler.Plan{Shuffle: sampler.ShuffleFull, Seed: 9}},
		{name: "split", plan: sampler.Plan{Shuffle: sampler.ShuffleWindow, WindowBlocks: 2, Split: &sampler.Split{From: 2000, To: 9000}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, 1<<30)
			w := r.walk(t, request{
				dataset: "segments", plan: test.plan, ranks: 4, columns: []string{"id", "text"},
				cut: sampler.Cut{Batch: 64, End: 2, Tail: sampler.Keep},
			})
			r.together(t, w)
			// The last window of an epoch is there when the first one of the next is read ahead: what both have is decoded once.
			if got, n := r.rows(), w.Snapshot.Rows(); got < n || got > 2*n || test.plan.Shuffle == sampler.ShuffleNone && got < 2*n {
				t.Errorf("%d rows decoded in two epochs of %d", got, n)
			}
			r.close(t)
		})
	}
}

// A segment of many blocks is followed by scanners: one for each lane, which never begin anew.
func TestSegmentsAreFollowed(t *testing.T) {
	need(t)
	for _, test := range []struct {
		name    string
		plan    sampler.Plan
		ranks   int64
		batch   int64
		scanned int
	}{
		{name: "as stored", scanned: 1},
		{name: "as stored, in batches", ranks: 2, batch: 50, scanned: 1},
		{name: "one lane", plan: sampler.Plan{Shuffle: sampler.ShuffleWindow, WindowBlocks: 1}, batch: 50, scanned: 1},
		{name: "three lanes", plan: sampler.Plan{Shuffle: sampler.ShuffleWindow, WindowBlocks: 3}, ranks: 3, batch: 50, scanned: 3},
		{name: "one window", plan: sampler.Plan{Shuffle: sampler.ShuffleWindow, WindowBlocks: 100}, batch: 50, scanned: 1},
		{name: "full", plan: sampler.Plan{Shuffle: sampler.ShuffleFull}, ranks: 2, batch: 50, scanned: 1},
		{name: "split", plan: sampler.Plan{Shuffle: sampler.ShuffleWindow, WindowBlocks: 2, Split: &sampler.Split{To: 5000}}, batch: 50, scanned: 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, 1<<30)
			w := r.walk(t, request{
				dataset: "long", plan: test.plan, ranks: test.ranks, columns: []string{"id"},
				cut: sampler.Cut{Batch: test.batch, End: 1, Tail: sampler.Keep},
			})
			if w.Blocks.Len() < 8 {
				t.Fatalf("%d blocks are too few", w.Blocks.Len())
			}
			r.together(t, w)
			if r.opened != test.scanned {
				t.Errorf("the segment was scanned %d times, want %d", r.opened, test.scanned)
			}
			if got := r.rows(); got != w.Snapshot.Rows() {
				t.Errorf("%d of %d rows decoded", got, w.Snapshot.Rows())
			}
			r.close(t)
		})
	}
}

// The order of the next epoch is made before a stream comes there, from memory that is free.
func TestNextOrderIsMadeAhead(t *testing.T) {
	q := windows(1)
	q.cut.End = 2
	for _, spare := range []int64{0, 64 << 20} {
		r, w := tight(t, q, spare)
		s := r.open(t, w)
		for s.step < w.Schedule.Count() {
			step := w.Schedule.Step(s.step)
			last := 0
			for run := range w.Order.Epoch(step.Epoch).Runs(step, 0, 1) {
				last = run.Window
			}
			take(t, s, 1)
			s.plan.mu.Lock()
			next := s.plan.epochs[1]
			s.plan.mu.Unlock()
			windows := w.Order.Epoch(0).Windows(0)
			switch ahead := next != nil && next.paid.grant != nil; {
			case step.Epoch == 0 && last < windows-2 && next != nil:
				t.Fatalf("in window %d of %d the next order was made", last, windows)
			case spare > 0 && step.Epoch == 0 && last >= windows-2 && !ahead:
				t.Fatalf("in window %d of %d the next order was not made ahead", last, windows)
			}
		}
		s.Close()
		r.close(t)
	}
}

// What a stream has in memory is the window that it is in and the one that comes next, of every group.
func TestResidency(t *testing.T) {
	need(t)
	for _, groups := range []int64{1, 3} {
		const n = 2
		r := newRig(t, 1<<30)
		w := r.walk(t, request{
			dataset: "segments", plan: sampler.Plan{Shuffle: sampler.ShuffleWindow, WindowBlocks: n, Groups: groups, Seed: 3},
			columns: []string{"id"}, cut: sampler.Cut{Batch: 16, End: 2, Tail: sampler.Keep},
		})
		s := r.open(t, w)
		most := 0
		for steps := 1; steps > 0; {
			steps = take(t, s, 1)
			settled(s)
			most = max(most, r.cache.Stats().Leased)
		}
		if limit := int(groups) * 2 * n; most > limit || most <= limit/2 {
			t.Errorf("%d groups: %d blocks at a time, at most %d are meant, and more than half", groups, most, limit)
		}
		s.Close()
		r.close(t)
	}
}

// Jobs of different plans that are at the same blocks share them.
func TestJobsShareBlocks(t *testing.T) {
	need(t)
	r := newRig(t, 1<<30)
	var open []*Stream
	for seed := range uint64(3) {
		w := r.walk(t, request{
			dataset: "segments", plan: sampler.Plan{Shuffle: sampler.ShuffleFull, Seed: seed}, columns: []string{"id"},
			cut: sampler.Cut{Batch: 64, End: 1},
		})
		s, err := r.Open(context.Background(), w)
		must(t, err)
		open = append(open, s)
		b, err := s.Next(context.Background())
		must(t, err)
		b.Release()
	}
	if got, want := r.rows(), open[0].walk.Snapshot.Rows(); got != want {
		t.Errorf("%d rows decoded for three plans over %d", got, want)
	}
	for _, s := range open {
		s.Close()
	}
	r.close(t)
}

// Datasets and readers were seen where ranks that nobody had told their number all got all rows.
func TestB87_RanksAndWorkersShareRows(t *testing.T) {
	need(t)
	r := newRig(t, 1<<30)
	for _, plan := range []sampler.Plan{{}, {Shuffle: sampler.ShuffleWindow, WindowBlocks: 2}, {Shuffle: sampler.ShuffleFull}} {
		w := r.walk(t, request{
			dataset: "batches", plan: plan, ranks: 2, workers: 2, columns: []string{"id"},
			cut: sampler.Cut{Batch: 32, End: 1, Tail: sampler.Keep},
		})
		seen := map[int64]bool{}
		for _, rows := range r.apart(t, w) {
			for _, row := range rows {
				if seen[row] {
					t.Fatalf("row %d came twice", row)
				}
				seen[row] = true
			}
		}
		if int64(len(seen)) != w.Snapshot.Rows() {
			t.Errorf("%d of %d rows", len(seen), w.Snapshot.Rows())
		}
	}
	r.close(t)
}

// apart reads the streams of a walk one after the other, and returns the row ids that each sent.
func (r *rig) apart(t *testing.T, w Walk) (all [][]int64) {
	t.Helper()
	for _, w := range streams(w) {
		w.RowID = true
		var rows []int64
		s, err := r.Open(context.Background(), w)
		must(t, err)
		for {
			b, err := s.Next(context.Background())
			if err == io.EOF {
				break
			}
			must(t, err)
			rows = append(rows, rowIDs(b)...)
			b.Release()
		}
		s.Close()
		all = append(all, rows)
	}
	return all
}

// settled waits until what a stream has read ahead is there.
func settled(s *Stream) {
	for _, a := range s.next {
		for _, c := range a.list {
			s.plan.mu.Lock()
			l := c.w.load
			s.plan.mu.Unlock()
			if l != nil {
				<-l.done
			}
		}
	}
}

package feed

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headrace/headrace/sampler"
)

func TestLulls(t *testing.T) {
	const pause = time.Millisecond
	for name, test := range map[string]struct {
		batches int64
		during  func(l *lull, want, cancel func())
		want    time.Duration
	}{
		"the time":        {2, func(*lull, func(), func()) {}, lullTime},
		"a batch of two":  {2, func(l *lull, _, _ func()) { l.sent() }, lullTime},
		"two batches":     {2, func(l *lull, _, _ func()) { l.sent(); l.sent() }, pause},
		"more batches":    {2, func(l *lull, _, _ func()) { l.sent(); l.sent(); l.sent() }, pause},
		"the stream ends": {9, func(l *lull, _, _ func()) { l.stop(); l.stop(); l.sent() }, pause},
		"somebody waits":  {9, func(_ *lull, want, _ func()) { want() }, pause},
		"nobody wants it": {9, func(_ *lull, _, cancel func()) { cancel() }, pause},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				l, wanted := newLull(0, test.batches), make(chan struct{})
				go func() {
					time.Sleep(pause)
					test.during(l, func() { close(wanted) }, cancel)
				}()
				began := time.Now()
				l.wait(ctx, wanted)
				if took := time.Since(began); took != test.want {
					t.Errorf("it was over after %v, not %v", took, test.want)
				}
			})
		})
	}
	var none *lull
	none.sent()
	none.stop()
	none.wait(context.Background(), nil)
}

// What is read ahead is begun when the first batches of a window were sent, or were not asked for in time, and not before.
func TestFirstBatchesComeFirst(t *testing.T) {
	need(t)
	for name, test := range map[string]struct {
		batch   int64
		ranks   int64
		workers int64
		groups  int64
		want    int // batches of a window after which the next one is begun
	}{
		"batches":       {10, 1, 1, 1, 5},
		"of a rank":     {20, 2, 1, 1, 2},
		"of a worker":   {10, 1, 2, 1, 2},
		"of two groups": {20, 1, 1, 2, 5},
		"few":           {70, 1, 1, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 64<<20)
				s, next := r.begin(t, request{
					plan: sampler.Plan{Groups: test.groups}, cut: sampler.Cut{Batch: test.batch, End: 1}, ranks: test.ranks, workers: test.workers,
				})
				ahead := func(n int) bool { // of window n
					synctest.Wait()
					return r.rows() > int64(n+1)*200*test.groups
				}
				next()
				if !ahead(0) {
					t.Error("a stream that has waited for its window does not read ahead at once")
				}
				for first := s.inside[0]; s.inside[0] == first; {
					next()
				}
				for n := 1; n < 4; n++ {
					window, sent := s.inside[0], 0
					for ; !ahead(n) && sent < 20; sent++ {
						next()
					}
					if sent != test.want {
						t.Errorf("window %d: the next one was begun after %d batches, not %d", n, sent, test.want)
					}
					for s.inside[0] == window {
						next()
					}
				}
				if ahead(4) != (test.want == 0) {
					t.Error("no lull")
				}
				if time.Sleep(lullTime); !ahead(4) {
					t.Error("the next window is not begun in time")
				}
				s.Close()
				r.close(t)
			})
		})
	}
}

// A stream that is ahead of the one whose lull it is does not wait for the end of that.
func TestWhoWaitsIsNotPutOff(t *testing.T) {
	need(t)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 64<<20)
		var both []*Stream
		for _, w := range streams(r.walk(t, request{
			dataset: "alike", plan: sampler.Plan{Shuffle: sampler.ShuffleWindow, WindowBlocks: 2}, cut: sampler.Cut{Batch: 10, End: 1}, ranks: 2,
		})) {
			s, err := r.Open(t.Context(), w)
			must(t, err)
			both = append(both, s)
		}
		began := time.Now()
		read := func(s *Stream, windows int) {
			for at := (place{window: windows}); s.inside[0] == nil || s.inside[0].at != at; {
				b, err := s.Next(t.Context())
				must(t, err)
				b.Release()
			}
		}
		read(both[0], 2)
		read(both[1], 6)
		if took := time.Since(began); took != 0 {
			t.Errorf("it waited for %v", took)
		}
		for _, s := range both {
			s.Close()
		}
		r.close(t)
	})
}

// begin opens a stream over windows of 200 rows, and returns what takes its next batch and waits for what that has begun.
func (r *rig) begin(t *testing.T, q request) (s *Stream, next func()) {
	t.Helper()
	q.dataset, q.plan.Shuffle, q.plan.WindowBlocks = "alike", sampler.ShuffleWindow, 2
	s, err := r.Open(t.Context(), r.walk(t, q))
	must(t, err)
	return s, func() {
		b, err := s.Next(t.Context())
		must(t, err)
		b.Release()
		synctest.Wait()
	}
}

// enters opens a stream of batches of so many rows and reads until it enters its second window, for which it has not waited.
func (r *rig) enters(t *testing.T, batch, groups int64) (s *Stream, next func()) {
	t.Helper()
	s, next = r.begin(t, request{plan: sampler.Plan{Groups: groups}, cut: sampler.Cut{Batch: batch, End: sampler.Endless}})
	next()
	for first := s.inside[0]; s.inside[0] == first; {
		next()
	}
	return s, next
}

// ahead tells whether what a stream needs next was read, in every span.
func (s *Stream) ahead() bool {
	s.plan.mu.Lock()
	defer s.plan.mu.Unlock()
	for _, a := range s.next {
		if a.list[0].w.state != ready {
			return false
		}
	}
	return true
}

func TestNoLullOutlastsItsTimeOrItsUse(t *testing.T) {
	need(t)
	for name, during := range map[string]func(t *testing.T, r *rig, s *Stream, next func()){
		"its client is slow, others are not": func(t *testing.T, r *rig, s *Stream, _ func()) {
			time.Sleep(lullTime)
			other, next := r.enters(t, 70, 1) // of the same plan, but without lulls
			for at := s.next[0].list[0].w.at; other.inside[0].at != at; {
				next()
			}
			if !other.ahead() {
				t.Error("another stream waits for it")
			}
			other.Close()
		},
		"a stream is to be admitted": func(t *testing.T, r *rig, s *Stream, _ func()) {
			r.reclaim(nil)
			if synctest.Wait(); !s.ahead() {
				t.Error("what is put off keeps its memory")
			}
		},
		"a stream waits to be admitted": func(t *testing.T, r *rig, s *Stream, next func()) {
			r.line.Add(1)
			defer r.line.Add(-1)
			for at := s.inside[0]; s.inside[0] == at; {
				next()
			}
			if s.next[0].list[0].w.load == nil || r.rows() != 4*200 { // nobody keeps it, but it was read
				t.Error("what is begun meanwhile is put off")
			}
		},
		"a stream waits for memory": func(t *testing.T, r *rig, s *Stream, _ func()) {
			m := r.ledger.Stats()
			others, err := r.ledger.Try(m.Limit - m.Reserved)
			must(t, err)
			far := s.plan.use(s.epoch, place{window: 5})
			if l, _, _ := s.claim(t.Context(), far, false, false); l != nil {
				t.Fatal("there is memory")
			}
			if synctest.Wait(); !s.ahead() {
				t.Error("what is put off keeps its memory")
			}
			s.plan.leave(far)
			others.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 64<<20)
				s, next := r.enters(t, 10, 1)
				if s.ahead() {
					t.Fatal("no lull")
				}
				during(t, r, s, next)
				s.Close()
				r.close(t)
			})
		})
	}
}

// Windows of several spans that a stream enters in one step have one lull.
func TestSpansHaveOneLull(t *testing.T) {
	need(t)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 64<<20)
		s, _ := r.enters(t, 10, 2)
		for span, a := range s.next {
			if w := a.list[0].w; s.inside[span].at.window != 1 || w.state != decoding || r.rows() != 4*200 {
				t.Errorf("span %d: %+v, %d rows were read", span, w.at, r.rows())
			}
		}
		s.Close()
		r.close(t)
	})
}

// Where reading takes longer than sending, a lull would only be added to it.
func TestReadingLosesNoTimeInLulls(t *testing.T) {
	need(t)
	synctest.Test(t, func(t *testing.T) {
		const slow, windows = 20 * time.Millisecond, 6
		r := newRig(t, 64<<20)
		r.slow = func(context.Context) { time.Sleep(slow / 2) } // a window has two blocks
		s, next := r.enters(t, 10, 1)
		began := time.Now()
		for range windows {
			for at := s.inside[0]; s.inside[0] == at; {
				next()
				time.Sleep(slow / 25) // for each of 20
			}
		}
		if took := time.Since(began); took > windows*slow+slow {
			t.Errorf("%d windows took %v", windows, took)
		}
		s.Close()
		r.close(t)
	})
}

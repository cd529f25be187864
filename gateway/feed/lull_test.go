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
				s, err := r.Open(t.Context(), r.walk(t, request{
					dataset: "alike", plan: sampler.Plan{Shuffle: sampler.ShuffleWindow, WindowBlocks: 2, Groups: test.groups}, cut: sampler.Cut{Batch: test.batch, End: 1},
					ranks: test.ranks, workers: test.workers,
				}))
				must(t, err)
				next := func() {
					b, err := s.Next(t.Context())
					must(t, err)
					b.Release()
				}
				ahead := func(n int) bool { // of window n
					synctest.Wait()
					return r.rows() > int64(n+1)*200*test.groups
				}
				next()
				for n := range 3 {
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
				if ahead(3) != (test.want == 0) {
					t.Error("no lull")
				}
				if time.Sleep(lullTime); !ahead(3) {
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

package feed

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/headrace/headrace/sampler"
)

// Who goes away ends what is read for it, at once: what is being read ends, and of the many blocks still to be read none
// is begun, though others read the same plan.
func TestCancelEndsReading(t *testing.T) {
	need(t)
	for _, others := range []bool{false, true} {
		r := newRig(t, 1<<30)
		q := windows(2)
		q.plan.WindowBlocks = 6
		all := streams(r.walk(t, q))
		if others {
			all[0].Stream.Rank = 1
			s := r.open(t, all[0])
			defer r.close(t)
			defer s.Close()
		} else {
			defer r.close(t)
		}
		reading := make(chan int64, 100)
		r.slow = func(ctx context.Context) {
			reading <- r.reading.Load()
			<-ctx.Done()
		}
		s := r.open(t, all[1])
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() {
			_, err := s.Next(ctx)
			s.Close()
			ended <- err
		}()
		<-reading
		cancel()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
		case <-time.After(20 * time.Second): // 100 ms are meant; the machine may be busy
			t.Fatal("it goes on")
		}
		eventually(t, "nothing is read", func() bool { return r.reading.Load() == 0 })
		for range len(reading) {
			if n := <-reading; n > int64(runtime.GOMAXPROCS(0)) {
				t.Errorf("%d blocks were read at a time, by %d decoders", n, runtime.GOMAXPROCS(0))
			}
		}
	}
}

// A step may have any number of rows; who goes away in the middle of it is noticed.
func TestCancelWithinAStep(t *testing.T) {
	need(t)
	for _, shuffle := range []sampler.Shuffle{sampler.ShuffleNone, sampler.ShuffleFull} {
		r := newRig(t, 1<<50)
		q := windows(1)
		q.plan, q.cut = sampler.Plan{Shuffle: shuffle}, sampler.Cut{Batch: 1 << 31, Tail: sampler.Pad, End: 1}
		s := r.open(t, r.walk(t, q))
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		if _, err := s.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("shuffle %d: error %v", shuffle, err)
		}
		cancel()
		s.Close()
		r.close(t)
	}
}

// A block that another job began to decode is decoded anew when that job goes away.
func TestBlockOfAJobThatGoesAway(t *testing.T) {
	need(t)
	r := newRig(t, 1<<30)
	reading, stuck := make(chan struct{}, 100), true
	r.slow = func(ctx context.Context) {
		r.mu.Lock()
		wait := stuck
		r.mu.Unlock()
		reading <- struct{}{}
		if wait {
			<-ctx.Done()
		}
	}
	full := func(seed uint64) Walk {
		return r.walk(t, request{
			dataset: "batches", plan: sampler.Plan{Shuffle: sampler.ShuffleFull, Seed: seed}, columns: []string{"id"}, cut: sampler.Cut{Batch: 40, End: 1},
		})
	}
	first, second := r.open(t, full(1)), r.open(t, full(2))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = first.Next(ctx)
		first.Close()
	}()
	for range runtime.GOMAXPROCS(0) { // else the other job may begin with a block of its own
		<-reading
	}
	read := make(chan int)
	go func() { read <- take(t, second, 1<<30) }()
	eventually(t, "both want the block", func() bool {
		return r.cache.Stats().Waiting > 0
	})
	r.mu.Lock()
	stuck = false
	r.mu.Unlock()
	cancel()
	<-ended
	if n := <-read; n == 0 {
		t.Error("no steps")
	}
	second.Close()
	r.close(t)
}

// What goes wrong in a way that nobody foresaw ends the streams that need it, and nothing else.
func TestPanicIsAnError(t *testing.T) {
	need(t)
	r := newRig(t, 1<<30)
	broken := true
	r.slow = func(context.Context) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if broken {
			panic("nobody foresaw this")
		}
	}
	s := r.open(t, r.walk(t, windows(1)))
	if _, err := s.Next(context.Background()); !errors.Is(err, ErrPanic) {
		t.Errorf("error %v", err)
	}
	r.mu.Lock()
	broken = false
	r.mu.Unlock()
	if n := take(t, s, 1<<30); int64(n) != s.walk.Schedule.Count() { // the stream may try again
		t.Errorf("%d steps of %d", n, s.walk.Schedule.Count())
	}
	s.Close()
	r.close(t)
}

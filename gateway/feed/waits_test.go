package feed

import (
	"context"
	"testing"
	"time"

	"github.com/headrace/headrace/storage"
)

// A wait is divided as the blocks' own times were, which may be several at a time, or some of other streams.
func TestWaitsAreShared(t *testing.T) {
	const ms = time.Millisecond
	for name, tt := range map[string]struct {
		took []storage.Took
		wait time.Duration
		want Wait
	}{
		"all of it":            {[]storage.Took{{Store: 30 * ms, Decode: 10 * ms}}, 40 * ms, Wait{Store: 30 * ms, Decode: 10 * ms}},
		"two at a time":        {[]storage.Took{{Store: 30 * ms}, {Decode: 30 * ms}}, 30 * ms, Wait{Store: 15 * ms, Decode: 15 * ms}},
		"begun before":         {[]storage.Took{{Store: 60 * ms, Decode: 20 * ms}}, 20 * ms, Wait{Store: 15 * ms, Decode: 5 * ms}},
		"the rest by others":   {[]storage.Took{{Decode: 10 * ms}}, 40 * ms, Wait{Decode: 10 * ms}},
		"all by others":        {nil, 40 * ms, Wait{}},
		"nothing to wait for":  {[]storage.Took{{Store: 60 * ms}}, 0, Wait{}},
		"nothing in all of it": {nil, 0, Wait{}},
	} {
		l, got := &load{}, Wait{}
		for _, took := range tt.took {
			l.took(took)
		}
		got.of(l, tt.wait)
		if got != tt.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Batches that wait for a decoder say so, and the others wait for nothing.
func TestBatchesTellWhatTheyWaitedFor(t *testing.T) {
	need(t)
	const slow = 20 * time.Millisecond
	r := newRig(t, 1<<30)
	r.slow = func(context.Context) { time.Sleep(slow) }
	q := windows(1)
	q.plan.WindowBlocks = 100
	s := r.open(t, r.walk(t, q))
	waited := 0
	for s.more() {
		b, err := s.Next(t.Context())
		must(t, err)
		if b.Wait.Total > 0 {
			waited++
			if w := b.Wait; w.Decode < slow/2 || w.Store+w.Decode > w.Total {
				t.Errorf("%+v", w)
			}
		}
		b.Release()
	}
	if waited != 1 {
		t.Errorf("%d batches waited for one window", waited)
	}
	s.Close()
	r.close(t)
}

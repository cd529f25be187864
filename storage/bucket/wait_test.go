package bucket

import (
	"context"
	"sync/atomic"
	"testing"
)

// waiter counts those who wait, and how often somebody did.
type waiter struct{ out, times atomic.Int64 }

func (w *waiter) wait() func() {
	w.out.Add(1)
	w.times.Add(1)
	return func() { w.out.Add(-1) }
}

// Whoever reads is told to wait while a request is under way for it, and only then: not while bytes come that it did not
// ask for yet, nor for bytes that are there.
func TestWaitingIsTold(t *testing.T) {
	o, c, _ := far(t, 24<<20)
	var w waiter
	ctx := Waiting(t.Context(), w.wait)
	c.on = func(Range) error {
		if w.out.Load() != 1 {
			t.Errorf("%d wait while the store is asked", w.out.Load())
		}
		return nil
	}
	must(t, o.ReadAt(ctx, make([]byte, 10), 0))
	if w.times.Load() != 1 || w.out.Load() != 0 {
		t.Errorf("%d waits of one read, %d not over", w.times.Load(), w.out.Load())
	}

	var l ledger
	there := make(chan struct{}, 6)
	c.on = func(Range) error {
		there <- struct{}{}
		return nil
	}
	a := o.Ahead(ctx, Reading{Ranges: []Range{{0, 24 << 20}}, Memory: l.give})
	must(t, a.ReadAt(ctx, make([]byte, 10), 0))
	for range cap(there) {
		<-there // all pieces are on their way, and nobody waits for those that follow
	}
	first := w.times.Load()
	if first > 2 || w.out.Load() != 0 {
		t.Errorf("%d waits, %d not over", first, w.out.Load())
	}
	for off := int64(0); off < 4<<20; off += 1 << 20 {
		must(t, a.ReadAt(ctx, make([]byte, 10), off))
	}
	if w.times.Load() != first {
		t.Error("somebody waited for bytes that are there")
	}
	must(t, a.Close())

	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := o.ReadAt(ended, make([]byte, 10), 0); err == nil {
		t.Error("read under a context that has ended")
	}
	if w.out.Load() != 0 {
		t.Errorf("%d are still told to wait", w.out.Load())
	}
}

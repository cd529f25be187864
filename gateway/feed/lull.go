package feed

import (
	"context"
	"sync"
	"time"

	"github.com/headrace/headrace/sampler"
)

// lull is the time in which a stream that has entered a window makes and sends its first batches of it. What nobody waits
// for yet begins when it is over: reading the next window ahead, and giving the last one back. Where all processors are
// busy, either would take one away for some milliseconds, just when nothing is on its way to the client. A nil one is over.
type lull struct {
	over chan struct{}
	end  func()
	step int64 // in which it began; the stream that entered knows of it
	left int64 // batches, the same
}

const (
	lullPart = 4 // it is for one in so many of a window's batches: the others are the time to read ahead in
	lullTime = 10 * time.Millisecond
)

// enter begins a lull for the window that the stream enters, if it has some batches in it; one for all spans whose windows
// it enters in a step. There is none in stored order, where each block is a window, and none for stores, whose latency
// counts for more.
func (s *Stream) enter(run sampler.Run) {
	if s.lull != nil && s.lull.step == s.step {
		return
	}
	s.lull.stop()
	s.lull = nil
	batch := s.walk.Schedule.Batch()
	if !s.plan.located() || batch == 0 || s.plan.feed.store.Flying(s.plan.walk.Snapshot) > 0 {
		return
	}
	batches := s.epoch.WindowRows(run.Span, run.Window) * s.plan.groups() / batch / s.walk.Stream.Workers
	if batches < lullPart {
		return
	}
	s.lull = newLull(s.step, batches/lullPart)
	s.plan.mu.Lock()
	defer s.plan.mu.Unlock()
	s.plan.lull = s.lull
}

func newLull(step, batches int64) *lull {
	over := make(chan struct{})
	return &lull{over: over, end: sync.OnceFunc(func() { close(over) }), step: step, left: batches}
}

// sent counts a batch of the stream's when it asks for the one after it.
func (l *lull) sent() {
	if l == nil {
		return
	}
	if l.left--; l.left == 0 {
		l.end()
	}
}

// stop ends it early.
func (l *lull) stop() {
	if l != nil {
		l.end()
	}
}

// wait waits for its end, which is soon, or until what is put off is wanted.
func (l *lull) wait(ctx context.Context, wanted <-chan struct{}) {
	if l == nil {
		return
	}
	t := time.NewTimer(lullTime)
	defer t.Stop()
	select {
	case <-l.over:
	case <-wanted:
	case <-t.C:
	case <-ctx.Done():
	}
}

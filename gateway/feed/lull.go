package feed

import (
	"context"
	"sync"
	"time"

	"github.com/headrace/headrace/sampler"
)

// lull is the time in which a stream that has entered a window makes and sends its first batches of it. What nobody waits
// for yet begins when it is over: reading the next window ahead, and giving the last one back. Where all processors are
// busy, either would take one away for some milliseconds, just when nothing is on its way to the client. What is put off
// holds memory, so it begins as well when somebody waits for some. A stream that had to wait for its window has no lull: it
// lacks reading, not a processor. A nil one is over.
type lull struct {
	over  chan struct{}
	end   func()
	until time.Time
	step  int64 // in which the stream entered
	left  int64 // batches, of which the stream that entered knows
}

const (
	lullPart = 4 // it is for one in so many of a window's batches: the others are the time to read ahead in
	lullTime = 10 * time.Millisecond
)

// enter begins a lull for the window that the stream enters, if it has some batches in it. There is none in stored order,
// where each block is a window, and none for stores, whose latency counts for more. Windows of other spans that it enters
// in the same step do not end it.
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
	return &lull{over: over, end: sync.OnceFunc(func() { close(over) }), until: time.Now().Add(lullTime), step: step, left: batches}
}

// quiet is the lull that what is begun now waits for: none while streams wait to be admitted. The lock is held.
func (p *plan) quiet() *lull {
	if p.feed.line.Load() > 0 {
		return nil
	}
	return p.lull
}

// hurry has begin what was put off, for it holds memory that somebody waits for. The lock is held.
func (p *plan) hurry() {
	for _, w := range p.windows {
		if w.state == decoding {
			w.load.want()
		}
	}
	close(p.scarce)
	p.scarce = make(chan struct{})
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
	t := time.NewTimer(time.Until(l.until))
	defer t.Stop()
	select {
	case <-l.over:
	case <-wanted:
	case <-t.C:
	case <-ctx.Done():
	}
}

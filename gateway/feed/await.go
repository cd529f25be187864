package feed

import (
	"context"
	"errors"
	"time"

	"github.com/headrace/headrace/storage/budget"
)

// patience is how often a leader lets a window be decoded that outgrows its memory before it gives up: it may grow when
// others give theirs back, but one that is larger than files say never fits.
const patience = 5

// retry is how soon a stream looks again for memory when nothing that it can see has changed: other plans, and frames
// that gRPC still sends, give it back without a word.
const retry = 20 * time.Millisecond

// await pins a window once it is decoded, and waits for that: for memory too, unless the stream leads its convoy. It must
// have no other one pinned.
func (s *Stream) await(ctx context.Context, w *window, waited *Wait) (err error) {
	s.waits(w)
	defer func() {
		if err != nil {
			s.plan.mu.Lock()
			s.plan.unpin(w)
			s.plan.mu.Unlock()
		}
	}()
	for tries, led := 0, 0; ; {
		l, changed := s.decode(ctx, w, tries)
		wait := retry
		if l != nil {
			began := time.Now()
			select {
			case <-l.done:
			case <-ctx.Done():
				return ctx.Err()
			}
			waited.of(l, time.Since(began))
			if !errors.Is(l.err, budget.ErrExhausted) || errors.Is(l.err, budget.ErrTooLarge) {
				return l.err
			}
			tries++
			if l.payer == s.convoy {
				led++
			}
			if led > patience {
				return l.err
			}
			wait = min(retry<<tries, time.Second)
		}
		if err := pause(ctx, changed, wait); err != nil {
			return err
		}
	}
}

// of counts what was waited for a window to be decoded.
func (w *Wait) of(l *load, wait time.Duration) {
	store, decode := l.share(wait)
	w.Store += store
	w.Decode += decode
}

// waits pins a window that need not be decoded: what others decode meanwhile stays.
func (s *Stream) waits(w *window) {
	s.plan.mu.Lock()
	defer s.plan.mu.Unlock()
	w.pins++
}

func pause(ctx context.Context, changed <-chan struct{}, wait time.Duration) error {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// decode sees to it that a window is being decoded; without memory it returns what tells a change.
func (s *Stream) decode(ctx context.Context, w *window, tries int) (l *load, changed <-chan struct{}) {
	if tries > 0 {
		s.plan.feed.reclaim(s.convoy)
	}
	l, changed, alone := s.claim(ctx, w, tries > 0, false)
	if alone {
		s.plan.feed.reclaim(s.convoy)
		l, changed, _ = s.claim(ctx, w, tries > 0, true)
	}
	return l, changed
}

// claim begins to decode a window if there is memory: that of the convoy for its leader, else what is free at once. A
// leader that has none is alone when nobody in the plan has any of its convoy's; then nothing is left but to try, unless
// clients still have some.
func (s *Stream) claim(ctx context.Context, w *window, modest, try bool) (l *load, changed <-chan struct{}, alone bool) {
	p, c := s.plan, s.convoy
	p.mu.Lock()
	defer p.mu.Unlock()
	leads := c.leads(s)
	switch {
	case w.state != idle:
	case leads && c.loads == 0 && c.free() >= w.bytes:
		p.begin(ctx, w, c, nil, s.walk.Tenant, modest)
	case s.beginFree(ctx, w, modest):
	case leads && c.loads == 0 && s.makeRoom(w.bytes):
		p.begin(ctx, w, c, nil, s.walk.Tenant, modest)
	case leads && try && !p.busy(c) && !c.sends():
		p.begin(ctx, w, c, nil, s.walk.Tenant, modest)
	default:
		p.hurry()
		return nil, p.change(), leads && !p.busy(c)
	}
	w.load.want()
	return w.load, nil, false
}

// makeRoom takes windows that the convoy paid for away from whoever does not copy out of them at the moment, those that
// the stream is in last, until n bytes are free, and tells whether they are. The lock is held.
func (s *Stream) makeRoom(n int64) bool {
	c := s.convoy
	if c.free() < n {
		s.plan.lanes.closeThose(func(l *lane) bool { return l.grant == c.grant })
	}
	for _, mine := range []bool{false, true} {
		for at, w := range s.plan.windows {
			if c.free() >= n {
				return true
			}
			if w.state == ready && w.pins == 0 && w.owes(c) && (s.inside[at.span] == w) == mine {
				s.plan.evict(w)
			}
		}
	}
	return c.free() >= n
}

// beginFree begins to decode a window with memory that is free at once, if there is enough for what is not there. The lock is held.
func (s *Stream) beginFree(ctx context.Context, w *window, modest bool) bool {
	bytes, held := s.plan.missing(w)
	grant, err := s.plan.feed.ledger.Try(bytes)
	if err != nil {
		release(held)
		return false
	}
	s.plan.begin(ctx, w, nil, grant, s.walk.Tenant, modest)
	w.load.held = held
	return true
}

// busy tells whether some of a convoy's memory comes back when a window is decoded or copied out of. The lock is held.
func (p *plan) busy(c *convoy) bool {
	for _, w := range p.windows {
		if w.state == ready && w.owes(c) {
			return true
		}
	}
	return c.loads > 0 || p.retiring > 0
}

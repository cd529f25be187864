package feed

import (
	"context"
	"math"

	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

// convoy is streams of a plan near each other with steps of one kind, which share the memory for one window. It is
// guarded by plan.mu.
type convoy struct {
	grant        *budget.Grant
	size         int64 // of the grant
	batch, ranks int64
	members      map[*Stream]struct{}
	loads        int   // windows that are being decoded with its memory
	lent         int64 // bytes of its windows that the cache pays for at the moment
}

// free is what a window may take of the convoy's memory. The lock is held.
func (c *convoy) free() int64 { return c.grant.Free() - c.lent }

// sends tells whether some of the convoy's memory is on its way to clients and thus comes back, once no window has any.
// The lock is held.
func (c *convoy) sends() bool { return c.grant.Free() < c.size }

// leads tells whether no member is behind a stream: of those at one step the lowest rank is last, for its rows come first.
// The lock is held.
func (c *convoy) leads(s *Stream) bool {
	for m := range c.members {
		if m != s && m.behind(s) {
			return false
		}
	}
	return true
}

// behind tells whether a stream is before another one. The lock is held.
func (s *Stream) behind(o *Stream) bool {
	switch {
	case s.place.Epoch != o.place.Epoch:
		return s.place.Epoch < o.place.Epoch
	case s.place.Rows != o.place.Rows:
		return s.place.Rows < o.place.Rows
	case s.walk.Stream.Rank != o.walk.Stream.Rank:
		return s.walk.Stream.Rank < o.walk.Stream.Rank
	default:
		return s.number < o.number
	}
}

// proceed says where a stream is now: at its next step, or at the end. The lock is held.
func (s *Stream) proceed() {
	s.place = sampler.Place{Epoch: math.MaxInt64}
	if s.more() {
		step := s.walk.Schedule.Step(s.step)
		s.place = sampler.Place{Epoch: step.Epoch, Rows: step.From}
	}
	s.plan.notify()
}

// admit reserves what a stream needs, all at once: memory for its batches, and for a window unless a convoy has it. That
// turns out when its turn has come: the stream before it may be of the same plan.
func (s *Stream) admit(ctx context.Context) error {
	p := s.plan
	var window int64
	if s.more() {
		window = p.leading(s.place.Epoch, p.feed.ledger.Most()-s.own())
	}
	turn, err := p.feed.ledger.Queue(ctx, s.own()+window)
	if err != nil {
		return err
	}
	defer turn.Leave()
	for {
		c, need := s.near(), s.own()
		if c == nil {
			need += window
		}
		grant, err := p.feed.reserve(ctx, turn, need)
		if err != nil {
			return err
		}
		switch {
		case c == nil:
			s.found(grant.Split(window))
		case !s.follow(c): // it ended: those who wait do not keep it
			grant.Close()
			continue
		}
		s.grant = grant
		return nil
	}
}

// found makes a convoy of its own for a stream.
func (s *Stream) found(grant *budget.Grant) {
	s.plan.mu.Lock()
	defer s.plan.mu.Unlock()
	s.convoy = &convoy{grant: grant, size: grant.Free(), batch: s.walk.Schedule.Batch(), ranks: s.walk.Stream.Ranks, members: map[*Stream]struct{}{s: {}}}
	s.plan.convoys[s.convoy] = struct{}{}
}

// follow makes a stream a member of a convoy, unless that has ended.
func (s *Stream) follow(c *convoy) bool {
	s.plan.mu.Lock()
	defer s.plan.mu.Unlock()
	if len(c.members) == 0 {
		return false
	}
	c.members[s] = struct{}{}
	s.convoy = c
	return true
}

// depart takes a stream out of its convoy; the last one out ends it.
func (s *Stream) depart() {
	p, c := s.plan, s.convoy
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(c.members, s)
	if len(c.members) == 0 {
		delete(p.convoys, c)
		c.grant.Close()
		p.lanes.sweep()
	}
	p.notify()
}

// near finds a convoy of streams like this one, at the same step or in the same or an adjacent window.
func (s *Stream) near() *convoy {
	p := s.plan
	if !s.more() {
		return nil
	}
	e := p.epoch(s.place.Epoch)
	at := e.At(0, s.place.Rows)
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.convoys {
		if c.batch != s.walk.Schedule.Batch() || c.ranks != s.walk.Stream.Ranks {
			continue
		}
		for m := range c.members {
			if m.place.Epoch != s.place.Epoch {
				continue
			}
			if w := e.At(0, m.place.Rows); m.place == s.place || w-1 <= at && at <= w+1 {
				return c
			}
		}
	}
	return nil
}

const (
	// eachPadded is about what it takes to remember a row that is repeated: none follows the one before.
	eachPadded = 24
	// absurd is a size that no machine has, in bytes.
	absurd = 1 << 50
)

// own is the memory for the stream's batches: the one being made and the one on its way, each perhaps joined once more.
// In stored order they are slices of blocks, which stay until they are sent.
func (s *Stream) own() int64 {
	const least = 1 << 20
	blocks := s.walk.Blocks
	rows, block := max(1, blocks.Rows()), s.plan.need().Block
	share, each := s.walk.Schedule.Batch()/s.walk.Stream.Ranks+1, blocks.Bytes()/rows+8
	if word := blocks.Largest(); word > 0 { // as frames turn out, not as files say
		each = int64(float64(each)*float64(block)/float64(word)) + 8
	}
	if s.walk.Schedule.Pads() {
		each += eachPadded
	} else {
		share = min(share, rows)
	}
	batch := frame.Cost(min(share, absurd/each) * each)
	if !s.plan.located() {
		return max(least, 2*batch+queued*max(batch, block))
	}
	return max(least, 4*batch)
}

// queued is how many batches of a stream gRPC holds at most: the message on its way and the next one.
const queued = 2

package feed

import (
	"context"
	"slices"

	"github.com/headrace/headrace/sampler"
)

// What a stream will need is decoded while it takes rows of what it has, by these rules, some of which hold for any
// prefetching that is to be near the best there is:
//
//   - What is needed next is begun first, and nothing that is needed later while there is no memory for it.
//   - It is begun at the first chance: when the stream enters a window, but for a lull.
//   - In shuffled orders it is the next window. In stored order, where a window is one block, it is as many blocks as are best on
//     their way from the store, or as can be decoded at once; those of one segment one after the other, by one scanner.
//   - Beyond the next window it takes memory that is free at once, and no stream takes more than an equal part of half of it.
//   - What is kept for the next epoch makes room for what is needed in this one, never the other way round.
//   - It ends with the streams that need it.

// coming is a window that a stream will need, and where it begins to.
type coming struct {
	w    *window
	step sampler.Step
	run  sampler.Run
}

// ahead is what is read ahead of a window, in the order in which it is needed.
type ahead struct {
	of   *window
	list []coming
}

// readAhead has the windows of a span decoded that the stream needs after the one that it has entered.
func (s *Stream) readAhead(ctx context.Context, step sampler.Step, run sampler.Run) {
	depth := s.depth()
	if end := s.walk.Schedule.End(); run.Window >= s.epoch.Windows(run.Span)-1-depth && (end == sampler.Endless || step.Epoch+1 < end) {
		s.plan.prepare(step.Epoch + 1) // what is read ahead next may be in it
	}
	here := coming{s.inside[run.Span], step, run}
	passed, list := s.next[run.Span].list, []coming(nil)
	if len(passed) > 0 && passed[0].w == here.w { // else a step that failed is begun again
		passed, list = passed[:1], slices.Clone(passed[1:])
	}
	for last := here; len(list) < depth; list = append(list, last) {
		if len(list) > 0 {
			last = list[len(list)-1]
		}
		var ok bool
		if last, ok = s.upcoming(last); !ok {
			break
		}
	}
	s.begin(ctx, here.w, list)
	s.leave(passed)
	s.next[run.Span] = ahead{here.w, list}
}

func (s *Stream) leave(list []coming) {
	for _, c := range list {
		s.plan.leave(c.w)
	}
}

// depth is how many windows are read ahead.
func (s *Stream) depth() int {
	p := s.plan
	if p.walk.Plan.Shuffle != sampler.ShuffleNone {
		return 1
	}
	n := max(p.feed.store.Flying(p.walk.Snapshot), p.feed.decoders.stats("").Decoders)
	open := int(p.feed.open.Load())
	return (n + open - 1) / open
}

// begin has windows decoded that will be needed, the next one first, as far as there is memory.
func (s *Stream) begin(ctx context.Context, before *window, list []coming) {
	p := s.plan
	share := p.feed.ledger.Most() / (2 * p.feed.open.Load())
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, c := range list {
		share -= c.w.bytes
		switch {
		case i > 0 && share < 0:
			return
		case c.w.state != idle || p.follows(c.w, before):
		case !s.beginAhead(ctx, c.w, i == 0):
			return
		}
		before = c.w
	}
}

// follows tells whether the scanner that decodes one window is to go on with another one. The lock is held.
func (p *plan) follows(w, before *window) bool {
	a, b := p.walk.Blocks.At(before.pieces[0].Block), p.walk.Blocks.At(w.pieces[0].Block)
	return before.state != ready && a.Shard == b.Shard && a.Segment == b.Segment
}

// beginAhead begins to decode a window that is idle if there is memory for it: for the next one the convoy's own, which would
// lie idle, else what is free, which keeps blocks meanwhile. One that was taken away is not begun again before it is needed.
// The lock is held.
func (s *Stream) beginAhead(ctx context.Context, w *window, next bool) bool {
	switch c := s.convoy; {
	case w.load != nil:
		return false
	case next && c.leads(s) && c.loads == 0 && c.free() >= w.bytes:
		s.plan.begin(ctx, w, c, nil, s.walk.Tenant, false)
		return true
	default:
		return s.beginFree(ctx, w, false)
	}
}

// lookAhead is in how many steps the next window is looked for.
const lookAhead = 8

// upcoming finds the window that the stream needs after another one of its span, and counts one more user of it. It looks
// from where the window's rows end on.
func (s *Stream) upcoming(c coming) (next coming, ok bool) {
	step, run, e := c.step, c.run, c.w.epoch
	number := step.Number
	if batch := s.walk.Schedule.Batch(); batch > 0 {
		left := e.WindowRows(run.Span, run.Window) - run.To
		steps := max(left*s.plan.groups()/batch-1, 0)
		number += steps / s.walk.Stream.Workers * s.walk.Stream.Workers
	}
	for range lookAhead {
		if !s.has(number) {
			break
		}
		st := s.walk.Schedule.Step(number)
		if st.Epoch != e.Number() {
			e = s.plan.epoch(st.Epoch)
		}
		for r := range e.Runs(st, s.walk.Stream.Rank, s.walk.Stream.Ranks) {
			if r.Padded { // all that follow are, too
				break
			}
			if r.Span == run.Span && (st.Epoch > step.Epoch || r.Window > run.Window) {
				return coming{s.plan.use(e, place{st.Epoch, r.Span, r.Window}), st, r}, true
			}
		}
		number += s.walk.Stream.Workers
	}
	return coming{}, false
}

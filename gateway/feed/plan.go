package feed

import (
	"context"
	"sync"

	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

// plan is what streams of one plan and column set share: orders of epochs, windows, open scanners, convoys.
type plan struct {
	feed    *Feed
	key     planKey
	walk    Walk   // of whoever came first: what is the plan's is the same in all
	columns string // of the block keys
	streams int    // guarded by Feed.mu

	mu      sync.Mutex
	epochs  map[int64]*sampler.Epoch
	windows map[place]*window
	convoys map[*convoy]struct{}
	changed chan struct{} // closed, and made anew, when memory or the order of members may have changed

	lanes lanes
	ctx   context.Context // of all decoding for the plan
	end   context.CancelFunc
	work  sync.WaitGroup
}

// place is where a window stands.
type place struct {
	epoch        int64
	span, window int
}

func newPlan(f *Feed, key planKey, w Walk) *plan {
	ctx, end := context.WithCancel(context.Background())
	return &plan{
		feed: f, ctx: ctx, end: end, key: key, walk: w, columns: schema.Fingerprint(w.Projection.Schema),
		epochs: map[int64]*sampler.Epoch{}, windows: map[place]*window{}, convoys: map[*convoy]struct{}{},
		changed: make(chan struct{}),
	}
}

// keptEpochs is how many orders are kept: of the epoch that ends, of the one that begins, and one to spare.
const keptEpochs = 3

// epoch makes the order of an epoch, once for all streams.
func (p *plan) epoch(number int64) *sampler.Epoch {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epochLocked(number)
}

func (p *plan) epochLocked(number int64) *sampler.Epoch {
	if e := p.epochs[number]; e != nil {
		return e
	}
	e := p.walk.Order.Epoch(number)
	p.epochs[number] = e
	for old := range p.epochs {
		if len(p.epochs) > keptEpochs && old < number {
			delete(p.epochs, old)
		}
	}
	return e
}

// following returns the window after one in its span, at the end the first of the next epoch.
func (p *plan) following(at place, end int64) (next place, ok bool) {
	e := p.epoch(at.epoch)
	if at.window+1 < e.Windows(at.span) {
		return place{at.epoch, at.span, at.window + 1}, true
	}
	next = place{at.epoch + 1, at.span, 0}
	return next, end == sampler.Endless || next.epoch < end
}

// notify wakes all who wait for a change. The lock is held.
func (p *plan) notify() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// bytes is what the frames of a window will take, by the files' own word.
func (p *plan) bytes(pieces []sampler.Piece) (n int64) {
	for _, piece := range pieces {
		n += frame.Cost(p.walk.Blocks.At(piece.Block).Bytes)
	}
	return n
}

// need is the memory that serves the member furthest behind: the largest window of every span, its tables, and what the
// decoders use. Blocks of like size make windows of like size, so the first ones stand for all.
func (p *plan) need(epoch int64) int64 {
	e := p.epoch(epoch)
	scratch := p.feed.store.Need(p.walk.Snapshot, p.walk.Projection, p.walk.Blocks)
	need := p.walk.Order.EpochBytes()
	for span := range e.Spans() {
		var largest int64
		for w := range min(e.Windows(span), sampled) {
			pieces := e.Pieces(span, w)
			largest = max(largest, p.bytes(pieces)+e.WindowBytes(pieces))
		}
		need += largest
	}
	return need + scratch
}

// sampled is how many windows of a span are measured before a stream is admitted.
const sampled = 64

// convoy is streams of a plan near each other, which share the memory for one window.
type convoy struct {
	grant   *budget.Grant
	members map[*Stream]struct{}
}

// close ends all decoding of a plan that nobody reads any more.
func (p *plan) close() {
	p.end()
	p.work.Wait()
	p.lanes.close()
}

// near finds a convoy in whose windows, or next to them, a place lies. The lock is held.
func (p *plan) near(at place) *convoy {
	for c := range p.convoys {
		for m := range c.members {
			if m.at.epoch == at.epoch && m.at.window-1 <= at.window && at.window <= m.at.window+1 {
				return c
			}
		}
	}
	return nil
}

// leads tells whether no member of its convoy is behind a stream. The lock is held.
func (c *convoy) leads(s *Stream) bool {
	for m := range c.members {
		if m != s && (m.place.Epoch < s.place.Epoch || m.place.Epoch == s.place.Epoch && m.place.Rows < s.place.Rows) {
			return false
		}
	}
	return true
}

// admit reserves what a stream needs, all at once: memory for its batches, and for a window unless a convoy has it.
func (s *Stream) admit(wait context.Context) error {
	p := s.plan
	p.mu.Lock()
	if s.convoy = p.near(s.at); s.convoy != nil {
		s.convoy.members[s] = struct{}{} // from now on the convoy does not end without it
	}
	p.mu.Unlock()
	need := s.own()
	if s.convoy == nil {
		need += p.need(s.at.epoch)
	}
	grant, err := p.feed.ledger.Admit(wait, need)
	if err != nil {
		s.depart()
		return err
	}
	if s.grant = grant; s.convoy == nil {
		s.found(grant)
	}
	return nil
}

// own is the memory for the stream's batches: the one being made and the one on its way, each perhaps joined once more.
// In stored order they are slices of blocks, which stay until they are sent.
func (s *Stream) own() int64 {
	const least = 1 << 20
	blocks := s.walk.Blocks
	rows := max(1, blocks.Rows())
	share := s.walk.Schedule.Batch()/s.walk.Stream.Ranks + 1
	batch := frame.Cost(min(share, rows) * (s.walk.Blocks.Bytes()/rows + 8))
	if !s.plan.located() {
		return max(least, 2*batch+queued*frame.Cost(blocks.Largest()))
	}
	return max(least, 4*batch)
}

// queued is how many blocks of a stream gRPC holds at most: the message on its way and the next one.
const queued = 2

// found makes a convoy of its own for a stream, whose grant pays for the windows.
func (s *Stream) found(grant *budget.Grant) {
	s.plan.mu.Lock()
	defer s.plan.mu.Unlock()
	s.convoy = &convoy{grant: grant, members: map[*Stream]struct{}{s: {}}}
	s.plan.convoys[s.convoy] = struct{}{}
}

// depart takes a stream out of its convoy; the last one out ends it.
func (s *Stream) depart() {
	p, c := s.plan, s.convoy
	p.mu.Lock()
	defer p.mu.Unlock()
	if c != nil {
		delete(c.members, s)
		if len(c.members) == 0 {
			delete(p.convoys, c)
			c.grant.Close()
		}
	}
	p.notify()
}

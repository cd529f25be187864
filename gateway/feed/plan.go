package feed

import (
	"context"
	"sync"

	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/storage"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/cache"
)

// plan is what streams of one plan and column set share: orders of epochs, windows, open scanners, convoys.
type plan struct {
	feed    *Feed
	key     planKey
	walk    Walk // of whoever came first; only what is the plan's is used, which is the same in all
	columns *cache.Columns
	kept    *cache.Plan
	sizes   *storage.Sizes
	need    func() storage.Need // of a block; it takes a pass over all segments, once
	streams int                 // guarded by Feed.mu

	mu       sync.Mutex
	epochs   map[int64]*epoch
	uses     int64 // of epochs, so far
	windows  map[place]*window
	retiring int           // windows whose blocks are being given back
	lull     *lull         // of the stream that was the last one to enter a window
	scarce   chan struct{} // closed when streams wait for memory that others have
	convoys  map[*convoy]struct{}
	changed  chan struct{} // closed when memory or the order of members may have changed; nil: nobody waits for that

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

// epoch is the order of an epoch, made when it is first asked for.
type epoch struct {
	get  func() *sampler.Epoch
	used int64
	paid charge // of one that was made ahead
}

func newPlan(f *Feed, key planKey, w Walk) *plan {
	p := f.shape(w)
	p.ctx, p.end = context.WithCancel(context.Background())
	p.key, p.kept = key, f.cache.Open(key.name, w.again())
	return p
}

// shape is a plan that nobody reads: it tells what reading it takes.
func (f *Feed) shape(w Walk) *plan {
	sizes := f.store.Sizes(w.Snapshot, w.Projection)
	return &plan{
		feed: f, walk: w, columns: cache.NewColumns(w.Projection.Schema), sizes: sizes,
		need:   sync.OnceValue(func() storage.Need { return sizes.Need(w.Blocks) }),
		epochs: map[int64]*epoch{}, windows: map[place]*window{}, convoys: map[*convoy]struct{}{}, scarce: make(chan struct{}),
	}
}

// again tells whether a walk is by its look a job's, which reads all its blocks once in each epoch that is to come.
func (w Walk) again() bool { return w.Plan.Shuffle != sampler.ShuffleNone || w.Join }

// keptEpochs is how many orders are kept: of the epoch that ends, of the one that begins, and one to spare. Streams and
// windows hold theirs on their own.
const keptEpochs = 3

// epoch returns the order of an epoch, which is made once for all streams.
func (p *plan) epoch(number int64) *sampler.Epoch {
	p.mu.Lock()
	e := p.entry(number)
	p.mu.Unlock()
	return e.get()
}

// entry finds the order of an epoch, or has it made by whoever asks for it first. The lock is held.
func (p *plan) entry(number int64) *epoch {
	e := p.epochs[number]
	if e == nil {
		e = &epoch{get: sync.OnceValue(func() *sampler.Epoch { return p.walk.Order.Epoch(number) })}
		p.epochs[number] = e
	}
	p.uses++
	e.used = p.uses
	if len(p.epochs) > keptEpochs {
		p.dropEpoch()
	}
	return e
}

// prepare has the order of an epoch made ahead, if there is memory for it, so that no stream waits at the border: that
// takes a pass over all blocks.
func (p *plan) prepare(number int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.epochs[number] != nil {
		return
	}
	bytes := p.walk.Order.EpochBytes()
	grant, err := p.feed.ledger.Try(bytes)
	if err != nil {
		return
	}
	if err := grant.ChargeHeap(budget.Tables, bytes); err != nil {
		grant.Close()
		return
	}
	e := p.entry(number)
	e.paid = charge{grant, bytes}
	p.work.Go(func() {
		_ = protect(func() error { // if it panics, it does so again where it is asked for
			e.get()
			return nil
		})
	})
}

// drop gives back what was paid for an order.
func (e *epoch) drop() {
	if grant := e.paid.grant; grant != nil {
		e.paid.end()
		grant.Close()
	}
}

// dropEpoch forgets the one that was not used for longest. The lock is held.
func (p *plan) dropEpoch() {
	var oldest int64
	used := p.uses + 1
	for number, e := range p.epochs {
		if e.used < used {
			oldest, used = number, e.used
		}
	}
	p.epochs[oldest].drop()
	delete(p.epochs, oldest)
}

// change returns what is closed at the next change. The lock is held.
func (p *plan) change() <-chan struct{} {
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed
}

// notify wakes all who wait for a change. The lock is held.
func (p *plan) notify() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// located tells whether rows must be looked up: in stored order without a split a window is a block as it is.
func (p *plan) located() bool {
	return p.walk.Plan.Shuffle != sampler.ShuffleNone || p.walk.Plan.Split != nil
}

// groups is into how many spans positions are dealt out.
func (p *plan) groups() int64 {
	if p.walk.Plan.Shuffle == sampler.ShuffleWindow {
		return p.walk.Plan.Groups
	}
	return 1
}

// bytes is what a window of these blocks will take, by the files' own word or by what was measured.
func (p *plan) bytes(e *sampler.Epoch, pieces []sampler.Piece) int64 {
	n := p.tables(e, pieces)
	for _, piece := range pieces {
		n += p.sizes.Frames(p.walk.Blocks.At(piece.Block))
	}
	return n
}

// tables is what finding the rows of a window takes.
func (p *plan) tables(e *sampler.Epoch, pieces []sampler.Piece) int64 {
	if !p.located() {
		return 0
	}
	return e.WindowBytes(pieces)
}

// sampled is how many windows are measured before a stream is admitted: blocks of like size make windows of like size.
const sampled = 64

// window is the largest of every span, together.
func (p *plan) window(number int64) int64 {
	e := p.epoch(number)
	var largest int64
	spans := e.Spans()
	for i := range sampled {
		span, w := i%max(spans, 1), i/max(spans, 1)
		if span < spans && w < e.Windows(span) {
			largest = max(largest, p.bytes(e, e.Pieces(span, w)))
		}
	}
	return int64(spans) * largest
}

// leading is the memory that serves the leader: the largest window, for every span, the order, and what decoders use. Where
// only that is too much for room, the most there can be, it is left to the large slot, if that is enough: what was read
// once is not refused for what reading it was found to take.
func (p *plan) leading(number, room int64) int64 {
	windows := p.window(number)
	if !p.located() {
		windows *= 2 // one is decoded while the other is being sent: it costs little, and streams are slow without
	}
	rest, scratch := windows+p.walk.Order.EpochBytes(), p.scratch(p.need())
	if rest <= room && scratch <= p.feed.ledger.Slot() {
		scratch = min(scratch, room-rest)
	}
	return rest + scratch
}

// scratch is what a decoder may have of the windows' memory. What was only guessed to be more than the large slot is left
// to that; what was measured to be more can only be had here.
func (p *plan) scratch(need storage.Need) int64 {
	if need.Measured {
		return need.Scratch
	}
	return min(need.Scratch, max(p.feed.ledger.Slot(), leastScratch))
}

// leastScratch is a decoder's where there is no large slot, in bytes.
const leastScratch = 64 << 20

// reclaim takes away the windows that nobody pins and no convoy paid for. For a convoy it takes those that it paid for too,
// and closes idle scanners.
func (p *plan) reclaim(c *convoy) {
	p.mu.Lock()
	p.hurry()
	for _, w := range p.windows {
		if w.state == ready && w.pins == 0 && (w.payer == nil || w.owes(c)) {
			p.evict(w)
		}
	}
	p.mu.Unlock()
	if c != nil {
		p.lanes.close()
	}
}

// close ends all decoding of a plan that nobody reads any more.
func (p *plan) close() {
	p.end()
	p.work.Wait()
	p.lanes.close()
	for _, e := range p.epochs {
		e.drop()
	}
	p.feed.cache.ClosePlan(p.kept)
	p.feed.passes.end(p.key)
}

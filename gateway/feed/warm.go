package feed

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/snapshot"
)

// Warmth is how far the warming of a plan is.
type Warmth struct {
	Blocks int64 // that the plan reads
	Seen   int64 // of them, so far
	Kept   int64 // of those, that are there for the streams to come
	Loaded int64 // bytes that were not there before
	Mapped int64 // blocks seen that lie in mapped files and are not kept: the system's page cache has them
	Full   bool  // it ended because all memory that nobody needs is in use
}

// errFull ends a warming.
var errFull = errors.New("no memory is left that nobody needs")

// warming is one on its way.
type warming struct {
	plan                         *plan
	window                       *window // stands for all: blocks are loaded for whom it names
	seen, kept, loaded, byMapped atomic.Int64
}

// Warm loads the blocks of a walk's plan in the order in which its first epoch needs them, as long as there is memory that
// nobody else needs: nothing that is kept goes for it. told hears how far it is after every window; its error ends it.
func (f *Feed) Warm(ctx context.Context, w Walk, told func(Warmth) error) error {
	p := f.join(w)
	defer f.part(p)
	grant, err := f.ledger.Admit(ctx, w.Order.EpochBytes())
	if err != nil {
		return err
	}
	defer grant.Close()
	e := p.epoch(w.Schedule.Begin().Epoch)
	m := &warming{plan: p, window: &window{load: &load{tenant: w.Tenant}}}
	for pieces := range windowsOf(e) {
		err := m.pieces(ctx, pieces)
		if err != nil && !errors.Is(err, errFull) {
			return err
		}
		if told := told(m.so(err != nil)); told != nil || err != nil {
			return told
		}
	}
	return nil
}

// windowsOf yields the pieces of an epoch's windows in the order in which its streams, all together, need them: those of all
// spans at a time.
func windowsOf(e *sampler.Epoch) func(yield func([]sampler.Piece) bool) {
	return func(yield func([]sampler.Piece) bool) {
		for t := 0; ; t++ {
			pieces := abreast(e, t)
			if len(pieces) == 0 || !yield(pieces) {
				return
			}
		}
	}
}

// abreast returns the pieces of one window of each span.
func abreast(e *sampler.Epoch, window int) (pieces []sampler.Piece) {
	for span := range e.Spans() {
		if window < e.Windows(span) {
			pieces = append(pieces, e.Pieces(span, window)...)
		}
	}
	return pieces
}

func (m *warming) so(full bool) Warmth {
	return Warmth{
		Blocks: int64(m.plan.walk.Blocks.Len()), Seen: m.seen.Load(), Kept: m.kept.Load(), Loaded: m.loaded.Load(), Mapped: m.byMapped.Load(),
		Full: full,
	}
}

// pieces loads the blocks of a window, several at a time, like those that streams wait for.
func (m *warming) pieces(ctx context.Context, pieces []sampler.Piece) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(m.plan.feed.store.Flying(m.plan.walk.Snapshot), runtime.GOMAXPROCS(0)))
	for from, to := range m.plan.stretches(pieces) {
		group.Go(func() error {
			for _, piece := range pieces[from:to] {
				if err := m.block(ctx, m.plan.walk.Blocks.At(piece.Block)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// block loads one block, unless it is kept.
func (m *warming) block(ctx context.Context, b snapshot.Block) error {
	p := m.plan
	if key := p.blockKey(b); !p.feed.cache.Missing(key, p.columns) {
		m.seen.Add(1)
		m.kept.Add(1)
		return ctx.Err()
	}
	bytes := p.sizes.Frames(b)
	if s := p.feed.ledger.Stats(); s.Limit-s.Reserved < bytes || p.feed.cache.Room() < bytes {
		return errFull
	}
	grant, err := p.feed.ledger.Try(bytes)
	if err != nil {
		return errFull
	}
	defer grant.Close()
	lease, _, err := p.block(ctx, m.window, b, grant)
	if errors.Is(err, budget.ErrExhausted) {
		return errFull
	}
	if err != nil {
		return err
	}
	m.seen.Add(1)
	if lease.Mapped() {
		m.byMapped.Add(1)
	} else {
		m.kept.Add(1)
		m.loaded.Add(lease.Bytes())
	}
	lease.Release()
	return nil
}

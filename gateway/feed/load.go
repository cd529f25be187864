package feed

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/storage"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/cache"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

// decode fills a window. Its fields are set even if it fails, so that evict gives back what there is.
func (p *plan) decode(ctx context.Context, w *window, grant *budget.Grant) error {
	w.blocks = make([]*cache.Lease, len(w.pieces))
	if p.located() {
		tables := p.tables(w.epoch, w.pieces)
		if err := grant.ChargeHeap(budget.Tables, tables); err != nil {
			return err
		}
		w.tables = charge{grant, tables}
		if err := protect(func() error {
			w.rows = w.epoch.Open(w.at.span, w.at.window)
			return nil
		}); err != nil {
			return err
		}
	}
	return p.blocks(ctx, w, grant)
}

// blocks decodes the blocks of a window as decoders are free for them, from a store as many at a time as it should be asked
// for; those that follow each other in a segment one after the other, by one scanner.
func (p *plan) blocks(ctx context.Context, w *window, grant *budget.Grant) error {
	group, ctx := errgroup.WithContext(ctx)
	if n := p.feed.store.Flying(p.walk.Snapshot); n > 0 {
		group.SetLimit(n)
	}
	if w.load.modest {
		group.SetLimit(1)
	}
	for from, to := range p.stretches(w.pieces) {
		group.Go(func() error {
			return protect(func() (err error) {
				for i := from; i < to && err == nil; i++ {
					runtime.Gosched() // the streams that send batches come first
					var fetched bool
					w.blocks[i], fetched, err = p.block(ctx, w, p.walk.Blocks.At(w.pieces[i].Block), grant)
					if b := w.blocks[i]; err == nil && (!fetched || !b.Mapped()) { // what is mapped from where it is stored, the system's page cache has
						p.feed.passes.count(p, w.at.epoch, w.load.tenant, w.pieces[i].Block, b.Bytes(), fetched)
					}
				}
				return err
			})
		})
	}
	return group.Wait()
}

// stretches yields the runs [from, to) of pieces whose blocks follow each other in a segment.
func (p *plan) stretches(pieces []sampler.Piece) func(yield func(from, to int) bool) {
	return func(yield func(from, to int) bool) {
		for from := 0; from < len(pieces); {
			first, to := p.walk.Blocks.At(pieces[from].Block), from+1
			for ; to < len(pieces); to++ {
				next := p.walk.Blocks.At(pieces[to].Block)
				if next.Shard != first.Shard || next.Segment != first.Segment || pieces[to].Block > pieces[to-1].Block+p.gap() {
					break
				}
			}
			if !yield(from, to) {
				return
			}
			from = to
		}
	}
}

// gap is how many blocks on the next one of a lane can be: a split may leave nothing of those between, which then are
// short.
func (p *plan) gap() int {
	if p.walk.Plan.Split != nil {
		return 16
	}
	return 1
}

// block decodes one block, unless it is kept, or some window already has it, and tells whether it did.
func (p *plan) block(ctx context.Context, w *window, at snapshot.Block, grant *budget.Grant) (l *cache.Lease, fetched bool, err error) {
	l, err = p.feed.cache.Get(ctx, cache.Request{
		Block: p.blockKey(at), Columns: p.columns, Tenant: w.load.tenant, Plan: p.kept, Grant: grant,
		Dear: p.feed.store.Dear(p.walk.Snapshot, at.Shard), Read: func(took time.Duration) { w.load.took(storage.Took{Store: took}) },
		Load: func(ctx context.Context) (leases []*frame.Lease, err error) {
			turn, err := p.feed.decoders.enter(ctx, p, w.load.tenant)
			if err != nil {
				return nil, err
			}
			defer turn.leave()
			err = protect(func() (err error) {
				leases, err = p.read(ctx, turn, at, grant, w.load)
				return err
			})
			fetched = err == nil
			return leases, err
		},
	})
	if err == nil && !fetched {
		p.lanes.pass(at, p.rows(at))
	}
	return l, fetched, err
}

// blockKey names a block wherever it is kept.
func (p *plan) blockKey(b snapshot.Block) cache.Key {
	sh := p.walk.Snapshot.Shards[b.Shard]
	object := strings.Join([]string{p.walk.Snapshot.Dataset, sh.Key, strconv.FormatInt(sh.Size, 10), string(sh.Meta[:]), sh.Pin}, "\x00")
	return cache.Key{Object: object, Segment: b.Segment, From: b.From}
}

// missing is what a window will take beside the blocks that are kept, and those, which stay as long as they are held: else
// they might be what goes to make room for the others.
func (p *plan) missing(w *window) (bytes int64, held []*cache.Lease) {
	bytes = p.tables(w.epoch, w.pieces)
	for _, piece := range w.pieces {
		b := p.walk.Blocks.At(piece.Block)
		key := p.blockKey(b)
		if l := p.feed.cache.Hold(key, p.columns); l != nil {
			held = append(held, l)
		} else if p.feed.cache.Missing(key, p.columns) { // else somebody loads it
			bytes += p.sizes.Frames(b)
		}
	}
	return bytes, held
}

func release(all []*cache.Lease) {
	for _, l := range all {
		l.Release()
	}
}

// protect makes an error of a panic, which a file that nobody foresaw may cause.
func protect(do func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v\n%s", ErrPanic, r, debug.Stack())
		}
	}()
	return do()
}

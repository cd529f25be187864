package feed

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/storage"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

// lanes are the scanners that stay open between blocks of large segments, so that a segment that is followed from window
// to window is decoded once: one for each place in a segment from which windows go on. The zero value is ready.
type lanes struct {
	mu   sync.Mutex
	open []*lane // who was used last comes last
}

// lane is a scanner that stands at a row of its segment.
type lane struct {
	shard, segment int
	row            int64
	reader         *storage.Reader
	grant          *budget.Grant // pays for the scanner's scratch; nil: a window's does, and the scanner ends with its block
}

func (l *lane) close() {
	l.reader.Close()
	if l.grant != nil {
		l.grant.Close()
	}
}

// maxOpen is how many scanners stay open for a plan.
const maxOpen = 256

// read decodes a block, by the scanner that stands before it if there is one. The frames are charged to grant. A scanner
// that stays open outlives the window, so its scratch is charged elsewhere; if there is no memory for that, the window's
// pays for one that does not.
func (p *plan) read(ctx context.Context, b snapshot.Block, grant *budget.Grant, modest bool) ([]*frame.Lease, error) {
	followed := b.To < p.walk.Snapshot.Shards[b.Shard].Segments[b.Segment].Rows
	l := p.lanes.take(b, p.reach(b))
	if l == nil && followed && !modest {
		if own, err := p.feed.ledger.Try(0); err == nil {
			l = p.scanner(b, own)
			l.grant = own
		}
	}
	if l != nil {
		leases, err := p.follow(ctx, l, b, grant)
		if !errors.Is(err, budget.ErrExhausted) || l.grant == nil {
			return leases, err
		}
	}
	return p.follow(ctx, p.scanner(b, grant), b, grant)
}

// reach is how many rows before a block a scanner may stand that goes on to it. In stored order workers pass over each
// other's blocks; else the scanner in front of a block belongs to another lane, unless a split left nothing between.
func (p *plan) reach(b snapshot.Block) int64 {
	if p.walk.Plan.Shuffle == sampler.ShuffleNone {
		return b.From
	}
	return int64(p.gap()-1) * (b.To - b.From + 1)
}

func (p *plan) scanner(b snapshot.Block, grant *budget.Grant) *lane {
	return &lane{shard: b.Shard, segment: b.Segment, reader: p.feed.store.Open(p.walk.Snapshot, p.walk.Projection, grant)}
}

// follow decodes a block with a scanner, and keeps that open for the next one if it is not at the segment's end.
func (p *plan) follow(ctx context.Context, l *lane, b snapshot.Block, grant *budget.Grant) (leases []*frame.Lease, err error) {
	keep := false
	defer func() { // also after a panic
		if keep {
			p.lanes.put(l)
		} else {
			l.close()
		}
	}()
	l.reader.ChargeTo(grant)
	leases, err = l.reader.Block(ctx, b)
	l.row = b.To
	more := l.row < p.walk.Snapshot.Shards[b.Shard].Segments[b.Segment].Rows
	keep = err == nil && more && l.grant != nil && p.feed.line.Load() == 0
	return leases, err
}

// take takes out the scanner that stands nearest before a block, at most so many rows.
func (ls *lanes) take(b snapshot.Block, reach int64) *lane {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	best := -1
	for i, l := range ls.open {
		if l.shard == b.Shard && l.segment == b.Segment && l.row <= b.From && b.From-l.row <= reach {
			best, reach = i, b.From-l.row
		}
	}
	if best < 0 {
		return nil
	}
	l := ls.open[best]
	ls.open = slices.Delete(ls.open, best, best+1)
	return l
}

// put keeps a scanner for the next block; the one that was not used for longest makes room, or one at the same place: two
// streams follow the segment there, and one scanner is enough.
func (ls *lanes) put(l *lane) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	old := slices.IndexFunc(ls.open, func(o *lane) bool {
		return o.shard == l.shard && o.segment == l.segment && o.row == l.row
	})
	if old < 0 && len(ls.open) == maxOpen {
		old = 0
	}
	if old >= 0 {
		ls.open[old].close()
		ls.open = slices.Delete(ls.open, old, old+1)
	}
	ls.open = append(ls.open, l)
}

// close closes every scanner that is not in use.
func (ls *lanes) close() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.open {
		l.close()
	}
	ls.open = nil
}

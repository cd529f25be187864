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

	working int           // scanners of a store that work with a loan
	ended   chan struct{} // closed when one of them has ended that; nil: nobody waits
}

// lane is a scanner that stands at a row of its segment.
type lane struct {
	shard, segment int
	row            int64
	reader         *storage.Reader
	grant          *budget.Grant   // pays for what the scanner works with
	wanted         <-chan struct{} // closed when that memory is wanted back; nil: a window's grant pays
	taken          chan struct{}   // closed when the scanner is taken out
}

func (l *lane) close() {
	l.reader.Close()
	if l.wanted != nil {
		l.grant.Close()
	}
}

// wasted tells whether the scanner must not stay open: its memory is wanted back, or has ended.
func (l *lane) wasted() bool {
	select {
	case <-l.wanted:
		return true
	default:
		return l.grant.Closed()
	}
}

// maxOpen is how many scanners stay open for a plan.
const maxOpen = 256

// read decodes a block, by the scanner that stands before it if there is one. The frames are charged to grant. What a
// scanner works with is a loan, which outlives the window and goes back when somebody waits for memory; if there is none
// to be had, the window's grant pays. A block that outgrows that is decoded again in the large slot.
func (p *plan) read(ctx context.Context, t *turn, b snapshot.Block, grant *budget.Grant, of *load) ([]*frame.Lease, error) {
	ctx = t.under(ctx)
	if l := p.lanes.take(b, p.reach(b)); l != nil {
		if leases, err := p.lend(ctx, t, l, b, grant, of); !outgrown(err) {
			return leases, err
		}
	}
	if !of.modest {
		loan, revoked := p.feed.ledger.Loan()
		if leases, err := p.lend(ctx, t, p.scanner(b, loan, revoked), b, grant, of); !outgrown(err) {
			return leases, err
		}
	}
	p.lanes.closeThose(func(l *lane) bool { return l.grant == grant })
	leases, err := p.follow(ctx, p.scanner(b, grant, nil), b, grant, of)
	if !outgrown(err) {
		return leases, err
	}
	back := t.wait() // who has the slot may be in need of a decoder
	large, wanted, none := p.feed.ledger.Large(ctx)
	back()
	switch {
	case none == nil:
		return p.follow(ctx, p.scanner(b, large, wanted), b, grant, of)
	case errors.Is(none, budget.ErrExhausted):
		return nil, err
	default:
		return nil, none
	}
}

// outgrown tells whether a decoder had too little memory, and not its frames.
func outgrown(err error) bool { return errors.Is(err, budget.ErrScratch) }

// reach is how many rows before a block a scanner may stand that goes on to it. In stored order workers pass over each
// other's blocks; else the scanner in front of a block belongs to another lane, unless a split left nothing between.
func (p *plan) reach(b snapshot.Block) int64 {
	if p.walk.Plan.Shuffle == sampler.ShuffleNone {
		return b.From
	}
	return int64(p.gap()-1) * (b.To - b.From + 1)
}

func (p *plan) scanner(b snapshot.Block, g *budget.Grant, wanted <-chan struct{}) *lane {
	return &lane{
		shard: b.Shard, segment: b.Segment, grant: g, wanted: wanted,
		reader: p.feed.store.Open(p.walk.Snapshot, p.walk.Projection, g),
	}
}

// follow decodes a block with a scanner, and keeps that open for the next one if it is not at the segment's end.
func (p *plan) follow(ctx context.Context, l *lane, b snapshot.Block, grant *budget.Grant, of *load) (leases []*frame.Lease, err error) {
	keep := false
	defer func() { // also after a panic
		if !keep || l.wasted() {
			l.close()
			return
		}
		if taken := p.lanes.put(l); l.wanted != nil {
			p.work.Go(func() { p.watch(l, taken) })
		}
	}()
	l.reader.ChargeTo(grant)
	leases, err = l.reader.Block(ctx, b)
	if l.wanted != nil {
		l.grant.Expect(0)
	}
	of.took(l.reader.Took())
	l.row = b.To
	keep = err == nil && l.row < p.rows(b)
	return leases, err
}

// rows is how many rows the segment of a block has.
func (p *plan) rows(b snapshot.Block) int64 {
	return p.walk.Snapshot.Shards[b.Shard].Segments[b.Segment].Rows
}

// watch closes a scanner that nobody uses when its memory is wanted back.
func (p *plan) watch(l *lane, taken <-chan struct{}) {
	select {
	case <-l.wanted:
		p.lanes.closeThose(func(o *lane) bool { return o == l })
	case <-taken:
	case <-p.ctx.Done():
	}
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
	ls.remove(best)
	return l
}

// pass lets the scanner before a block that was found in memory go on behind it, so that it serves what follows: the block's
// pages are passed over, not decoded, when the next one is read.
func (ls *lanes) pass(b snapshot.Block, rows int64) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	i := ls.at(b.Shard, b.Segment, b.From)
	if i < 0 {
		return
	}
	if b.To == rows || ls.at(b.Shard, b.Segment, b.To) >= 0 {
		ls.open[i].close()
		ls.remove(i)
		return
	}
	ls.open[i].row = b.To
}

// at returns the scanner that stands at a row of a segment, or -1. The lock is held.
func (ls *lanes) at(shard, segment int, row int64) int {
	return slices.IndexFunc(ls.open, func(l *lane) bool { return l.shard == shard && l.segment == segment && l.row == row })
}

// remove takes a scanner out. The lock is held.
func (ls *lanes) remove(i int) {
	close(ls.open[i].taken)
	ls.open = slices.Delete(ls.open, i, i+1)
}

// put keeps a scanner for the next block; the one that was not used for longest makes room, or one at the same place: two
// streams follow the segment there, and one scanner is enough. What it returns is closed when the scanner is taken out.
func (ls *lanes) put(l *lane) (taken <-chan struct{}) {
	l.taken = make(chan struct{})
	ls.mu.Lock()
	defer ls.mu.Unlock()
	old := ls.at(l.shard, l.segment, l.row)
	if old < 0 && len(ls.open) == maxOpen {
		old = 0
	}
	if old >= 0 {
		ls.open[old].close()
		ls.remove(old)
	}
	ls.open = append(ls.open, l)
	return l.taken
}

// closeThose closes the scanners that are not in use and that a function chooses.
func (ls *lanes) closeThose(chosen func(*lane) bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for i := len(ls.open) - 1; i >= 0; i-- {
		if l := ls.open[i]; chosen(l) {
			l.close()
			ls.remove(i)
		}
	}
}

// sweep closes those whose memory has ended.
func (ls *lanes) sweep() { ls.closeThose(func(l *lane) bool { return l.grant.Closed() }) }

// close closes every scanner that is not in use.
func (ls *lanes) close() { ls.closeThose(func(*lane) bool { return true }) }

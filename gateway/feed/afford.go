package feed

import (
	"context"

	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

// lend decodes a block with a scanner that works with a loan, once there is enough to lend: what one has fetched from a store
// that then fails for want of memory is fetched again.
func (p *plan) lend(ctx context.Context, t *turn, l *lane, b snapshot.Block, grant *budget.Grant, of *load) ([]*frame.Lease, error) {
	if p.feed.store.Flying(p.walk.Snapshot) == 0 {
		return p.follow(ctx, l, b, grant, of)
	}
	if err := p.afford(ctx, t, l, p.sizes.Scratch(b)); err != nil {
		l.close()
		return nil, err
	}
	defer p.lanes.end()
	return p.follow(ctx, l, b, grant, of)
}

// afford waits until a scanner has all the memory that it is expected to need, or as much as can be had.
func (p *plan) afford(ctx context.Context, t *turn, l *lane, need int64) error {
	enough := func() bool { return l.wanted == nil || l.grant.Expect(need) }
	for {
		ended := p.lanes.begin(enough, p.walk.Plan.Shuffle != sampler.ShuffleNone)
		if ended == nil {
			return nil
		}
		back := t.wait() // others may be in need of a decoder
		select {
		case <-ended:
		case <-ctx.Done():
		}
		back()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// begin counts a scanner as at work once it has enough memory. While others are at work it returns what is closed when one
// of them ends; else those that are not in use are closed for it, and when none is left it has to do with what there is.
func (ls *lanes) begin(enough func() bool, latest bool) (ended <-chan struct{}) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for !enough() {
		if ls.working > 0 {
			if ls.ended == nil {
				ls.ended = make(chan struct{})
			}
			return ls.ended
		}
		if len(ls.open) == 0 {
			break
		}
		ls.shed(latest)
	}
	ls.working++
	return nil
}

// end counts a scanner as no more at work.
func (ls *lanes) end() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.working--
	if ls.ended != nil {
		close(ls.ended)
		ls.ended = nil
	}
}

// shed closes a scanner that is not in use: where all of them go on in each window the one that was used last, for it is
// needed last, else the one that was not used for longest. The lock is held.
func (ls *lanes) shed(latest bool) {
	i := 0
	if latest {
		i = len(ls.open) - 1
	}
	ls.open[i].close()
	ls.remove(i)
}

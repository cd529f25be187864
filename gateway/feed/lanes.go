package feed

import (
	"context"
	"sync"

	"github.com/headrace/headrace/storage"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

// lanes are the scanners that stay open between blocks of large segments, so that a segment that is followed from window
// to window is decoded once. Each segment has at most one. The zero value is ready.
type lanes struct {
	mu   sync.Mutex
	open map[segmentKey]*lane
	last int64 // of the uses
}

type segmentKey struct{ shard, segment int }

// lane is a scanner that stands at a row of its segment.
type lane struct {
	reader *storage.Reader
	grant  *budget.Grant // pays for the scanner's scratch; nil: a window's does, and the scanner ends with its block
	row    int64
	used   int64
}

func (l *lane) close() {
	l.reader.Close()
	if l.grant != nil {
		l.grant.Close()
	}
}

// maxOpen is how many scanners stay open for a plan.
const maxOpen = 256

// read decodes a block, by the scanner that stands before it if there is one. The frames are charged to grant.
func (ls *lanes) read(ctx context.Context, p *plan, b snapshot.Block, grant *budget.Grant) ([]*frame.Lease, error) {
	key := segmentKey{b.Shard, b.Segment}
	segment := p.walk.Snapshot.Shards[b.Shard].Segments[b.Segment]
	l := ls.take(key, b.From)
	if l == nil {
		l = p.scanner(b.To < segment.Rows, grant)
	}
	l.reader.ChargeTo(grant)
	leases, err := l.reader.Block(ctx, b)
	l.row = b.To
	if err != nil || l.grant == nil || l.row == segment.Rows {
		l.close()
		return leases, err
	}
	ls.put(key, l)
	return leases, nil
}

// scanner opens one. A followed one has a grant of its own, for it outlives the window whose memory pays for the block;
// without memory for that it is closed after the block.
func (p *plan) scanner(followed bool, grant *budget.Grant) *lane {
	l := &lane{}
	if followed {
		if own, err := p.feed.ledger.Try(0); err == nil {
			l.grant, grant = own, own
		}
	}
	l.reader = p.feed.store.Open(p.walk.Snapshot, p.walk.Projection, grant)
	return l
}

// take takes out the scanner of a segment if it stands at or before a row.
func (ls *lanes) take(key segmentKey, row int64) *lane {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.open[key]
	if l == nil || l.row > row {
		return nil
	}
	delete(ls.open, key)
	return l
}

// put keeps a scanner for the next block; the one that was not used for longest makes room.
func (ls *lanes) put(key segmentKey, l *lane) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.open == nil {
		ls.open = map[segmentKey]*lane{}
	}
	if old := ls.open[key]; old != nil { // two streams follow the segment: one scanner is enough
		old.close()
	}
	ls.last++
	l.used = ls.last
	ls.open[key] = l
	if len(ls.open) > maxOpen {
		ls.drop()
	}
}

func (ls *lanes) drop() {
	var oldest segmentKey
	used := ls.last + 1
	for key, l := range ls.open {
		if l.used < used {
			oldest, used = key, l.used
		}
	}
	ls.open[oldest].close()
	delete(ls.open, oldest)
}

// close closes every scanner.
func (ls *lanes) close() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.open {
		l.close()
	}
	ls.open = nil
}

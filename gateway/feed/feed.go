// Package feed walks a plan: prefetches frames, gathers rows, yields batches with cursors.
//
// A plan's rows lie in windows of blocks (in stored order every block is a window). A [Stream] goes from window to window:
// it waits until the blocks of the one it needs are decoded, takes its rows of them, and has the next window that it
// needs decoded meanwhile. Windows belong to the plan, blocks to the cache: whoever needs one that is there shares it, so a
// block that many ranks or jobs need at a time is decoded once, and what was read in one epoch may still be there in the next.
//
// # Memory
//
// Every stream has memory of its own for its batches. For windows, streams of one plan that are near each other form a
// convoy. The first of them brings memory for one window (of each group), which serves the member that is furthest
// behind, the leader. Windows beyond it, those read ahead and those of members that run ahead, are decoded only if
// memory is free at once, or the leader's convoy has some that would lie idle; a member that cannot have one waits.
//
// A window is pinned only while somebody copies out of it or waits for it, and who waits pins no other. Between the
// batches of a stream, while its client may take all the time it likes, its windows can be taken away: by the leader
// of the convoy that paid for them, or, if they were beyond, by whoever needs memory. They are decoded again when
// they are needed. So no client can keep memory from another one's stream, and no set of streams can block each other.
//
// What a scanner works with is lent while nobody waits for memory, so that it may stay open from window to window; else
// the memory of the window pays, and a block that needs more than that is decoded in the ledger's large slot. One that reads
// from a store begins when what it is expected to need is there, for what it fetched is lost if it fails: blocks of a window
// wait for each other, and scanners that are not in use give up their places.
package feed

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/cache"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

// ErrPanic says that reading a block failed in a way that nobody foresaw; the text has the stack.
var ErrPanic = errors.New("panic while reading")

// Walk says what a stream reads: its steps of a schedule, from First on.
type Walk struct {
	Name       string // of the plan with its columns: streams of one name share their windows
	Plan       sampler.Plan
	Snapshot   *snapshot.Snapshot
	Blocks     *snapshot.Blocks // of the plan's shards, as the order numbers them
	Projection *schema.Projection
	Order      *sampler.Order
	Schedule   *sampler.Schedule
	Stream     sampler.Stream
	First      int64 // the first step that is not yet given out; the stream takes those of them that are its own
	Join       bool  // steps have a size of their own: their rows are to come together
	RowID      bool  // append the column __row_id
	Tenant     string
}

// Feed is what the streams of a gateway share.
type Feed struct {
	store  *storage.Store
	pool   *frame.Pool
	ledger *budget.Ledger
	cache  *cache.Cache
	// decoders are those of the process.
	decoders *pool

	mu     sync.Mutex
	plans  map[planKey]*plan
	passes passes
	open   atomic.Int64 // streams that are open
	line   atomic.Int64 // streams that wait for memory to be admitted: the one whose turn it is
	opened atomic.Int64 // streams so far
}

// planKey tells plans apart, also those of the same name whose files were opened anew.
type planKey struct {
	name string
	snap *snapshot.Snapshot
}

// New makes a feed.
func New(store *storage.Store, pool *frame.Pool, ledger *budget.Ledger, kept *cache.Cache, d Decoders) *Feed {
	return &Feed{store: store, pool: pool, ledger: ledger, cache: kept, decoders: newPool(d), plans: map[planKey]*plan{}}
}

// Decoding tells what the decoders do for a tenant at this moment; "" is all tenants.
func (f *Feed) Decoding(tenant string) Decoding { return f.decoders.stats(tenant) }

// Open admits a stream, which waits in line for memory until ctx ends. Close must be called.
func (f *Feed) Open(ctx context.Context, w Walk) (*Stream, error) {
	p := f.join(w)
	s, err := newStream(p, w)
	if err == nil {
		err = s.admit(ctx)
	}
	if err != nil {
		f.part(p)
		return nil, err
	}
	return s, nil
}

// join finds the plan of a walk or makes it.
func (f *Feed) join(w Walk) *plan {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := planKey{w.Name, w.Snapshot}
	p := f.plans[key]
	if p == nil {
		p = newPlan(f, key, w)
		f.plans[key] = p
	}
	p.streams++
	f.open.Add(1)
	return p
}

// part ends a stream's interest in a plan; after the last one's, all that is done for the plan ends.
func (f *Feed) part(p *plan) {
	f.mu.Lock()
	p.streams--
	f.open.Add(-1)
	last := p.streams == 0
	if last {
		delete(f.plans, p.key)
	}
	f.mu.Unlock()
	if last {
		p.close()
	}
}

// reserve takes memory for a stream whose turn it is, and waits for it. What is beyond the convoys makes room.
func (f *Feed) reserve(ctx context.Context, turn *budget.Place, need int64) (*budget.Grant, error) {
	if g, err := turn.Try(need); err == nil {
		return g, nil
	}
	f.line.Add(1) // from now on nobody keeps such a window
	defer f.line.Add(-1)
	f.reclaim(nil)
	return turn.Admit(ctx, need)
}

// reclaim has every plan do so.
func (f *Feed) reclaim(c *convoy) {
	f.mu.Lock()
	plans := slices.Collect(maps.Values(f.plans))
	f.mu.Unlock()
	for _, p := range plans {
		p.reclaim(c)
	}
}

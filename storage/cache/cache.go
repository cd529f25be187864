// Package cache keeps frames under a policy, loading each one once.
//
// An entry is one block with one set of columns: it is loaded, kept and given up
// whole. While somebody leases it, it stays. When its last lease is given back,
// the cache takes over paying for it, with memory that nobody else wants: from
// the ledger's keeper. Whenever anybody needs that, the policy says what goes.
//
// What is kept and leased again is still paid for by the cache, for its new holder
// has as much memory reserved: should the cache's be wanted back meanwhile, the
// holder takes the payment over. So a hit touches no books but its own.
package cache

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

// Options of a Cache.
type Options struct {
	Ledger *budget.Ledger
	Pool   *frame.Pool
	Limit  int64              // bytes that are kept at most; 0: all that nobody else needs
	Policy string             // one of Policies; empty: Auto
	Shares map[string]float64 // by tenant, of what is kept: what others read never pushes it below
	Below  Below              // nil: what memory does not have is loaded
}

// Cache keeps frames. It is safe for concurrent use.
type Cache struct {
	options Options
	keeper  *budget.Keeper
	grant   *budget.Grant // of the keeper
	limit   int64
	index   *index
	journal journal
	work    sync.WaitGroup
	done    chan struct{}
	counts  counts
	inUse   atomic.Pointer[string] // the policy in use; set under mu

	mu     sync.Mutex // guards all below and all parts; taken before those of shards
	policy string     // perhaps Auto
	parts  []*part
	shared *part // of tenants without a share
	tenant map[string]*part
	order  []*part // scratch of fullest
	plans  map[string]*Plan
	kept   int64 // bytes that the cache pays for
	clock  uint64
}

// New makes a cache. Close must be called.
func New(o Options) (*Cache, error) {
	if o.Policy == "" {
		o.Policy = Auto
	}
	c := &Cache{
		options: o, limit: o.Limit, index: newIndex(), done: make(chan struct{}),
		tenant: map[string]*part{}, plans: map[string]*Plan{},
	}
	if c.limit == 0 {
		c.limit = o.Ledger.Stats().Limit
	}
	rest := 1.0
	for name, share := range o.Shares {
		if share <= 0 || share > 1 {
			return nil, fmt.Errorf("cache: tenant %q has a share of %v of memory: it is to be more than 0 and at most 1", name, share)
		}
		rest -= share
		c.tenant[name] = &part{share: share}
		c.parts = append(c.parts, c.tenant[name])
	}
	if rest < -1e-9 {
		return nil, fmt.Errorf("cache: the tenants' shares of memory are %.3f in all: more than there is", 1-rest)
	}
	c.shared = &part{share: max(rest, leastShare)}
	c.parts = append(c.parts, c.shared)
	if err := c.SetPolicy(o.Policy); err != nil {
		return nil, err
	}
	c.keeper = o.Ledger.Keep(c.give)
	c.grant = c.keeper.Grant()
	c.work.Go(c.repay)
	return c, nil
}

// active names the policy in use.
func (c *Cache) active() string { return *c.inUse.Load() }

// repay gives up what is wanted back, until the cache is closed.
func (c *Cache) repay() {
	for {
		select {
		case <-c.keeper.Wake():
			c.keeper.Repay()
		case <-c.done:
			return
		}
	}
}

// Close gives up everything. All leases are given back before; the error says
// how many were not.
func (c *Cache) Close() error {
	close(c.done)
	c.work.Wait()
	c.give(math.MaxInt64)
	c.keeper.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	leased := 0
	c.each(func(*entry) bool {
		leased++
		return true
	})
	if leased > 0 {
		return fmt.Errorf("cache: closed with %d blocks leased", leased)
	}
	return nil
}

// Request says which block is wanted, with what.
type Request struct {
	Block   Key
	Columns *Columns
	Tenant  string
	Plan    *Plan // that asks
	// Grant pays for what is loaded, until it is given back, and has as many bytes
	// to spare for what is not.
	Grant *budget.Grant
	// Load decodes the block into frames with these columns, charged to Grant.
	Load func(context.Context) ([]*frame.Lease, error)
	// Dear tells that loading costs more than reading as much from a local disk.
	Dear bool
	// Read is told what it took to have the block from the tier below; nil: nobody asks.
	Read func(time.Duration)
}

// Get returns a lease on a block: one that is there, or is being loaded for
// another, perhaps with more columns, or loads it. The error is that of Load, or
// of the context.
func (c *Cache) Get(ctx context.Context, r Request) (*Lease, error) {
	hash := c.index.hash(r.Block)
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		e, fresh := c.enter(hash, r, false)
		if fresh {
			return c.load(ctx, e, r, c.fetch)
		}
		hit := e.loaded()
		if !hit {
			select {
			case <-e.done:
			case <-ctx.Done():
				c.leave(e)
				return nil, ctx.Err()
			}
		}
		if err := e.err; err != nil {
			c.leave(e)
			if !errors.Is(err, context.Canceled) && !errors.Is(err, budget.ErrExhausted) {
				return nil, err
			}
			continue // it was who loaded it that gave up, or had no memory
		}
		c.touch(e, r)
		if e.columns.same(r.Columns) {
			c.counts.of(r.Tenant, c.active()).memory.Add(1)
			return &Lease{cache: c, entry: e, frames: e.frames}, nil
		}
		return c.narrow(ctx, hash, e, r)
	}
}

// enter finds an entry that serves a request, or makes one that the caller has to
// load, and leases it. With exact, others with more columns do not do.
func (c *Cache) enter(hash uint64, r Request, exact bool) (e *entry, fresh bool) {
	s := c.index.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.blocks[r.Block] {
		if o.columns.same(r.Columns) {
			e = o
			break
		}
		if _, wider := r.Columns.Within(o.columns); wider && !exact && (e == nil || o.loaded() && (!e.loaded() || o.bytes < e.bytes)) {
			e = o
		}
	}
	if fresh = e == nil; fresh {
		e = &entry{key: r.Block, columns: r.Columns, shard: s, part: c.shared, tenant: r.Tenant, done: make(chan struct{}), payer: r.Grant}
		e.entry, e.hash = e, hash
		if p := c.tenant[r.Tenant]; p != nil {
			e.part = p
		}
		s.blocks[r.Block] = append(s.blocks[r.Block], e)
	}
	if e.leases.Add(1); e.user == nil {
		e.user = r.Grant
	}
	return e, fresh
}

// Hold keeps a block that is there from being given up until the lease is given
// back; nil if it is not there. It is for who is about to ask for memory, to Get
// the block with: what is held counts as nobody's, and as no hit.
func (c *Cache) Hold(k Key, columns *Columns) *Lease {
	return c.hold(k, func(e *entry) bool {
		_, ok := columns.Within(e.columns)
		return ok
	})
}

// hold leases an entry of a block that is there and fits, nil if none does.
func (c *Cache) hold(k Key, fits func(*entry) bool) *Lease {
	s := c.index.shard(c.index.hash(k))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.blocks[k] {
		if e.loaded() && fits(e) {
			e.leases.Add(1)
			return &Lease{cache: c, entry: e, frames: e.frames}
		}
	}
	return nil
}

// Room returns how many more bytes may be kept, if the ledger has them.
func (c *Cache) Room() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.limit - c.kept
}

// Capacity returns how many bytes blocks could have at the moment: those in use, and all memory beside that nobody needs.
func (c *Cache) Capacity() int64 {
	s := c.options.Ledger.Stats()
	c.mu.Lock()
	defer c.mu.Unlock()
	inUse := -c.kept
	for _, p := range c.parts {
		inUse += p.bytes
	}
	return inUse + min(c.limit, s.Limit-s.Reserved+s.Lent)
}

// Missing tells whether a block would have to be loaded.
func (c *Cache) Missing(k Key, columns *Columns) bool {
	s := c.index.shard(c.index.hash(k))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.blocks[k] {
		if _, ok := columns.Within(o.columns); ok {
			return false
		}
	}
	return true
}

// touch notes that an entry was used.
func (c *Cache) touch(e *entry, r Request) {
	if e.plan.Load() != r.Plan {
		e.plan.Store(r.Plan)
	}
	if c.journal.note(e) && c.mu.TryLock() {
		c.drain()
		c.mu.Unlock()
	}
}

// drain tells the policies what was used. The cache's lock is held.
func (c *Cache) drain() {
	c.journal.drain(func(e *entry) {
		if e.list != nil { // else it has gone meanwhile
			c.use(e)
		}
	})
}

func (c *Cache) use(e *entry) {
	c.clock++
	e.used = c.clock
	e.part.use(e)
}

// loader makes frames for a request, and says which tier had the block; "" is none.
type loader func(context.Context, Request) (frames []*frame.Lease, tier string, err error)

// load makes the frames of an entry.
func (c *Cache) load(ctx context.Context, e *entry, r Request, load loader) (*Lease, error) {
	e.err = errLoad // unless it ends well: it may panic
	defer func() {
		if e.err != nil {
			e.shard.mu.Lock()
			e.shard.drop(e) // before anybody hears of it
			e.shard.mu.Unlock()
			close(e.done)
			c.leave(e)
		}
	}()
	frames, tier, err := load(ctx, r)
	if err != nil {
		e.err = err
		return nil, err
	}
	e.frames = frames
	for _, f := range frames {
		e.bytes += f.Bytes()
		e.mapped = e.mapped || f.Mapped()
	}
	e.plan.Store(r.Plan)
	e.err = nil
	c.mu.Lock()
	c.drain()
	c.use(e)
	c.mu.Unlock()
	close(e.done)
	c.counts.of(r.Tenant, c.active()).load(tier, e.bytes)
	if tier == "" && r.Dear && !e.mapped && c.options.Below != nil {
		c.options.Below.Loaded(c, r)
	}
	return &Lease{cache: c, entry: e, frames: frames}, nil
}

// errLoad is the error of a load that ended in a panic.
var errLoad = errors.New("cache: loading a block panicked")

// narrow serves some columns of an entry that has more, and is leased: as they
// are if the grant can pay for the whole, else as a copy.
func (c *Cache) narrow(ctx context.Context, hash uint64, e *entry, r Request) (*Lease, error) {
	places, _ := r.Columns.Within(e.columns)
	views := func() []*frame.Lease {
		all := make([]*frame.Lease, len(e.frames))
		for i, f := range e.frames {
			all[i] = f.Select(r.Columns.schema, places)
		}
		return all
	}
	if c.charge(e, r.Grant) {
		c.counts.of(r.Tenant, c.active()).memory.Add(1)
		return &Lease{cache: c, entry: e, frames: views(), selected: true}, nil
	}
	defer c.leave(e)
	for {
		own, fresh := c.enter(hash, r, true)
		if fresh {
			return c.load(ctx, own, r, func(context.Context, Request) ([]*frame.Lease, string, error) {
				all := views()
				defer release(all)
				copies, err := c.copy(r, all)
				return copies, Memory, err
			})
		}
		select {
		case <-own.done:
		case <-ctx.Done():
			c.leave(own)
			return nil, ctx.Err()
		}
		if own.err == nil {
			c.touch(own, r)
			c.counts.of(r.Tenant, c.active()).memory.Add(1)
			return &Lease{cache: c, entry: own, frames: own.frames}, nil
		}
		c.leave(own)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// copy makes frames of their own of views on others.
func (c *Cache) copy(r Request, views []*frame.Lease) (all []*frame.Lease, err error) {
	for _, v := range views {
		b := v.Batch()
		f, err := c.options.Pool.Assemble(r.Grant, budget.Frames, r.Columns.schema, []frame.Piece{frame.PieceOf(b, 0, b.NumRows())})
		if err != nil {
			release(all)
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

func release(all []*frame.Lease) {
	for _, f := range all {
		f.Release()
	}
}

// charge makes a grant pay for an entry that the cache pays for, unless somebody
// else leases it anyway. It tells whether the entry may stay leased.
func (c *Cache) charge(e *entry, g *budget.Grant) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.shard.mu.Lock()
	defer e.shard.mu.Unlock()
	if e.payer != c.grant || e.leases.Load() > 1 {
		return true
	}
	return c.pay(e, g)
}

// pay lets another grant pay for an entry, if it can. The locks of the cache and
// of the entry's shard are held.
func (c *Cache) pay(e *entry, to *budget.Grant) bool {
	for i, f := range e.frames {
		if !f.Pay(to) {
			for _, back := range e.frames[:i] {
				back.Pay(e.payer) // unless the bytes are another's by now: each frame knows who pays
			}
			return false
		}
	}
	if e.payer == c.grant {
		c.kept -= e.bytes
	}
	if to == c.grant {
		c.kept += e.bytes
	}
	e.payer = to
	return true
}

// leave ends one lease on an entry. After the last one's it is kept, if there is room.
func (c *Cache) leave(e *entry) {
	e.shard.mu.Lock()
	last, mine := e.leases.Add(-1) == 0, e.payer == c.grant
	if last {
		e.user = nil
	}
	e.shard.mu.Unlock()
	switch {
	case !last || e.err != nil:
	case !mine:
		c.keep(e)
	case c.keeper.Wanted() > 0:
		c.keeper.Repay()
	}
}

// keep takes over an entry that nobody leases any more, or gives it up.
func (c *Cache) keep(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drain()
	for e.list != nil { // else it was a victim
		short, calm := c.keeper.Short(e.payer, e.bytes)
		short = max(short, c.kept+e.bytes-c.limit)
		gone := []*entry{e}
		switch {
		case e.mapped || !calm || e.bytes > c.limit:
			if !c.drop(e) {
				return // it is leased again
			}
		case short <= 0:
			if c.settle(e) || !c.drop(e) {
				return
			}
		default:
			if gone = c.victims(short, e.part); len(gone) == 0 && !c.drop(e) {
				return
			} else if len(gone) == 0 {
				gone = []*entry{e}
			}
		}
		c.free(gone)
	}
}

// settle takes over the payment for an entry unless it is leased again, and tells
// whether all is well.
func (c *Cache) settle(e *entry) bool {
	e.shard.mu.Lock()
	defer e.shard.mu.Unlock()
	return e.leases.Load() > 0 || e.payer == c.grant || c.pay(e, c.grant)
}

// free gives up frames. The cache's lock is held, but not meanwhile: unmapping takes time.
func (c *Cache) free(gone []*entry) {
	c.mu.Unlock()
	for _, e := range gone {
		e.free()
	}
	c.mu.Lock()
}

// give gives up so many bytes: what is not leased, and if that is not enough, the
// payment for what is.
func (c *Cache) give(n int64) (freed int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drain()
	gone := c.victims(n, nil)
	for _, e := range gone {
		freed += e.bytes
	}
	if freed < n {
		freed += c.handOver(n - freed)
	}
	c.free(gone)
	return freed
}

// handOver lets those who lease kept entries pay for them.
func (c *Cache) handOver(n int64) (freed int64) {
	c.each(func(e *entry) bool {
		if e.payer == c.grant && e.user != nil && c.pay(e, e.user) {
			freed += e.bytes
		}
		return freed < n
	})
	return freed
}

// each calls do with every entry, its shard locked, until it returns false. The
// cache's lock is held.
func (c *Cache) each(do func(*entry) bool) {
	for i := range c.index.shards {
		if !c.index.shards[i].each(do) {
			return
		}
	}
}

// drop takes an entry out, unless it is leased.
func (c *Cache) drop(e *entry) bool {
	e.shard.mu.Lock()
	defer e.shard.mu.Unlock()
	if e.leased() {
		return false
	}
	e.shard.drop(e)
	if e.payer == c.grant {
		c.kept -= e.bytes
	}
	e.part.remove(e)
	return true
}

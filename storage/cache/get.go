package cache

import (
	"context"
	"errors"
	"time"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

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
		if l := c.hit(hash, r); l != nil {
			return l, nil
		}
		l, fresh := c.enter(hash, r, false)
		if fresh {
			return c.load(ctx, l, r, c.fetch)
		}
		if err := l.await(ctx); err != nil {
			return nil, err
		}
		e := l.entry
		if err := e.err; err != nil {
			c.leave(l)
			if !errors.Is(err, context.Canceled) && !errors.Is(err, budget.ErrExhausted) {
				return nil, err
			}
			continue // it was who loaded it that gave up, or had no memory
		}
		if !e.columns.same(r.Columns) {
			return c.narrow(ctx, hash, l, r)
		}
		c.touch(e, r)
		return l, nil
	}
}

// hit leases an entry that is there with just the columns of a request, and notes
// that, with one lock for both; nil if there is none.
func (c *Cache) hit(hash uint64, r Request) *Lease {
	l := &Lease{grant: r.Grant}
	s := c.index.shard(hash)
	s.mu.Lock()
	e := s.serving(hash, r, true)
	if e == nil || !e.loaded() {
		s.mu.Unlock()
		return nil
	}
	e.take(l)
	n := c.note(e, r)
	s.mu.Unlock()
	c.noted(n)
	return l
}

// await waits for an entry to be loaded; if the context ends before, the lease does.
func (l *Lease) await(ctx context.Context) error {
	if !l.entry.loaded() {
		select {
		case <-l.entry.done:
		case <-ctx.Done():
			l.entry.cache.leave(l)
			return ctx.Err()
		}
	}
	return nil
}

// enter leases an entry that serves a request, or makes one that the caller has to
// load. With exact, others with more columns do not do.
func (c *Cache) enter(hash uint64, r Request, exact bool) (l *Lease, fresh bool) {
	l = &Lease{grant: r.Grant}
	s := c.index.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.serving(hash, r, exact)
	if fresh = e == nil; fresh {
		e = &entry{key: r.Block, columns: r.Columns, cache: c, shard: s, part: c.shared, tenant: r.Tenant, done: make(chan struct{}), payer: r.Grant}
		e.entry, e.hash = e, hash
		if p := c.tenant[r.Tenant]; p != nil {
			e.part = p
		}
		s.add(e)
	}
	e.take(l)
	return l, fresh
}

// serving finds an entry that serves a request, of several the one with the same
// columns or the smallest.
func (s *shard) serving(hash uint64, r Request, exact bool) (e *entry) {
	for o := s.find(hash, r.Block); o != nil; o = o.following() {
		if o.columns.same(r.Columns) {
			return o
		}
		if exact {
			continue
		}
		if _, wider := r.Columns.Within(o.columns); wider && (e == nil || o.loaded() && (!e.loaded() || o.bytes < e.bytes)) {
			e = o
		}
	}
	return e
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
	hash := c.index.hash(k)
	s := c.index.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := s.find(hash, k); e != nil; e = e.following() {
		if e.loaded() && fits(e) {
			l := &Lease{}
			e.take(l)
			return l
		}
	}
	return nil
}

// Missing tells whether a block would have to be loaded.
func (c *Cache) Missing(k Key, columns *Columns) bool {
	hash := c.index.hash(k)
	s := c.index.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := s.find(hash, k); e != nil; e = e.following() {
		if _, ok := columns.Within(e.columns); ok {
			return false
		}
	}
	return true
}

// loader makes frames for a request, and says which tier had the block; "" is none.
type loader func(context.Context, Request) (frames []*frame.Lease, tier string, err error)

// load makes the frames of the entry that a lease is on.
func (c *Cache) load(ctx context.Context, l *Lease, r Request, load loader) (*Lease, error) {
	e := l.entry
	e.err = errLoad // unless it ends well: it may panic
	defer func() {
		if e.err != nil {
			e.shard.mu.Lock()
			e.shard.drop(e) // before anybody hears of it
			e.shard.mu.Unlock()
			e.end()
			c.leave(l)
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
	c.counts.of(r.Tenant, c.active).load(tier, e.bytes)
	c.mu.Unlock()
	e.end()
	if tier == "" && r.Dear && !e.mapped && c.options.Below != nil {
		c.options.Below.Loaded(c, r)
	}
	return l, nil
}

// errLoad is the error of a load that ended in a panic.
var errLoad = errors.New("cache: loading a block panicked")

// narrow serves some columns of an entry that has more: as they are if the grant
// can pay for the whole, else as a copy.
func (c *Cache) narrow(ctx context.Context, hash uint64, wide *Lease, r Request) (*Lease, error) {
	e := wide.entry
	places, _ := r.Columns.Within(e.columns)
	show := func() views {
		all := make(views, len(e.frames))
		for i, f := range e.frames {
			all[i] = f.Select(r.Columns.schema, places)
		}
		return all
	}
	if c.charge(e, r.Grant) {
		c.touch(e, r)
		all := show()
		wide.views = &all
		return wide, nil
	}
	wide.disown()
	defer c.leave(wide)
	for {
		l, fresh := c.enter(hash, r, true)
		if fresh {
			return c.load(ctx, l, r, func(context.Context, Request) ([]*frame.Lease, string, error) {
				all := show()
				defer all.release()
				copies, err := c.copy(r, all)
				return copies, Memory, err
			})
		}
		if err := l.await(ctx); err != nil {
			return nil, err
		}
		if l.entry.err == nil {
			c.touch(l.entry, r)
			return l, nil
		}
		c.leave(l)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// copy makes frames of their own of what is shown of others.
func (c *Cache) copy(r Request, shown views) (all views, err error) {
	for _, v := range shown {
		b := v.Batch()
		f, err := c.options.Pool.Assemble(r.Grant, budget.Frames, r.Columns.schema, []frame.Piece{frame.PieceOf(b, 0, b.NumRows())})
		if err != nil {
			all.release()
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

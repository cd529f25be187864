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
	"fmt"
	"math"
	"sync"

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

	mu     sync.Mutex // guards all below and all parts; taken before those of shards
	policy string     // perhaps Auto
	active string     // the policy in use
	counts counts
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
		tenant: map[string]*part{}, plans: map[string]*Plan{}, counts: counts{},
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
	c.index.each(func(*entry) bool {
		leased++
		return true
	})
	if leased > 0 {
		return fmt.Errorf("cache: closed with %d blocks leased", leased)
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

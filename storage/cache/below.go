package cache

import (
	"context"
	"time"

	"github.com/headrace/headrace/storage/frame"
)

// Below is a tier under memory, such as a disk: it keeps blocks that were loaded, and has them when memory does not. It
// is an interface because it lies in a package that knows this one: it goes by the same keys.
type Below interface {
	// Get returns frames of the block and columns of a request, charged to its grant; none if it has none. What goes wrong
	// is for the tier to tell: the block is loaded then.
	Get(ctx context.Context, r Request) []*frame.Lease
	// Loaded tells that a block that is dear was loaded into a cache. It does not wait: when the tier gets to it, it may
	// take the block from there, if it still is there.
	Loaded(from *Cache, r Request)
}

// fetch has the tier below look for a block, and loads what that does not have.
func (c *Cache) fetch(ctx context.Context, r Request) ([]*frame.Lease, string, error) {
	if c.options.Below != nil {
		began := time.Now()
		if frames := c.options.Below.Get(ctx, r); frames != nil {
			if r.Read != nil {
				r.Read(time.Since(began))
			}
			return frames, Disk, nil
		}
	}
	frames, err := r.Load(ctx)
	return frames, "", err
}

// Take leases a block with just these columns, if it is there as memory: it is no hit, and loads nothing. Nobody who waits
// for memory gets that of the block meanwhile, so it is to be given back soon.
func (c *Cache) Take(k Key, columns *Columns) *Lease {
	return c.hold(k, func(e *entry) bool { return e.columns.same(columns) && !e.mapped })
}

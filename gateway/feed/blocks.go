package feed

import (
	"context"
	"errors"
	"sync"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

// blockKey is a block with a set of columns. A shard's facts are read once per version of the object, so their address
// says which version it is.
type blockKey struct {
	shard   *snapshot.Shard
	segment int
	from    int64
	columns string
}

// blocks are those that windows hold at the moment, of all plans. The zero value is ready.
type blocks struct {
	mu   sync.Mutex
	held map[blockKey]*block
}

// block is one block's frames, or the decoding of it.
type block struct {
	key    blockKey
	payer  *convoy // whose memory it takes; nil: memory that was free
	users  int     // guarded by blocks.mu
	done   chan struct{}
	leases []*frame.Lease // once done is closed
	err    error          // once done is closed
}

// acquire returns a block that somebody holds or decodes, or decodes it with load. release must follow unless it fails.
func (bs *blocks) acquire(ctx context.Context, key blockKey, payer *convoy, load func() ([]*frame.Lease, error)) (*block, error) {
	for {
		b, mine := bs.enter(key, payer)
		if mine {
			b.err = protect(func() (err error) {
				b.leases, err = load()
				return err
			})
			if b.err != nil {
				bs.forget(b) // before anybody hears of it
			}
			close(b.done)
		}
		select {
		case <-b.done:
		case <-ctx.Done():
			bs.release(b, nil)
			return nil, ctx.Err()
		}
		err := b.err
		if err == nil {
			return b, nil
		}
		bs.release(b, nil)
		if whose := errors.Is(err, context.Canceled) || errors.Is(err, budget.ErrExhausted); mine || !whose {
			return nil, err
		} // else it was who decoded it that gave up, or had no memory
	}
}

func (bs *blocks) enter(key blockKey, payer *convoy) (b *block, mine bool) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	if b = bs.held[key]; b == nil {
		b, mine = &block{key: key, payer: payer, done: make(chan struct{})}, true
		if bs.held == nil {
			bs.held = map[blockKey]*block{}
		}
		bs.held[key] = b
	}
	b.users++
	return b, mine
}

// forget makes the next caller decode the block anew.
func (bs *blocks) forget(b *block) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	if bs.held[b.key] == b {
		delete(bs.held, b.key)
	}
}

// release ends one holder's use. After the last one's the frames live only as long as what was sliced of them; the heir,
// if there is one, pays for that.
func (bs *blocks) release(b *block, heir *budget.Grant) {
	for _, l := range bs.leave(b) {
		if heir != nil {
			l.Bequeath(heir)
		} else {
			l.Release()
		}
	}
}

// leave ends one holder's use, and returns the leases to be released if it was the last one's.
func (bs *blocks) leave(b *block) []*frame.Lease {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	if b.users--; b.users > 0 {
		return nil
	}
	if bs.held[b.key] == b {
		delete(bs.held, b.key)
	}
	return b.leases
}

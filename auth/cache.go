package auth

import (
	"crypto/sha256"
	"sync"
	"time"
)

// maxCached is how many tokens one half of the cache holds.
const maxCached = 4096

// cache remembers verified tokens by their hash: it holds no tokens. Two halves bound it without bookkeeping: when the
// young one is full it becomes the old one, and what nobody asked for since is forgotten with the next turn.
type cache struct {
	mu         sync.Mutex
	young, old map[[sha256.Size]byte]verified
}

type verified struct {
	principal *Principal
	keys      *keySet // the keys it was verified with; others make it worthless
}

// get returns the principal of a token that was verified with the same keys and expires after the given time.
func (c *cache) get(sum [sha256.Size]byte, keys *keySet, after time.Time) (*Principal, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.young[sum]
	if !ok {
		if v, ok = c.old[sum]; ok {
			c.add(sum, v)
		}
	}
	if !ok || v.keys != keys || !v.principal.Expires.After(after) {
		return nil, false
	}
	return v.principal, true
}

func (c *cache) put(sum [sha256.Size]byte, keys *keySet, p *Principal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(sum, verified{p, keys})
}

func (c *cache) add(sum [sha256.Size]byte, v verified) {
	if c.young == nil || len(c.young) >= maxCached {
		c.old, c.young = c.young, make(map[[sha256.Size]byte]verified)
	}
	c.young[sum] = v
}

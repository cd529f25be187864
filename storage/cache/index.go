package cache

import (
	"hash/maphash"
	"sync"
)

// shardBits is into how many parts, as a power of two, the index is cut: each has
// a lock of its own.
const shardBits = 6

// index finds entries by key.
type index struct {
	seed   maphash.Seed
	shards [1 << shardBits]shard
}

// shard is a part of the index, with what was used of it of late. A hit takes no
// other lock.
type shard struct {
	mu     sync.Mutex // taken after the cache's
	chains []*entry   // by the low bits of their hash: the first of each
	len    int
	uses   []use
	_      [64]byte // none shares a line with another
}

func newIndex() *index {
	x := &index{seed: maphash.MakeSeed()}
	for i := range x.shards {
		x.shards[i].chains = make([]*entry, 8)
	}
	return x
}

func (x *index) hash(k Key) uint64 { return maphash.Comparable(x.seed, k) }

// shard is where entries with a hash are: its top bits say.
func (x *index) shard(hash uint64) *shard { return &x.shards[hash>>(64-shardBits)] }

// each calls do with every entry, its shard locked, until it returns false.
func (x *index) each(do func(*entry) bool) {
	for i := range x.shards {
		if !x.shards[i].each(do) {
			return
		}
	}
}

func (s *shard) each(do func(*entry) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, first := range s.chains {
		for e := first; e != nil; e = e.chain {
			if !do(e) {
				return false
			}
		}
	}
	return true
}

// find returns the first entry of a block, whose hash it is; following goes on
// from there. There may be several with different columns; seldom are. The shard's
// lock is held, as for all below.
func (s *shard) find(hash uint64, k Key) *entry { return (*s.chain(hash)).of(hash, k) }

func (s *shard) chain(hash uint64) **entry { return &s.chains[hash&uint64(len(s.chains)-1)] }

// of returns the first entry of a block from here on.
func (e *entry) of(hash uint64, k Key) *entry {
	for e != nil && (e.hash != hash || e.key != k) {
		e = e.chain
	}
	return e
}

func (e *entry) following() *entry { return e.chain.of(e.hash, e.key) }

// add puts in an entry.
func (s *shard) add(e *entry) {
	if s.len == len(s.chains) {
		s.grow()
	}
	s.len++
	s.push(e)
}

func (s *shard) push(e *entry) {
	first := s.chain(e.hash)
	*first, e.chain = e, *first
}

// grow makes twice as many chains.
func (s *shard) grow() {
	old := s.chains
	s.chains = make([]*entry, 2*len(old))
	for _, e := range old {
		for e != nil {
			next := e.chain
			s.push(e)
			e = next
		}
	}
}

// drop takes out an entry that is there.
func (s *shard) drop(e *entry) {
	at := s.chain(e.hash)
	for *at != e {
		at = &(*at).chain
	}
	*at, e.chain = e.chain, nil
	s.len--
}

package cache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headrace/headrace/storage/budget"
)

// TestHitsBesideAllElse: many hit the same few blocks while streams take their memory away, policies change, and others
// hold blocks. What is leased holds what it should, no use is lost or counted twice, and the books are right at the end.
func TestHitsBesideAllElse(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		t.Run("", func(t *testing.T) {
			w := newWorld(t, 48, Options{Policy: rapid.SampledFrom(Policies).Draw(rt, "policy")})
			blocks, seed := rapid.IntRange(1, 30).Draw(rt, "blocks"), rapid.Uint64().Draw(rt, "seed")
			var gets atomic.Int64
			var hitters, others sync.WaitGroup
			done := make(chan struct{})
			for n := range uint64(8) {
				hitters.Go(func() { gets.Add(w.hitAtRandom(rand.New(rand.NewPCG(seed, n)), blocks)) })
			}
			others.Go(func() { w.disturb(rand.New(rand.NewPCG(seed, 99)), blocks, done) })
			hitters.Wait()
			close(done)
			others.Wait()
			if err := w.sound(); err != nil {
				rt.Fatal(err)
			}
			counted := int64(0)
			for _, c := range w.cache.Stats().Counts {
				counted += c.Hits[Memory] + c.Misses
			}
			if s := w.cache.Stats(); counted != gets.Load() || s.Leased != 0 {
				rt.Fatalf("%d uses are counted of %d: %+v", counted, gets.Load(), s)
			}
		})
	})
}

// hitAtRandom leases blocks, one or two at a time, and tells how many it got.
func (w *world) hitAtRandom(r *rand.Rand, blocks int) (got int64) {
	g, err := w.ledger.Admit(context.Background(), 2*page)
	if err != nil {
		w.Error(err)
		return 0
	}
	defer g.Close()
	var last *Lease
	for range 200 {
		q := w.request(block(r.IntN(blocks)), onlyA, g)
		q.Tenant = fmt.Sprint("t", r.IntN(2))
		l, err := w.cache.Get(context.Background(), q)
		if last != nil {
			last.Release()
		}
		if last = l; err != nil {
			if !errors.Is(err, budget.ErrExhausted) {
				w.Error(err)
			}
			continue
		}
		got++
		if err := check(l, q.Block, onlyA); err != nil {
			w.Error(err)
		}
	}
	if last != nil {
		last.Release()
	}
	return got
}

// disturb takes what is kept away, by streams and at once, changes policies, and holds blocks.
func (w *world) disturb(r *rand.Rand, blocks int, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		default:
		}
		switch r.IntN(4) {
		case 0:
			if g, err := w.ledger.Try(page * int64(1+r.IntN(30))); err == nil {
				runtime.Gosched()
				g.Close()
			}
		case 1:
			w.cache.give(page * int64(1+r.IntN(blocks)))
		case 2:
			if err := w.cache.SetPolicy(Policies[r.IntN(len(Policies))]); err != nil {
				w.Error(err)
			}
		default:
			if l := w.cache.Hold(block(r.IntN(blocks)), onlyA); l != nil {
				runtime.Gosched()
				l.Release()
			}
		}
		time.Sleep(time.Microsecond)
	}
}

// TestWhoStillLeasesPays: it is not asked of who leased the block before and has given it back.
func TestWhoStillLeasesPays(t *testing.T) {
	w := newWorld(t, 16, Options{})
	w.pass(0)
	first, second := w.admit(1), w.admit(1)
	one, two := w.get(w.request(block(0), onlyA, first)), w.get(w.request(block(0), onlyA, second))
	one.Release()
	if freed := w.cache.give(page); freed != page || two.Payer() != second || first.Free() != page {
		t.Errorf("%d bytes came back; who has left has %d of its own free", freed, first.Free())
	}
	two.Release()
	first.Close()
	second.Close()
}

// TestJournalKeepsOrder, for each of those who write at once in many shards, and forgets nothing.
func TestJournalKeepsOrder(t *testing.T) {
	const writers, each = 8, 2000
	j, x := &journal{}, newIndex()
	var wait sync.WaitGroup
	for n := range writers {
		wait.Go(func() {
			for i := range each {
				s := &x.shards[(i*7+n)%len(x.shards)]
				s.mu.Lock()
				j.note(s, use{tenant: fmt.Sprint(n), entry: &entry{item: item{bytes: int64(i)}}})
				s.mu.Unlock()
			}
		})
	}
	done, got := make(chan struct{}), map[string][]int64{}
	go func() {
		wait.Wait()
		close(done)
	}()
	read := func() {
		j.read(x, func(u use) { got[u.tenant] = append(got[u.tenant], u.entry.bytes) })
	}
	for open := true; open; {
		select {
		case <-done:
			open = false
		default:
		}
		read()
	}
	for n := range writers {
		if all := got[fmt.Sprint(n)]; len(all) != each || !slices.IsSorted(all) {
			t.Errorf("writer %d: %d uses, in order: %v", n, len(all), slices.IsSorted(all))
		}
	}
	if len(j.unread) != 0 {
		t.Errorf("%d uses are left", len(j.unread))
	}
}

// TestIndexIsAMap of blocks to entries.
func TestIndexIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, want := &newIndex().shards[0], map[Key][]*entry{}
		key := rapid.Custom(func(t *rapid.T) Key { return block(rapid.IntRange(0, 30).Draw(t, "block")) })
		hash := func(k Key) uint64 { return uint64(k.From) % 3 } // many share one
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				e := &entry{key: key.Draw(t, "key")}
				e.hash = hash(e.key)
				s.add(e)
				want[e.key] = append(want[e.key], e)
			},
			"drop": func(t *rapid.T) {
				if all := want[key.Draw(t, "key")]; len(all) > 0 {
					n := rapid.IntRange(0, len(all)-1).Draw(t, "which")
					e := all[n]
					want[e.key] = slices.Delete(all, n, n+1)
					s.drop(e)
				}
			},
			"": func(t *rapid.T) {
				total := 0
				for k, all := range want {
					total += len(all)
					n := 0
					for e := s.find(hash(k), k); e != nil; e = e.following() {
						if !slices.Contains(all, e) {
							t.Fatal("an entry that is not")
						}
						n++
					}
					if n != len(all) {
						t.Fatalf("%d entries of %d", n, len(all))
					}
				}
				s.each(func(*entry) bool { total--; return true })
				if total != 0 {
					t.Fatalf("%d entries too few", total)
				}
			},
		})
	})
}

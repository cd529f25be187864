package cache

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/headrace/headrace/storage/budget"
)

// held is what every tenant has, in use or kept; "" are those without a share.
func (w *world) held() (by map[string]int64, all int64) {
	w.cache.mu.Lock()
	defer w.cache.mu.Unlock()
	by = map[string]int64{"": w.cache.shared.bytes}
	for name, p := range w.cache.tenant {
		by[name] = p.bytes
	}
	for _, n := range by {
		all += n
	}
	return by, all
}

// reader is what one tenant reads at the moment.
type reader struct {
	tenant string
	grant  *budget.Grant
	leases []*Lease
}

// release gives all back, block by block; after each, told hears whose it was.
func (r *reader) release(told func(*part)) {
	for _, l := range r.leases {
		l.Release()
		told(l.entry.part)
	}
	r.grant.Close()
}

// TestNobodyIsPushedBelowItsShare: whatever others read, whatever they hold meanwhile and under whichever policy, a
// tenant loses a block to them only while it has more than its share of all there is. What streams need goes before, but
// leaves everybody its share of the rest, as long as nothing is in use.
func TestNobodyIsPushedBelowItsShare(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		t.Run("", func(t *testing.T) {
			shares := map[string]float64{"a": float64(rapid.IntRange(1, 7).Draw(rt, "a")) / 10}
			shares["b"] = float64(rapid.IntRange(1, 10).Draw(rt, "b")) / 10 * (1 - shares["a"])
			w := newWorld(t, 64, Options{Policy: rapid.SampledFrom(Policies).Draw(rt, "policy"), Shares: shares})
			s := sharing{rt: rt, world: w, shares: shares}
			rt.Repeat(map[string]func(*rapid.T){
				"read":    func(rt *rapid.T) { s.read(rt) },
				"release": func(rt *rapid.T) { s.release(rt) },
				"stream":  func(rt *rapid.T) { s.stream(rt) },
				"": func(rt *rapid.T) {
					if err := w.sound(); err != nil {
						rt.Fatal(err)
					}
				},
			})
			for _, r := range s.readers {
				r.release(func(*part) {})
			}
		})
	})
}

// sharing is tenants that read side by side.
type sharing struct {
	*world
	rt      *rapid.T
	shares  map[string]float64
	readers []*reader
}

// read leases some blocks for a tenant, of one to five pages each.
func (s *sharing) read(rt *rapid.T) {
	r := &reader{tenant: rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(rt, "tenant")}
	var err error
	if r.grant, err = s.ledger.Try(page * rapid.Int64Range(1, 30).Draw(rt, "window")); err != nil {
		return
	}
	c := rapid.SampledFrom(someColumns).Draw(rt, "columns")
	for range rapid.IntRange(1, 8).Draw(rt, "blocks") {
		q := s.request(block(rapid.IntRange(0, 40).Draw(rt, "block")), c, r.grant)
		q.Tenant = r.tenant
		if r.grant.Free() < 5*page {
			break
		}
		r.leases = append(r.leases, s.get(q))
	}
	s.readers = append(s.readers, r)
}

// release ends what a tenant reads, which keeps it or not: nobody else than whose it is gives what is within its share.
func (s *sharing) release(rt *rapid.T) {
	if len(s.readers) == 0 {
		return
	}
	n := rapid.IntRange(0, len(s.readers)-1).Draw(rt, "reader")
	r := s.readers[n]
	s.readers = append(s.readers[:n:n], s.readers[n+1:]...)
	before, _ := s.held()
	r.release(func(whose *part) {
		after, all := s.held()
		s.fair(before, after, all, whose)
		before = maps.Clone(after)
	})
}

// stream takes memory, and gives it back.
func (s *sharing) stream(rt *rapid.T) {
	before, _ := s.held()
	g, err := s.ledger.Try(page * rapid.Int64Range(1, 60).Draw(rt, "need"))
	if err != nil {
		return
	}
	defer g.Close()
	if after, all := s.held(); len(s.readers) == 0 {
		s.fair(before, after, all, nil)
	}
}

// fair checks that those who have lost something had more than their share of what is left, up to one block.
func (s *sharing) fair(before, after map[string]int64, all int64, to *part) {
	for tenant, share := range s.shares {
		if s.cache.tenant[tenant] != to && after[tenant] < before[tenant] && float64(after[tenant]+5*page) <= share*float64(all) {
			s.rt.Fatalf("%s has %d of %d bytes after %d, its share is %.2f", tenant, after[tenant], all, before[tenant], share)
		}
	}
}

// TestWhatANeighbourHasInUseIsNotTakenFromTheNextOne: c uses more than its share and cannot give any of it now. That is
// no reason to take from a, which has less than its own, for b, which has still less.
func TestWhatANeighbourHasInUseIsNotTakenFromTheNextOne(t *testing.T) {
	w := newWorld(t, 100, Options{Policy: LRU, Shares: map[string]float64{"a": .5, "b": .25}})
	read := func(tenant string, from, to int) *reader {
		r := &reader{tenant: tenant, grant: w.admit(int64(to - from))}
		for n := from; n < to; n++ {
			q := w.request(block(n), onlyA, r.grant)
			q.Tenant = tenant
			r.leases = append(r.leases, w.get(q))
		}
		return r
	}
	read("a", 0, 40).release(func(*part) {})
	c := read("c", 100, 150)
	for n := 200; n < 230; n++ {
		read("b", n, n+1).release(func(*part) {})
	}
	if by, _ := w.held(); by["a"] != 40*page || by["b"] != 9*page { // a page is for what it reads
		t.Errorf("a has %d blocks, b %d, while c uses 50", by["a"]/page, by["b"]/page)
	}
	c.grant.Close() // it ends
	c.release(func(*part) {})
	for n := 300; n < 330; n++ {
		read("b", n, n+1).release(func(*part) {})
	}
	if by, _ := w.held(); by["a"] != 40*page || by["b"] < 24*page {
		t.Errorf("a has %d blocks, b %d", by["a"]/page, by["b"]/page)
	}
}

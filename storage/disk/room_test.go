package disk

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"github.com/headrace/headrace/storage/cache"
)

// What an open stream's plan uses stays; of the rest the plan that was used longest ago goes first, its oldest block first.
func TestWhatGoes(t *testing.T) {
	w := newWorld(t, inMemory(t), plenty, 1)
	p := w.cache.Open("probe", true)
	w.fill(t, 99, 100, onlyA, p)
	one := w.tier.Stats().Bytes
	w.cache.ClosePlan(p)
	w.leave(t)

	w.enter(t, 10*one+one/2, 1)
	old, young := w.cache.Open("old", true), w.cache.Open("young", true)
	w.fill(t, 0, 5, onlyA, old)
	w.fill(t, 5, 12, onlyA, young)
	if s := w.tier.Stats(); s.Blocks != 10 || s.Evicted != 1 || s.Refused != 2 { // the probe's went, nobody else's
		t.Fatalf("%+v", s)
	}
	w.cache.ClosePlan(old)
	w.fill(t, 1, 2, onlyA, young) // it takes over what it uses of others
	third := w.cache.Open("third", true)
	w.fill(t, 20, 23, onlyA, third)
	w.fill(t, 12, 14, onlyA, young)
	w.cache.ClosePlan(third)
	w.cache.ClosePlan(young)
	loads := w.loads.Load()
	p = w.cache.Open("last", true)
	for _, n := range []int{1, 5, 6, 7, 8, 9, 20, 21, 22} {
		w.get(t, n, onlyA, p)
	}
	if got := w.loads.Load() - loads; got != 0 {
		t.Errorf("%d blocks are gone, %+v", got, w.tier.Stats())
	}
	w.cache.ClosePlan(p)
	w.leave(t)

	// After a restart the oldest go first, until the plans are asked for again; a lower limit holds at once.
	w.enter(t, 4*one, 1)
	<-w.tier.found
	if s := w.tier.Stats(); s.Blocks != 4 || s.Bytes > 4*one || len(files(t, w.dir)) != 4 {
		t.Errorf("%+v", s)
	}
	w.leave(t)
}

// A restart of the job itself: its plan's blocks are its own again with its first hit, and are not pushed out by those
// that it loads.
func TestAPlanComesBack(t *testing.T) {
	w := newWorld(t, inMemory(t), plenty, 1)
	p := w.cache.Open("job", true)
	w.fill(t, 0, 10, onlyA, p)
	bytes := w.tier.Stats().Bytes
	w.cache.ClosePlan(p)
	w.leave(t)
	w.enter(t, bytes, 1)
	p = w.cache.Open("job", true)
	w.get(t, 0, onlyA, p)
	w.fill(t, 10, 20, onlyA, p) // of which none has room
	w.fill(t, 0, 10, onlyA, p)
	if s := w.tier.Stats(); s.Hits != 11 || s.Misses != 10 || s.Refused != 10 {
		t.Errorf("%+v", s)
	}
	w.cache.ClosePlan(p)
	w.leave(t)
}

// A terabyte of blocks is a quarter of a million entries: they may take no more than some tens of MB.
func TestEntriesAreSmall(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const entries = 50_000
	before := heap()
	x := newIndex(plenty)
	g := x.of("plan")
	for i := range entries {
		object := fmt.Sprintf("%0200d", i/100)
		x.promise(1)
		x.add(&entry{key: cache.Key{Object: object, Segment: i % 100}, columns: x.set([]string{"a", "b"}), bytes: 1}, g)
	}
	if each := (heap() - before) / entries; each > 280 {
		t.Errorf("%d bytes for each entry", each)
	}
	runtime.KeepAlive(x)
}

// Streams are opened and closed at any time, also between two looks at who reads a plan.
func TestRoomIsMadeWhilePlansComeAndGo(t *testing.T) {
	w := newWorld(t, t.TempDir(), plenty, 1)
	defer w.leave(t)
	var group errgroup.Group
	ctx, cancel := context.WithCancel(t.Context())
	group.Go(func() error {
		for ctx.Err() == nil {
			w.cache.ClosePlan(w.cache.Open("plan", true))
		}
		return nil
	})
	plan := w.cache.Open("plan", true)
	w.cache.ClosePlan(plan)
	x := newIndex(10)
	for i := range 300_000 {
		if _, ok := x.promise(10); ok {
			g := x.of("plan")
			g.plan = plan
			x.add(&entry{key: block(i), columns: x.set([]string{"a"}), bytes: 10}, g)
		}
		if x.bytes != 10 || x.count != 1 {
			t.Fatalf("%d bytes of %d entries", x.bytes, x.count)
		}
	}
	cancel()
	must(t, group.Wait())
}

// The books of the index hold under any use.
func TestIndexKeepsItsBooks(t *testing.T) {
	names := [][]string{{"a"}, {"b"}, {"a", "b"}, {"b", "c"}}
	rapid.Check(t, func(t *rapid.T) {
		dir, remove := folderOf(t)
		defer remove()
		w := newWorld(t, dir, plenty, 1)
		defer w.leave(t)
		plans := make([]*cache.Plan, 4)
		x := newIndex(rapid.Int64Range(10, 100).Draw(t, "limit"))
		all := map[*entry]bool{}
		drop := func(entries []*entry) {
			for _, e := range entries {
				if !all[e] {
					t.Fatal("an entry goes that was not there")
				}
				delete(all, e)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"open or close": func(t *rapid.T) {
				i := rapid.IntRange(0, len(plans)-1).Draw(t, "plan")
				if plans[i] == nil {
					plans[i] = w.cache.Open(fmt.Sprint(i), true)
				} else {
					w.cache.ClosePlan(plans[i])
					plans[i] = nil
				}
			},
			"add": func(t *rapid.T) {
				k, set := block(rapid.IntRange(0, 9).Draw(t, "block")), x.set(rapid.SampledFrom(names).Draw(t, "columns"))
				p := plans[rapid.IntRange(0, len(plans)-1).Draw(t, "plan")]
				bytes := rapid.Int64Range(1, 30).Draw(t, "bytes")
				if p == nil || x.find(k, set) != nil {
					return
				}
				victims, ok := x.promise(bytes)
				for _, v := range victims {
					if v.group.live() {
						t.Fatal("a block of a live plan goes")
					}
				}
				drop(victims)
				if !ok {
					return
				}
				g := x.of(p.Name())
				g.plan = p
				e := &entry{key: k, columns: set, bytes: bytes}
				drop(x.add(e, g))
				all[e] = true
			},
			"use": func(t *rapid.T) {
				k, set := block(rapid.IntRange(0, 9).Draw(t, "block")), x.set(rapid.SampledFrom(names).Draw(t, "columns"))
				p := plans[rapid.IntRange(0, len(plans)-1).Draw(t, "plan")]
				if e := x.find(k, set); e != nil && p != nil {
					x.use(e, p)
				}
			},
			"": func(t *rapid.T) {
				var bytes, grouped int64
				for e := range all {
					bytes += e.bytes
					if x.find(e.key, e.columns) == nil {
						t.Fatal("an entry is lost")
					}
				}
				count := 0
				for name, g := range x.groups {
					grouped += g.bytes
					count += g.entries.Len()
					if g.name != name || g.entries.Len() == 0 {
						t.Fatalf("group %q of %d", name, g.entries.Len())
					}
				}
				if bytes != x.bytes || grouped != bytes || bytes > x.limit || x.count != len(all) || count != len(all) {
					t.Fatalf("%d bytes of %d entries, %+v", bytes, len(all), x)
				}
			},
		})
		for _, p := range plans {
			if p != nil {
				w.cache.ClosePlan(p)
			}
		}
	})
}

package cache

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/headrace/headrace/storage/budget"
)

// warm is a cache with so many resident blocks.
func warm(b testing.TB, policy string, blocks int) (*world, *budget.Grant) {
	w := newWorld(b, int64(blocks)+2, Options{Policy: policy})
	w.pass(upTo(blocks)...)
	g := w.admit(1)
	b.Cleanup(g.Close)
	return w, g
}

// BenchmarkHit is a lease taken and given back.
func BenchmarkHit(b *testing.B) {
	for _, policy := range []string{LRU, LFU, Adaptive, Pinned} {
		b.Run(policy, func(b *testing.B) {
			const blocks = 1000
			w, g := warm(b, policy, blocks)
			var requests []Request
			for n := range blocks {
				requests = append(requests, w.request(block(n), onlyA, g))
			}
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				hit(b, w, requests[n%blocks])
			}
		})
	}
}

func hit(b testing.TB, w *world, r Request) {
	l, err := w.cache.Get(context.Background(), r)
	if err != nil {
		b.Fatal(err)
	}
	l.Release()
}

// BenchmarkHitsAtOnce is that by 64 goroutines: with -cpu 1,2 it tells what another core brings.
func BenchmarkHitsAtOnce(b *testing.B) {
	const goroutines, blocks = 64, 1000
	w, g := warm(b, Adaptive, blocks)
	var requests []Request
	for n := range blocks {
		requests = append(requests, w.request(block(n), onlyA, g))
	}
	var wait sync.WaitGroup
	b.ResetTimer()
	for from := range goroutines { // not RunParallel: its own counter is one more line that all write
		wait.Go(func() {
			for n := range b.N/goroutines + 1 {
				hit(b, w, requests[(from*37+n)%blocks])
			}
		})
	}
	wait.Wait()
}

// BenchmarkBookkeeping is what a policy has for each block.
func BenchmarkBookkeeping(b *testing.B) {
	for name, policy := range policies {
		b.Run(name, func(b *testing.B) {
			b.ReportMetric(float64(bookkeeping(policy())), "B/block")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkRequests is a policy alone, on a skewed mix of hits and misses.
func BenchmarkRequests(b *testing.B) {
	trace := passes(20000, 5, true)
	for name, policy := range policies {
		b.Run(fmt.Sprint(name), func(b *testing.B) {
			for b.Loop() {
				simulate(policy(), trace, 10000)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(trace)), "ns/request")
		})
	}
}

// TestAHitAllocatesItsLeaseOnly
func TestAHitAllocatesItsLeaseOnly(t *testing.T) {
	w, g := warm(t, Adaptive, 100)
	r := w.request(block(1), onlyA, g)
	if n := testing.AllocsPerRun(1000, func() { hit(t, w, r) }); n > 1 {
		t.Fatalf("%v allocations", n)
	}
}

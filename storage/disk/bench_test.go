package disk

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// BenchmarkHit has blocks of different sizes shown and given back, out of the page cache.
func BenchmarkHit(b *testing.B) {
	for _, rows := range []int{10_000, 100_000, 250_000, 2_000_000} {
		b.Run(fmt.Sprintf("%dKiB", rows*16>>10), func(b *testing.B) {
			w := newWorld(b, b.TempDir(), plenty, 1)
			w.rows = rows
			p := w.cache.Open("p", true)
			g, err := w.ledger.Admit(b.Context(), 256<<20)
			must(b, err)
			r := w.request(block(0), columns("a", "b"), p, g)
			l, err := w.cache.Get(b.Context(), r)
			must(b, err)
			w.settle(b)
			l.Release()
			b.SetBytes(int64(rows) * 16)
			for b.Loop() {
				frames := w.tier.Get(b.Context(), r)
				if frames == nil {
					b.Fatalf("%+v", w.tier.Stats())
				}
				for _, f := range frames {
					f.Release()
				}
			}
			g.Close()
			w.cache.ClosePlan(p)
			w.leave(b)
		})
	}
}

// BenchmarkStart finds blocks that a tier before has left.
func BenchmarkStart(b *testing.B) {
	const blocks = 5000
	dir, remove := folderOf(b)
	defer remove()
	w := newWorld(b, dir, plenty, 0)
	w.rows = 20
	p := w.cache.Open("p", true)
	for n := range blocks {
		w.get(b, n, columns("a", "text", "b"), p)
	}
	w.cache.ClosePlan(p)
	w.leave(b)
	b.ResetTimer()
	var found time.Duration
	for b.Loop() {
		began := time.Now()
		w.enter(b, plenty, 0)
		<-w.tier.found
		found += time.Since(began)
		if s := w.tier.Stats(); s.Blocks != blocks {
			b.Fatalf("%+v", s)
		}
		w.leave(b)
	}
	b.ReportMetric(found.Seconds()/float64(b.N)/blocks*1e6, "us/block")
	_ = os.RemoveAll(dir)
}

package sampler

import (
	"fmt"
	"testing"
)

// shardsOf is rows in so many segments, each of so many blocks.
func shardsOf(rows int64, segments, blocks int) []Shard {
	sh := Shard{Identity: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
	for i := range int64(segments) {
		n := int64(segments)
		sh.Segments = append(sh.Segments, Segment{scale(i+1, rows, n) - scale(i, rows, n), int64(blocks)})
	}
	return []Shard{sh}
}

func windowOrder(b *testing.B, rows int64, segments, blocks int, window int64) *Order {
	o, err := NewOrder(Plan{Shuffle: ShuffleWindow, WindowBlocks: window, Groups: 1, Seed: 1}, shardsOf(rows, segments, blocks))
	if err != nil {
		b.Fatal(err)
	}
	return o
}

// Planning a snapshot and one epoch of it.
func BenchmarkPlan(b *testing.B) {
	for _, c := range []struct {
		rows             int64
		segments, blocks int
		split            *Split
	}{
		{1e12, 2_700, 100, nil}, {1e12, 270_000, 1, nil}, {1e9, 1_000_000, 1, nil}, {1e9, 10_000, 100, nil}, {1e9, 10_000, 100, &Split{1, 0, 9000}},
	} {
		b.Run(fmt.Sprintf("rows=%d/segments=%d/blocks=%d/split=%v", c.rows, c.segments, c.segments*c.blocks, c.split != nil), func(b *testing.B) {
			p := Plan{Shuffle: ShuffleWindow, WindowBlocks: 256, Groups: 1, Seed: 1, Split: c.split}
			shards := shardsOf(c.rows, c.segments, c.blocks)
			var o *Order
			for b.Loop() {
				o, _ = NewOrder(p, shards)
				o.Epoch(0)
			}
			b.ReportMetric(float64(OrderBytes(p, shards)+o.EpochBytes())/1e6, "MB")
		})
	}
}

// Rows in order, the opening of their windows included.
func BenchmarkNextRow(b *testing.B) {
	for name, o := range map[string]*Order{
		"window=50k":  windowOrder(b, 1e9, 5_000, 100, 25),
		"window=512k": windowOrder(b, 1e9, 5_000, 100, 256),
		"window=8M":   windowOrder(b, 1e9, 5_000, 100, 4_096),
		"full":        {Plan{Shuffle: ShuffleFull, Groups: 1}, windowOrder(b, 1e9, 5_000, 100, 1).layout},
	} {
		b.Run(name, func(b *testing.B) {
			e := o.Epoch(0)
			w := e.Open(0, 0)
			refs := make([]Ref, 256)
			var window int
			var at int64
			for b.Loop() {
				if at+256 > w.Rows() {
					window, at = (window+1)%e.Windows(0), 0
					w = e.Open(0, window)
				}
				w.Locate(at, refs)
				at += 256
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/row")
		})
	}
}

// Once planned, a batch at a random place of 10⁹ rows.
func BenchmarkSeek(b *testing.B) {
	for _, window := range []int64{25, 256} {
		b.Run(fmt.Sprintf("window=%d", window), func(b *testing.B) {
			o := windowOrder(b, 1e9, 5_000, 100, window)
			e := o.Epoch(0)
			refs := make([]Ref, 256)
			for i := int64(0); b.Loop(); i++ {
				at := i * 7_654_321 % (1e9 - 256)
				for run := range e.Runs(Step{From: at, To: at + 256}, 0, 1) {
					e.Open(run.Span, run.Window).Locate(run.From, refs[:run.To-run.From])
				}
			}
		})
	}
}

// What every one of 1,024 ranks costs beyond the plan they share: its totals, and its run of a step.
func BenchmarkRank(b *testing.B) {
	o := windowOrder(b, 1e9, 5_000, 100, 256)
	e := o.Epoch(0)
	for i := int64(0); b.Loop(); i++ {
		s, err := NewSchedule(o, Cut{Batch: 256 * 1024, Tail: Drop, End: 90})
		if err != nil {
			b.Fatal(err)
		}
		s.Share(Stream{i % 1024, 1024, 0, 1}, 0)
		for range e.Runs(s.Step(i%s.Count()), i%1024, 1024) {
			continue
		}
	}
}

package sampler

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// Every order gives each row of the plan once, in every epoch.
func TestOrdersArePermutations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDataset(t, 60)
		o := d.order(t)
		want := d.rows()
		if int64(len(want)) != o.Rows() {
			t.Fatalf("%d rows, want %d", o.Rows(), len(want))
		}
		got := o.Epoch(rapid.Int64Range(0, math.MaxInt64).Draw(t, "epoch")).positions()
		if d.plan.Shuffle == ShuffleNone && !slices.Equal(got, want) || !slices.Equal(sorted(got), want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

// The windows of a span hold each of its blocks once, and of each lane at most one; spans share only border blocks.
func TestWindowsHoldEachBlockOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDataset(t, 60)
		d.plan.Shuffle = ShuffleWindow
		d.plan.WindowBlocks = rapid.Int64Range(1, 40).Draw(t, "n")
		o := d.order(t)
		e := o.Epoch(rapid.Int64Range(0, 100).Draw(t, "epoch"))
		var rows int64
		read := make(map[int]int64) // rows of each block
		for c := range e.Spans() {
			rows += windowsOfSpan(t, e, c, read)
		}
		if rows != o.Rows() {
			t.Fatalf("windows hold %d rows of %d", rows, o.Rows())
		}
		if int64(len(read)) != o.Blocks() {
			t.Fatalf("windows hold %d blocks of %d", len(read), o.Blocks())
		}
	})
}

// windowsOfSpan checks one span's windows by the rule for each block, and returns their rows.
func windowsOfSpan(t *rapid.T, e *Epoch, c int, read map[int]int64) (rows int64) {
	n, m := e.order.plan.WindowBlocks, e.spans[c].blocks
	windows := int64(e.Windows(c))
	if windows != (m-1)/n+1 {
		t.Fatalf("%d windows of %d blocks for %d", windows, n, m)
	}
	listed := make([][]int, windows)
	for b := range m {
		w := (b * n) % m * windows / m
		listed[w] = append(listed[w], e.cutPiece(&e.spans[c], e.spans[c].block+b).Block)
	}
	for w := range int(windows) {
		var blocks []int
		var inside int64
		for _, p := range e.Pieces(c, w) {
			if p.From >= p.To || p.To > p.Rows {
				t.Fatalf("piece %+v", p)
			}
			blocks = append(blocks, p.Block)
			inside += p.To - p.From
			read[p.Block] += p.To - p.From
		}
		if !slices.Equal(blocks, listed[w]) || inside != e.WindowRows(c, w) || inside == 0 {
			t.Fatalf("window %d of span %d: blocks %v, want %v; %d rows, told %d", w, c, blocks, listed[w], inside, e.WindowRows(c, w))
		}
		if int64(len(blocks)) > n {
			t.Fatalf("%d blocks in a window of %d", len(blocks), n)
		}
		rows += inside
	}
	return rows
}

// A window is done at the first position after all of its own.
func TestWindowsAreDone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := drawDataset(t, 30).order(t)
		e := o.Epoch(0)
		want := make([]int, e.Spans())
		for c := range want {
			want[c] = e.Windows(c)
		}
		for p := o.Rows(); ; p-- {
			for c := range want {
				if got := e.At(c, p); got != want[c] {
					t.Fatalf("span %d at position %d: window %d, want %d", c, p, got, want[c])
				}
			}
			if p == 0 {
				return
			}
			run := e.place(p - 1)
			want[run.Span] = run.Window
		}
	})
}

// Lanes are runs of neighbouring blocks; a window takes at most one block of each, so that large row groups are read
// from front to back.
func TestWindowsTakeOneBlockOfEachLane(t *testing.T) {
	for m := int64(1); m <= 60; m++ {
		o := dataset{Plan{Shuffle: ShuffleWindow, Groups: 1, WindowBlocks: 1}, []Shard{{Segments: []Segment{{m, m}}}}}.order(t)
		for n := int64(1); n <= 70; n++ {
			o.plan.WindowBlocks = n
			e := o.Epoch(0)
			for w := range e.Windows(0) {
				seen := make(map[int64]bool)
				for _, p := range e.Pieces(0, w) {
					lane := int64(p.Block) * n / m
					if seen[lane] {
						t.Fatalf("%d blocks in windows of %d: window %d has two blocks of lane %d", m, n, w, lane)
					}
					seen[lane] = true
				}
			}
		}
	}
}

// Window after window, every lane is read from front to back: large segments in file order.
func TestLanesAreReadFrontToBack(t *testing.T) {
	const n, m = 4, 163
	d := dataset{Plan{Shuffle: ShuffleWindow, Groups: 1, WindowBlocks: n, Seed: 3}, []Shard{{Segments: []Segment{{700, 70}, {30, 3}, {500, 90}}}}}
	e := d.order(t).Epoch(5)
	last := map[int64]int64{}
	for w := range e.Windows(0) {
		for _, p := range e.Pieces(0, w) {
			s := e.order.layout.segment(int64(p.Block))
			b := e.list.blocks[slices.Index(e.list.segments, int32(s))] + int64(p.Block) - e.order.layout.first[s]
			if before, ok := last[b*n/m]; ok && b <= before {
				t.Errorf("window %d goes back from block %d of the list to %d", w, before, b)
			}
			last[b*n/m] = b
		}
	}
}

// Sums of any stretch add up from its rows, one by one.
func TestExpectedSums(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDataset(t, 60)
		o := d.order(t)
		e := o.Epoch(1)
		rows := e.positions()
		from := rapid.Int64Range(0, o.Rows()).Draw(t, "from")
		to := rapid.Int64Range(from, o.Rows()).Draw(t, "to")
		want := Sum{}
		for _, row := range rows[from:to] {
			want = NewSummer("s").AddRange(want, row, 1)
		}
		if got, err := e.Sum(t.Context(), "s", from, to); got != want || err != nil {
			t.Fatalf("[%d,%d): %s, %v; want %s", from, to, got, err, want)
		}
	})
}

// A receipt notices any row that is missing, comes twice, or stands in for another.
func TestSumsNoticeLossAndRepetition(t *testing.T) {
	o := dataset{Plan{Shuffle: ShuffleWindow, WindowBlocks: 4, Groups: 2, Seed: 5}, []Shard{{Segments: []Segment{{500, 30}, {77, 7}}}}}.order(t)
	e := o.Epoch(0)
	whole, err := e.Sum(t.Context(), "s", 0, o.Rows())
	if err != nil {
		t.Fatal(err)
	}
	sums := NewSummer("s")
	seen := map[Sum]bool{whole: true}
	for row := range o.Rows() {
		one := sums.AddRange(Sum{}, row, 1)
		other := sums.AddRange(Sum{}, (row+1)%o.Rows(), 1)
		for what, sum := range map[string]Sum{"lost": whole.sub(one), "repeated": whole.Add(one), "replaced": whole.sub(one).Add(other)} {
			if seen[sum] {
				t.Errorf("row %d %s: the sum does not tell", row, what)
			}
			seen[sum] = true
		}
	}
}

// The streams of a plan share its windows.
func TestWindowsAreShared(t *testing.T) {
	o := dataset{Plan{Shuffle: ShuffleFull, Groups: 1, Split: &Split{1, 0, 5000}}, []Shard{{Segments: []Segment{{5000, 9}}}}}.order(t)
	w := o.Epoch(0).Open(0, 0)
	var group sync.WaitGroup
	all := make([][]Ref, 4)
	for i := range all {
		all[i] = make([]Ref, w.Rows())
		group.Go(func() { w.Locate(0, all[i]) })
	}
	group.Wait()
	for i := range all {
		if !slices.Equal(all[i], all[0]) {
			t.Errorf("reader %d found other rows", i)
		}
	}
}

// The formula agrees with what batches show: the variance of the mean of a value that every block shares.
func TestDesignEffectIsWhatBatchesShow(t *testing.T) {
	const blocks, rows, batch, seeds = 100, 100, 64, 100
	random := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int64{4, 10, 25, 100} {
		o := dataset{Plan{Shuffle: ShuffleWindow, WindowBlocks: n, Groups: 1, Seed: 1}, []Shard{{}}}
		for range blocks { // every block a segment, so that their order is random
			o.shards[0].Segments = append(o.shards[0].Segments, Segment{rows, 1})
		}
		var square, count float64
		for seed := range uint64(seeds) {
			o.plan.Seed = seed
			value := make([]float64, blocks)
			var mean, variance float64
			for i := range value {
				value[i] = random.NormFloat64()
				mean += value[i] / blocks
			}
			for _, v := range value {
				variance += (v - mean) * (v - mean) / blocks
			}
			at := o.order(t).Epoch(0).positions()
			for p := 0; p+batch <= len(at); p += batch {
				var sum float64
				for _, row := range at[p : p+batch] {
					sum += value[row/rows] - mean
				}
				square += sum * sum / batch / variance
				count++
			}
		}
		if got, want := square/count, o.order(t).DesignEffect(batch); math.Abs(got/want-1) > 0.1 {
			t.Errorf("windows of %d blocks: %.2f, the formula says %.2f", n, got, want)
		}
	}
}

// Rows of one batch hardly ever meet again in the next epoch: from 100 blocks a window on, at most 1.2 times as often as
// in orders drawn at random.
func TestRowsOfABatchPart(t *testing.T) {
	const blocks, rows, batch, epochs = 1000, 20, 64, 12
	for _, n := range []int64{100, 250, 1000} {
		o := dataset{Plan{Shuffle: ShuffleWindow, WindowBlocks: n, Groups: 1, Seed: 2}, []Shard{{}}}
		for range blocks {
			o.shards[0].Segments = append(o.shards[0].Segments, Segment{rows, 1})
		}
		order := o.order(t)
		was := make([]int, blocks*rows) // the batch of each row, an epoch ago
		var met float64
		for epoch := range int64(epochs + 1) {
			at := order.Epoch(epoch).positions()
			for p := 0; p < len(at) && epoch > 0; p += batch {
				from := map[int]float64{}
				for _, row := range at[p:min(p+batch, len(at))] {
					met += from[was[row]]
					from[was[row]]++
				}
			}
			for p, row := range at {
				was[row] = p / batch
			}
		}
		pairs := float64(blocks*rows) * (batch - 1) / 2
		if ratio := met / epochs / (pairs * (batch - 1) / (blocks*rows - 1)); ratio > 1.2 || ratio < 0.9 {
			t.Errorf("windows of %d blocks: rows meet again %.2f times as often as at random", n, ratio)
		} else {
			t.Logf("windows of %d blocks: %.3f", n, ratio)
		}
	}
}

func TestSumEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e := dataset{Plan{}, []Shard{{Segments: []Segment{{10, 2}}}}}.order(t).Epoch(0)
	if _, err := e.Sum(ctx, "s", 0, 10); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// What memory is charged for is never less than what is there.
func TestBytesAreToldBeforehand(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDataset(t, 200)
		o := d.order(t)
		l := o.layout
		held := 32*cap(l.shards) + 8*(cap(l.rows)+cap(l.blocks))
		if l.kept != nil {
			held += 8 * (cap(l.first) + cap(l.kept.starts) + cap(l.kept.stored))
		}
		if told := OrderBytes(d.plan, d.shards); int64(held) > told {
			t.Fatalf("the order holds %d bytes, told %d", held, told)
		}
		e := o.Epoch(0)
		held = 4*cap(e.list.segments) + 8*(cap(e.list.blocks)+cap(e.list.rows)) + 56*cap(e.spans)
		for _, sp := range e.spans {
			held += 8 * cap(sp.ends)
		}
		if told := o.EpochBytes(); int64(held) > told {
			t.Fatalf("the epoch holds %d bytes, told %d", held, told)
		}
		for c := range min(e.Spans(), 3) {
			for n := range min(e.Windows(c), 3) {
				w := e.Open(c, n)
				w.Locate(0, make([]Ref, w.Rows()))
				held = 40*cap(w.pieces) + 8*cap(w.starts) + 4*cap(w.buckets) + 40*cap(w.chosen)
				for i := range w.chosen {
					held += 4 * cap(w.chosen[i].rows)
				}
				if w.order != nil {
					held += 2 * cap(w.order.table)
				}
				if told := e.WindowBytes(w.Pieces()); int64(held) > told {
					t.Fatalf("a window holds %d bytes, told %d", held, told)
				}
			}
		}
	})
}

// One row, one block, more groups than rows, windows wider than everything: nothing is special.
func TestExtremes(t *testing.T) {
	for _, c := range []struct {
		name string
		d    dataset
	}{
		{"one row", dataset{Plan{Shuffle: ShuffleWindow, WindowBlocks: 8, Groups: MaxGroups}, []Shard{{Segments: []Segment{{1, 1}}}}}},
		{"one block", dataset{Plan{Shuffle: ShuffleWindow, WindowBlocks: 4096, Groups: 3}, []Shard{{Segments: []Segment{{1000, 1}}}}}},
		{"no rows", dataset{Plan{Shuffle: ShuffleWindow, WindowBlocks: 8, Groups: 2}, []Shard{{Segments: []Segment{{0, 0}}}}}},
		{"no shards", dataset{Plan{Shuffle: ShuffleFull, Groups: 2}, nil}},
		{"2^40 rows of one block", dataset{Plan{Shuffle: ShuffleWindow, WindowBlocks: math.MaxInt64, Groups: 7}, []Shard{{Segments: []Segment{{MaxRows, 1}}}}}},
		{"2^40 rows, full", dataset{Plan{Shuffle: ShuffleFull, Groups: 1}, []Shard{{Segments: []Segment{{MaxRows, 300_000}}}}}},
		{"2^40 rows as stored", dataset{Plan{}, []Shard{{Segments: []Segment{{MaxRows, MaxBlocks}}}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := c.d.order(t)
			e := o.Epoch(math.MaxInt64)
			seen := make(map[int64]bool)
			r := reader{epoch: e}
			for i := range min(o.Rows(), 50) {
				p := i * (o.Rows() / min(o.Rows(), 50))
				for _, row := range r.take(nil, e.place(p)) {
					if row < 0 || row >= o.Rows() || seen[row] {
						t.Fatalf("position %d is row %d", p, row)
					}
					seen[row] = true
				}
			}
			if want := int(min(o.Rows(), 50)); len(seen) != want {
				t.Errorf("%d rows, want %d", len(seen), want)
			}
		})
	}
}

// A split's parts are apart, leave nothing out, and are of the size asked for; they are the same whatever else is read.
func TestSplitsPartition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shards := drawShards(t, 60)
		seed := rapid.Uint64().Draw(t, "seed")
		at := rapid.SliceOfNDistinct(rapid.Uint32Range(1, splitParts-1), 0, 4, rapid.ID).Draw(t, "borders")
		slices.Sort(at)
		at = append(at, splitParts)
		var all []int64
		from := uint32(0)
		for _, to := range at {
			o := dataset{Plan{Split: &Split{seed, from, to}}, shards}.order(t)
			all = append(all, o.Epoch(0).positions()...)
			from = to
		}
		if want := (dataset{Plan{}, shards}).rows(); !slices.Equal(sorted(all), want) {
			t.Fatalf("%v, want %v", sorted(all), want)
		}
	})
}

// Over many blocks a split keeps its share, in blocks of one row too.
func TestSplitsKeepTheirShare(t *testing.T) {
	for _, size := range []int64{1, 3, 100} {
		d := dataset{Plan{Split: &Split{7, 1000, 3000}}, []Shard{{Identity: "x", Segments: []Segment{{20_000 * size, 20_000}}}}}
		got := float64(d.order(t).Rows()) / float64(20_000*size)
		if math.Abs(got-0.2) > 0.01 {
			t.Errorf("blocks of %d rows: kept %.3f, want 0.2", size, got)
		}
	}
}

func TestPlansThatCannotBe(t *testing.T) {
	one := []Shard{{Segments: []Segment{{10, 2}}}}
	for name, c := range map[string]struct {
		plan   Plan
		shards []Shard
		want   error
	}{
		"no window":      {Plan{Shuffle: ShuffleWindow, Groups: 1}, one, ErrPlan},
		"no groups":      {Plan{Shuffle: ShuffleFull}, one, ErrPlan},
		"many groups":    {Plan{Shuffle: ShuffleFull, Groups: MaxGroups + 1}, one, ErrPlan},
		"shuffle":        {Plan{Shuffle: 3, Groups: 1}, one, ErrPlan},
		"empty split":    {Plan{Split: &Split{0, 5, 5}}, one, ErrPlan},
		"wide split":     {Plan{Split: &Split{0, 5, 10_001}}, one, ErrPlan},
		"no blocks":      {Plan{}, []Shard{{Segments: []Segment{{10, 0}}}}, ErrPlan},
		"empty blocks":   {Plan{}, []Shard{{Segments: []Segment{{10, 11}}}}, ErrPlan},
		"negative":       {Plan{}, []Shard{{Segments: []Segment{{-1, 1}}}}, ErrPlan},
		"too many rows":  {Plan{}, []Shard{{Segments: []Segment{{MaxRows, 1}, {1, 1}}}}, ErrLimit},
		"overflow":       {Plan{}, []Shard{{Segments: []Segment{{math.MaxInt64, 1}, {math.MaxInt64, 1}}}}, ErrLimit},
		"too many":       {Plan{}, []Shard{{Segments: []Segment{{MaxRows, MaxBlocks + 1}}}}, ErrLimit},
		"a block to cut": {Plan{Split: &Split{0, 5, 6}}, []Shard{{Segments: []Segment{{1 << 30, 1}}}}, ErrLimit},
	} {
		if _, err := NewOrder(c.plan, c.shards); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestWindowBlocks(t *testing.T) {
	for _, c := range []struct{ blocks, bytes, want int64 }{
		{0, 0, 8},
		{100, 0, 8},
		{1, 1, 4096},
		{100, 100 * 3_932_160, 68},
		{1000, 1000 << 20, 256},
		{10, 10 << 30, 8},
		{1<<31 - 1, math.MaxInt64, 8},
		{math.MaxInt64, 1, 4096},
	} {
		if got := WindowBlocks(c.blocks, c.bytes); got != c.want {
			t.Errorf("%d blocks of %d bytes: %d, want %d", c.blocks, c.bytes, got, c.want)
		}
	}
}

func TestDesignEffect(t *testing.T) {
	order := func(p Plan) *Order { return dataset{p, []Shard{{Segments: []Segment{{1_000_000, 1000}}}}}.order(t) }
	near := func(name string, got, want float64) {
		if math.Abs(got-want) > 0.05 {
			t.Errorf("%s: %.3f, want %.3f", name, got, want)
		}
	}
	for n, want := range map[int64]float64{10: 26.22, 100: 3.29, 256: 1.74, 1000: 1, 4096: 1} {
		near("window", order(Plan{Shuffle: ShuffleWindow, WindowBlocks: n, Groups: 1}).DesignEffect(256), want)
	}
	near("full", order(Plan{Shuffle: ShuffleFull, Groups: 1}).DesignEffect(256), 1)
	near("stored", order(Plan{}).DesignEffect(256), 255.7)
	near("all rows at once", order(Plan{Shuffle: ShuffleFull, Groups: 1}).DesignEffect(10_000_000), 0)
	near("no rows", dataset{Plan{}, nil}.order(t).DesignEffect(256), 0)
	o := order(Plan{Shuffle: ShuffleWindow, WindowBlocks: 1, Groups: 1})
	n := o.GoodWindow(256)
	if effect(256, n, 1000, 1_000_000) > 2 || effect(256, n-1, 1000, 1_000_000) <= 2 {
		t.Errorf("windows of %d blocks: %.4f, one less %.4f", n, effect(256, n, 1000, 1_000_000), effect(256, n-1, 1000, 1_000_000))
	}
	if n := (dataset{Plan{}, nil}).order(t).GoodWindow(256); n != 1 {
		t.Errorf("no rows: window %d", n)
	}
}

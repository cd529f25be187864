package sampler

import (
	"slices"

	"pgregory.net/rapid"
)

// dataset is what tests order: shards with segments, and what of it a plan reads.
type dataset struct {
	plan   Plan
	shards []Shard
}

// drawShards draws up to four shards that lie apart in the snapshot, with empty segments and blocks of uneven size.
func drawShards(t *rapid.T, most int64) []Shard {
	var shards []Shard
	var row int64
	for i := range rapid.SampledFrom([]int{3, 1, 2, 4, 3, 2, 4, 2, 0}).Draw(t, "shards") {
		row += rapid.Int64Range(0, 50).Draw(t, "gap")
		sh := Shard{Identity: string(rune('a' + i)), Row: row}
		for range rapid.SampledFrom([]int{2, 1, 3, 5, 4, 0}).Draw(t, "segments") {
			rows := rapid.SampledFrom([]int64{most, most, most / 2, 3, 0}).Draw(t, "about")
			rows = rapid.Int64Range(rows/2, rows).Draw(t, "rows")
			blocks := int64(0)
			if rows > 0 {
				blocks = rapid.Int64Range(1, rows).Draw(t, "blocks")
			}
			sh.Segments = append(sh.Segments, Segment{rows, blocks})
			row += rows
		}
		shards = append(shards, sh)
	}
	return shards
}

// drawDataset draws shards and a plan for them.
func drawDataset(t *rapid.T, most int64) dataset {
	d := dataset{shards: drawShards(t, most)}
	d.plan = Plan{Snapshot: "s", Groups: 1}
	d.plan.Shuffle = rapid.SampledFrom([]Shuffle{ShuffleNone, ShuffleWindow, ShuffleWindow, ShuffleWindow, ShuffleFull}).Draw(t, "shuffle")
	if d.plan.Shuffle != ShuffleNone {
		d.plan.Seed = rapid.Uint64().Draw(t, "seed")
		d.plan.Groups = rapid.SampledFrom([]int64{1, 1, 2, 3, 7, 1000, MaxGroups}).Draw(t, "groups")
	}
	if d.plan.Shuffle == ShuffleWindow {
		d.plan.WindowBlocks = rapid.SampledFrom([]int64{1, 2, 3, 8, 20, 5000, 1 << 60}).Draw(t, "window")
	}
	if rapid.Bool().Draw(t, "splits") {
		d.plan.Split = &Split{
			Seed: rapid.Uint64().Draw(t, "split seed"), From: rapid.SampledFrom([]uint32{0, 2000, 4999}).Draw(t, "from"),
			To: rapid.SampledFrom([]uint32{splitParts, 8000, 5000}).Draw(t, "to"),
		}
	}
	return d
}

func (d dataset) order(t interface{ Fatal(...any) }) *Order {
	o, err := NewOrder(d.plan, d.shards)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// rows lists the numbers in the snapshot of all rows that the plan reads, as stored.
func (d dataset) rows() []int64 {
	var rows []int64
	for _, sh := range d.shards {
		row, number := sh.Row, int64(0)
		for _, seg := range sh.Segments {
			for i := range seg.Blocks {
				from, to := i*seg.Rows/seg.Blocks, (i+1)*seg.Rows/seg.Blocks
				rows = append(rows, d.left(sh.Identity, number, row+from, to-from)...)
				number++
			}
			row += seg.Rows
		}
	}
	return rows
}

// left lists the rows of a block that the plan's split keeps.
func (d dataset) left(identity string, block, first, rows int64) (kept []int64) {
	low, high, order := int64(0), rows, &Permutation{}
	if d.plan.Split != nil {
		var k key
		low, high, k = d.plan.Split.of(identity, block, rows)
		order = newPermutation(k, rows)
	}
	for x := range rows {
		if d.plan.Split == nil || order.At(x) >= low && order.At(x) < high {
			kept = append(kept, first+x)
		}
	}
	return kept
}

// reader reads an epoch, opening each window once.
type reader struct {
	epoch   *Epoch
	windows map[[2]int]*Window
}

// take appends the numbers in the snapshot of a run's rows.
func (r *reader) take(dst []int64, run Run) []int64 {
	if r.windows == nil {
		r.windows = make(map[[2]int]*Window)
	}
	at := [2]int{run.Span, run.Window}
	w := r.windows[at]
	if w == nil {
		w = r.epoch.Open(run.Span, run.Window)
		r.windows[at] = w
	}
	refs := make([]Ref, run.To-run.From)
	w.Locate(run.From, refs)
	for _, ref := range refs {
		dst = append(dst, w.Pieces()[ref.Piece].Row+ref.Row)
	}
	return dst
}

// share lists the rows of a step that a rank takes, and how many of them repeat others.
func (r *reader) share(step Step, rank, ranks int64) (rows []int64, padded int) {
	for run := range r.epoch.Runs(step, rank, ranks) {
		rows = r.take(rows, run)
		if run.Padded {
			padded += int(run.To - run.From)
		}
	}
	return rows, padded
}

// positions lists the row at every position.
func (e *Epoch) positions() []int64 {
	r := reader{epoch: e}
	rows := make([]int64, 0, e.order.Rows())
	for p := range e.order.Rows() {
		rows = r.take(rows, e.place(p))
	}
	return rows
}

func sorted(rows []int64) []int64 {
	rows = slices.Clone(rows)
	slices.Sort(rows)
	return rows
}

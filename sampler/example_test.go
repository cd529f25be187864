package sampler_test

import (
	"fmt"

	"github.com/headrace/headrace/sampler"
)

// Two ranks read an epoch of 24 rows in 6 blocks, two blocks in memory at a time, in steps of 8 rows.
func Example() {
	plan := sampler.Plan{Snapshot: "id", Shards: []int{0}, Shuffle: sampler.ShuffleWindow, WindowBlocks: 2, Groups: 1, Seed: 7}
	shard := sampler.Shard{Segments: []sampler.Segment{{Rows: 12, Blocks: 3}, {Rows: 12, Blocks: 3}}}
	order, err := sampler.NewOrder(plan, []sampler.Shard{shard})
	if err != nil {
		panic(err)
	}
	schedule, err := sampler.NewSchedule(order, sampler.Cut{Batch: 8, Tail: sampler.Drop, End: 1})
	if err != nil {
		panic(err)
	}
	epoch := order.Epoch(0)
	for number := range schedule.Count() {
		step := schedule.Step(number)
		for rank := range int64(2) {
			fmt.Printf("step %d, rank %d:", number, rank)
			for run := range epoch.Runs(step, rank, 2) {
				window := epoch.Open(run.Span, run.Window)
				rows := make([]sampler.Ref, run.To-run.From)
				window.Locate(run.From, rows)
				for _, r := range rows {
					fmt.Printf(" %d", window.Pieces()[r.Piece].Row+r.Row)
				}
			}
			fmt.Println()
		}
	}
	// Output:
	// step 0, rank 0: 15 1 13 14
	// step 0, rank 1: 2 12 0 3
	// step 1, rank 0: 7 17 6 16
	// step 1, rank 1: 5 19 18 4
	// step 2, rank 0: 8 22 11 21
	// step 2, rank 1: 10 9 23 20
}

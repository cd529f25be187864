package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"

	"github.com/headrace/headrace/gateway/client"
	"github.com/headrace/headrace/gateway/wire"
	"github.com/headrace/headrace/sampler"
)

// The plans are of so many rows, for so many ranks.
const (
	planRows  = 1_000_000_000
	planRanks = 1024
	planBatch = 256 // rows of a rank's step
)

// planning measures what it takes to know the order, before any data are read: in the bench's own process, and in a
// gateway that answers every rank of a large job.
func planning(ctx context.Context, s settings) (string, error) {
	versions, err := s.versions(ctx)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "## Plan: knowing the order\n\nWindow shuffle, %d rows, by the processor's time, in %d rounds; medians (least–most).\n%s\n\n",
		int(planRows*s.scale), s.repeats, versions)
	b.WriteString("| what | takes | wanted |\n|---|---|---|\n")
	blocks := max(1000, int(1e6*s.scale))
	for _, segment := range []int{1, 100} { // blocks in each
		shards := planShards(int64(planRows*s.scale), blocks/segment, segment)
		took, err := s.times(func() error { _, _, err := planEpoch(shards, 256); return err })
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "| plan of %d blocks in %d segments, and its first epoch | %s ms | < 500 |\n", blocks, blocks/segment, milliseconds(took))
	}
	for _, window := range []int64{25, 256, 4096} {
		next, seek, err := s.positions(window)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "| the next row, in windows of %d of 500,000 blocks, their opening included | %s ns | ≤ 60 |\n", window, spreadOf(next, 1e9))
		fmt.Fprintf(&b, "| %d rows at a random place, in windows of %d blocks | %s ms | < 1 |\n", planBatch, window, spreadOf(seek, 1e3))
	}
	rank, err := s.rankShares()
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&b, "| a stream's totals and its share of a step, one of %d ranks | %s µs | – |\n", planRanks, spreadOf(rank, 1e6/planRanks))
	asked, err := s.askRanks(ctx)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&b, "| the gateway's answer to GetFlightInfo by one of %d ranks, gRPC included | %s µs | – |\n", planRanks, spreadOf(asked, 1e6/planRanks))
	return b.String(), nil
}

// times is the processor time of every round of something, in seconds, the first one left out.
func (s settings) times(do func() error) (all []float64, err error) {
	for round := range s.repeats + 1 {
		began := processorSeconds()
		if err := do(); err != nil {
			return nil, err
		}
		if round > 0 {
			all = append(all, processorSeconds()-began)
		}
	}
	return all, nil
}

func spreadOf(values []float64, scale float64) string {
	m := median(values)
	return fmt.Sprintf("%.3g (%.3g–%.3g)", scale*m, scale*values[0], scale*values[len(values)-1])
}

// planShards is rows in so many segments of like size.
func planShards(rows int64, segments, blocks int) []sampler.Shard {
	shard := sampler.Shard{}
	for i := range int64(segments) {
		n := int64(segments)
		shard.Segments = append(shard.Segments, sampler.Segment{Rows: (i+1)*rows/n - i*rows/n, Blocks: int64(blocks)})
	}
	return []sampler.Shard{shard}
}

// planEpoch makes an order, and its first epoch.
func planEpoch(shards []sampler.Shard, window int64) (*sampler.Epoch, *sampler.Order, error) {
	o, err := sampler.NewOrder(sampler.Plan{Shuffle: sampler.ShuffleWindow, WindowBlocks: window, Groups: 1, Seed: 1}, shards)
	if err != nil {
		return nil, nil, err
	}
	return o.Epoch(0), o, nil
}

// positions measures rows that follow each other, each, and batches at random places, in seconds.
func (s settings) positions(window int64) (next, seek []float64, err error) {
	rows := int64(planRows * s.scale)
	e, _, err := planEpoch(planShards(rows, 5000, 100), window)
	if err != nil {
		return nil, nil, err
	}
	refs := make([]sampler.Ref, planBatch)
	at := func(from int64) {
		for run := range e.Runs(sampler.Step{From: from, To: from + planBatch}, 0, 1) {
			e.Open(run.Span, run.Window).Locate(run.From, refs[:run.To-run.From])
		}
	}
	const seeks = 50
	seek, err = s.times(func() error {
		for range seeks {
			at(rand.Int64N(rows - planBatch))
		}
		return nil
	})
	for i := range seek {
		seek[i] /= seeks
	}
	for round := range s.repeats + 1 {
		taken, began := int64(0), processorSeconds()
		for number := round; taken < 5_000_000 && number < e.Windows(0); number++ {
			w := e.Open(0, number)
			for from := int64(0); from < w.Rows(); from += planBatch {
				w.Locate(from, refs[:min(planBatch, w.Rows()-from)])
			}
			taken += w.Rows()
		}
		if round > 0 {
			next = append(next, (processorSeconds()-began)/float64(taken))
		}
	}
	return next, seek, err
}

// rankShares measures what a gateway does for every rank beside the plan that they share, in seconds for all.
func (s settings) rankShares() ([]float64, error) {
	e, order, err := planEpoch(planShards(int64(planRows*s.scale), 5000, 100), 256)
	if err != nil {
		return nil, err
	}
	return s.times(func() error {
		for rank := range int64(planRanks) {
			schedule, err := sampler.NewSchedule(order, sampler.Cut{Batch: planBatch * planRanks, Tail: sampler.Drop, End: 90})
			if err != nil {
				return err
			}
			schedule.Share(sampler.Stream{Rank: rank, Ranks: planRanks, Workers: 1}, 0)
			for range e.Runs(schedule.Step(rank%schedule.Count()), rank, planRanks) {
				continue
			}
		}
		return nil
	})
}

// askRanks measures what a gateway takes to answer all ranks, in seconds of its processor time.
func (s settings) askRanks(ctx context.Context) (all []float64, err error) {
	file, err := s.wireData(ctx)
	if err != nil {
		return nil, err
	}
	folder := filepath.Dir(file)
	gateway, err := launch(ctx, s.headraceServing(folder))
	if err != nil {
		return nil, err
	}
	defer stop(gateway)
	c, err := client.Dial(gateway[0].uri, client.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	for round := range s.repeats + 1 {
		before, err := gateway[0].cpu()
		if err != nil {
			return nil, err
		}
		for rank := range planRanks {
			if err := askRank(ctx, c, filepath.Base(folder), rank, round); err != nil {
				return nil, err
			}
		}
		after, err := gateway[0].cpu()
		if err != nil {
			return nil, err
		}
		if round > 0 {
			all = append(all, (after - before).Seconds())
		}
	}
	return all, nil
}

// askRank asks for the plan of one rank; every seed is another plan.
func askRank(ctx context.Context, c *client.Client, dataset string, rank, seed int) error {
	text, err := json.Marshal(map[string]any{
		"dataset": dataset, "shuffle": "window", "seed": seed, "batch_size": 16, "world_size": planRanks, "rank": rank,
	})
	if err != nil {
		return err
	}
	request, err := wire.Parse(text)
	if err != nil {
		return err
	}
	_, err = c.Plan(ctx, request)
	return err
}

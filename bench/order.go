package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// orderBatch is how many rows a training batch has.
const orderBatch = 256

// order measures what a shuffled epoch costs beside one in stored order, in batches of the same size, and how long the
// first shuffled batch takes.
func order(ctx context.Context, s settings) (string, error) {
	file, err := s.wireData(ctx)
	if err != nil {
		return "", err
	}
	all, err := s.raceOrders(ctx, filepath.Dir(file))
	if err != nil {
		return "", err
	}
	firsts, err := s.firstShuffled(ctx)
	if err != nil {
		return "", err
	}
	over, err1 := s.epochBorders(ctx, filepath.Dir(file), "borders")
	shared, err2 := s.epochBorders(ctx, filepath.Dir(file), "shared-borders")
	if err := errors.Join(err1, err2); err != nil {
		return "", err
	}
	ready, err := s.readyMade(ctx, file)
	if err != nil {
		return "", err
	}
	versions, err := s.versions(ctx)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	first := all[0].runs[0]
	fmt.Fprintf(&b, "## Order: a shuffled epoch to a pyarrow client that touches every byte\n\n")
	fmt.Fprintf(&b, "The file of the wire bench, %.2f GB in %d batches of %d rows; %d interleaved rounds, loopback, warm page cache; medians\n"+
		"(least–most).\n%s\n\n", first.gb(), first.Batches, orderBatch, s.repeats, versions)
	compare(&b, all, "throughput ≥ 0.75")
	fmt.Fprintf(&b, "\nFirst batch of a window shuffle of local Parquet files, %.2f GB decoded, from the call of DoGet, each by a gateway that was\n"+
		"just started: %s ms in %d times; wanted ≤ 600.\n", s.scale*orderParquet/1e9, milliseconds(firsts), len(firsts))
	fmt.Fprintf(&b, "\n%s", over.text(ready, shared))
	return b.String(), nil
}

// training is a request for batches of a data set, shuffled or not.
func training(dataset, shuffle string) string {
	request, _ := json.Marshal(map[string]any{"dataset": dataset, "shuffle": shuffle, "batch_size": orderBatch}) // strings and numbers
	return string(request)
}

// raceOrders lets one gateway serve both orders.
func (s settings) raceOrders(ctx context.Context, folder string) ([]*contestant, error) {
	gateway, err := launch(ctx, s.headraceServing(folder))
	if err != nil {
		return nil, err
	}
	defer stop(gateway)
	shuffled, stored := *gateway[0], *gateway[0]
	shuffled.title, shuffled.name = "shuffled", training(filepath.Base(folder), "window")
	stored.title, stored.name = "as stored", training(filepath.Base(folder), "none")
	all := []*contestant{&shuffled, &stored}
	if err := s.race(ctx, all); err != nil {
		return nil, err
	}
	return all, alike(all, "the number of rows", func(r reading) uint64 { return uint64(r.Rows) })
}

// orderParquet is the full size of the Parquet files of which the first batch is waited for, decoded.
const orderParquet = 1 << 30

// firstShuffled measures the wait for the first batch of gateways that have read nothing before, in seconds.
func (s settings) firstShuffled(ctx context.Context) (all []float64, err error) {
	size := fmt.Sprint(int64(s.scale * orderParquet))
	folder, err := s.generate(ctx, "wide-"+size, func(part string) []string {
		return []string{s.script("parquet.py"), "wide", part, size}
	})
	if err != nil {
		return nil, err
	}
	for round := range s.repeats + 1 {
		gateway, err := launch(ctx, s.headraceServing(folder))
		if err != nil {
			return nil, err
		}
		gateway[0].name = training(gateway[0].name, "window")
		printed, err := s.client(ctx, gateway[0], "fresh")
		stop(gateway)
		if err != nil {
			return nil, err
		}
		var took float64
		if err := json.Unmarshal(printed, &took); err != nil {
			return nil, err
		}
		if round > 0 { // the first fills the page cache
			all = append(all, took)
		}
	}
	return all, nil
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
)

// borderCount is over how many borders of epochs a stream is read.
const borderCount = 20

// borders is what a client waited for batches, in seconds.
type borders struct {
	First  []float64 // those after a border
	Usual  float64   // half of the others came sooner
	Behind float64   // one of twenty of the others came later
}

// epochBorders reads one stream without end over borders, at the pace of a client that touches every byte.
func (s settings) epochBorders(ctx context.Context, folder string) (b borders, err error) {
	gateway, err := launch(ctx, s.headraceServing(folder))
	if err != nil {
		return b, err
	}
	defer stop(gateway)
	request, err := json.Marshal(map[string]any{
		"dataset": filepath.Base(folder), "shuffle": "window", "batch_size": orderBatch, "num_epochs": -1,
	})
	if err != nil {
		return b, err
	}
	gateway[0].name = string(request)
	out, err := s.client(ctx, gateway[0], "borders", fmt.Sprint(borderCount))
	if err != nil {
		return b, err
	}
	return b, json.Unmarshal(out, &b)
}

// text tells whether the first batches of epochs come as others do.
func (b borders) text() string {
	late := 0
	for _, wait := range b.First {
		if wait > 3*b.Behind {
			late++
		}
	}
	return fmt.Sprintf("One stream without end over %d borders of epochs: batches came %.2f ms after the one before was used, one in twenty\n"+
		"after more than %.2f; the first of an epoch after %s. Later than 3 times the %.2f: %d; wanted 0.\n",
		len(b.First), 1e3*b.Usual, 1e3*b.Behind, milliseconds(b.First), 1e3*b.Behind, late)
}

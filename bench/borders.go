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
	First   []float64 // those after a border
	Usual   float64   // half of the others came sooner
	Behind  float64   // one of twenty of the others came later
	Far     float64   // one of a hundred of them did
	Longest float64
	Late    float64 // the part of the others that came later than three times Behind: what the machine does to any batch
}

// epochBorders reads one stream without end over borders, at the pace of a client that touches every byte; client is what
// client.py calls it.
func (s settings) epochBorders(ctx context.Context, folder, client string) (b borders, err error) {
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
	out, err := s.client(ctx, gateway[0], client, fmt.Sprint(borderCount))
	if err != nil {
		return b, err
	}
	return b, json.Unmarshal(out, &b)
}

// readyMade reads the same batches in stored order from pyarrow's own server, which has nothing to do but to send them: what
// comes late then does so for reasons of the client's and the machine's.
func (s settings) readyMade(ctx context.Context, file string) (b borders, err error) {
	stored := s.wireInCpp(file)
	stored.line = append(stored.line, fmt.Sprint(orderBatch))
	server, err := launch(ctx, stored)
	if err != nil {
		return b, err
	}
	defer stop(server)
	out, err := s.client(ctx, server[0], "waits", fmt.Sprint(borderCount))
	if err != nil {
		return b, err
	}
	return b, json.Unmarshal(out, &b)
}

// text tells whether the first batches of epochs come as others do, and as others of a server that only sends.
func (b borders) text(ready, shared borders) string {
	late := b.late()
	return fmt.Sprintf("One stream without end over %d borders of epochs: batches came %.2f ms after the one before was used, one in twenty\n"+
		"after more than %.2f, one in a hundred after more than %.2f, the last of all after %.1f; the first of an epoch after %s.\n"+
		"Later than 3 times the %.2f: %d of the %d first ones, wanted 0; %.1f %% of the others. pyarrow's C++ server, which has the\n"+
		"same batches ready: %.2f ms, %.2f, %.2f, %.1f; %.1f %% later than 3 times the %.2f. headrace's own client in shared memory:\n"+
		"%.2f ms, %.2f, %.2f, %.1f; %d of its first ones later than 3 times the %.2f, and %.1f %% of the others.\n",
		len(b.First), 1e3*b.Usual, 1e3*b.Behind, 1e3*b.Far, 1e3*b.Longest, milliseconds(b.First), 1e3*b.Behind, late, len(b.First), 100*b.Late,
		1e3*ready.Usual, 1e3*ready.Behind, 1e3*ready.Far, 1e3*ready.Longest, 100*ready.Late, 1e3*ready.Behind,
		1e3*shared.Usual, 1e3*shared.Behind, 1e3*shared.Far, 1e3*shared.Longest, shared.late(), 1e3*shared.Behind, 100*shared.Late)
}

// late counts the first batches that came later than three times Behind.
func (b borders) late() (n int) {
	for _, wait := range b.First {
		if wait > 3*b.Behind {
			n++
		}
	}
	return n
}

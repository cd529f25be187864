package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// torchBytes is the full size of the torch bench's data, decoded.
const torchBytes = 1 << 30

// loopLimit is how long one pass of a loop may take: at full size the slowest that works takes two minutes.
const loopLimit = 10 * time.Minute

// loop is one of the training loops that are compared; torchloop.py knows them by name.
type loop struct {
	title   string
	name    string
	workers string
	source  []string // without it, a gateway is
	python  string
	wanted  string // of our throughput against it
	out     string // why it takes no part any more
	runs    []loopReading
}

// loopReading is one pass.
type loopReading struct {
	reading
	First float64 // seconds to the first batch
	Peak  float64 // bytes of memory of the loop and its workers
}

// torchLoops measures shuffled passes of training loops in PyTorch, each with no worker and with two.
func torchLoops(ctx context.Context, s settings) (string, error) {
	size := fmt.Sprint(int64(s.scale * torchBytes))
	folder, err := s.generate(ctx, "wide-"+size, func(part string) []string {
		return []string{s.script("parquet.py"), "wide", part, size}
	})
	if err != nil {
		return "", err
	}
	mapped, err := s.generate(ctx, filepath.Base(folder)+"-one.arrow", func(part string) []string {
		return []string{s.script("torchloop.py"), "convert", "arrow", folder, part}
	})
	if err != nil {
		return "", err
	}
	loops := s.loops(ctx, folder, mapped)
	ready := command{title: "pyarrow's Flight server", line: []string{s.python, s.script("torchloop.py"), "serve", mapped}}
	gateways, err := launch(ctx, s.headraceServing(folder), s.headraceServing(folder).anew(), ready)
	if err != nil {
		return "", err
	}
	defer stop(gateways)
	if err := s.raceLoops(ctx, gateways, folder, loops); err != nil {
		return "", err
	}
	notes, err := s.loopNotes(ctx, gateways[0])
	if err != nil {
		return "", err
	}
	return loopsTable(loops, notes, s.repeats), nil
}

// loops prepares what each loop reads: first ours, in a later epoch and in the first, then the others. One that cannot be
// prepared takes no part.
func (s settings) loops(ctx context.Context, folder, mapped string) []*loop {
	lit, noLit := s.torchEnvironment(ctx, "torch-litdata", "requirements-torch-litdata.txt", "--no-deps")
	mosaic, noMosaic := s.torchEnvironment(ctx, "torch-mds", "requirements-torch-mds.txt", "--no-deps")
	hugging, noHugging := s.torchEnvironment(ctx, "datasets", "requirements.txt", "--require-hashes")
	if noLit == nil {
		_, noLit = output(ctx, lit, s.script("torchloop.py"), "convert", "litdata", folder, "")
	}
	shards := folder + ".mds"
	if noMosaic == nil {
		noMosaic = s.mosaicData(ctx, mosaic, folder, shards)
	}
	loops := []*loop{
		{title: "headrace, Loader, later epochs", name: "headrace", workers: "0", python: s.python, wanted: "–"},
		{title: "headrace, Loader, later epochs, without shared memory", name: "wired", workers: "0", python: s.python, wanted: "–"},
		{title: "headrace, Loader, first epoch: a gateway just started", name: "headrace", workers: "0", python: s.python, wanted: "–"},
		{title: "pyarrow's Flight server, batches ready in memory, read in the loop", name: "ready", workers: "0", python: s.python, wanted: "–"},
		{title: "pyarrow's Flight server, batches ready in memory, read ahead by a thread", name: "ready", workers: "1", python: s.python, wanted: "–"},
	}
	for _, one := range []struct {
		loop
		none error
	}{
		{loop{title: "headrace, DataLoader, later epochs", name: "dataloader", python: s.python, wanted: "–"}, nil},
		{loop{title: "DataLoader over mapped Arrow", name: "mapped", source: []string{mapped}, python: s.python, wanted: "≥ 1.3"}, nil},
		{loop{title: "Hugging Face datasets", name: "hf", source: []string{folder}, python: hugging, wanted: "≥ 2"}, noHugging},
		{loop{title: "LitData on Parquet", name: "litdata", source: []string{folder}, python: lit, wanted: "≥ 10"}, noLit},
		{loop{title: "MosaicML MDS, converted", name: "mds", source: []string{shards}, python: mosaic, wanted: "≥ 15"}, noMosaic},
	} {
		for _, workers := range []string{"0", "2"} {
			l := one.loop
			l.workers, l.title = workers, fmt.Sprintf("%s, %s workers", l.title, workers)
			l.fail(one.none)
			loops = append(loops, &l)
		}
	}
	return loops
}

// mosaicData converts the data, unless an earlier run has.
func (s settings) mosaicData(ctx context.Context, python, folder, shards string) error {
	if _, err := os.Stat(shards); err == nil {
		return nil
	}
	part := shards + ".part"
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	if _, err := output(ctx, python, s.script("torchloop.py"), "convert", "mds", folder, part); err != nil {
		return err
	}
	return os.Rename(part, shards)
}

// torchEnvironment has what a file names, and PyTorch from the environment of the tests.
func (s settings) torchEnvironment(ctx context.Context, name, file, how string) (string, error) {
	interpreter, err := s.environment(ctx, name, file, how)
	if err != nil {
		return "", err
	}
	const where = "import sysconfig; print(sysconfig.get_path('purelib'))"
	theirs, err1 := output(ctx, interpreter, "-c", where)
	ours, err2 := output(ctx, s.python, "-c", where)
	if err := errors.Join(err1, err2); err != nil {
		return "", err
	}
	return interpreter, os.WriteFile(filepath.Join(strings.TrimSpace(string(theirs)), "torch.pth"), ours, 0o644)
}

// raceLoops lets all loops take turns, and checks that each had every sample.
func (s settings) raceLoops(ctx context.Context, gateways []*contestant, folder string, loops []*loop) error {
	truth, err := output(ctx, s.python, s.script("torchloop.py"), "truth", folder)
	if err != nil {
		return err
	}
	numbers := map[*contestant]*loop{}
	var all []*contestant
	for i, l := range loops {
		c := *gateways[0]
		switch {
		case l.name == "headrace" && i > 0:
			all, numbers[gateways[1]] = append(all, gateways[1]), l
			continue
		case l.name == "ready":
			c = *gateways[2]
		}
		c.title = l.title
		all, numbers[&c] = append(all, &c), l
	}
	return interleave(ctx, s.repeats, all, func(c *contestant, warm bool) error {
		l := numbers[c]
		if warm && l.out == "" {
			l.drop(loops)
		}
		if l.out != "" {
			return nil
		}
		r, err := s.pass(ctx, c, l, strings.TrimSpace(string(truth)))
		switch {
		case err == nil:
			l.runs = append(l.runs, r)
		case ctx.Err() != nil || l.source == nil:
			return err
		default:
			l.fail(err)
		}
		return nil
	})
}

// pass lets a loop read all data once.
func (s settings) pass(ctx context.Context, c *contestant, l *loop, truth string) (r loopReading, err error) {
	before, err := c.cpu()
	if err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, loopLimit, fmt.Errorf("no end within %v", loopLimit))
	defer cancel()
	source := l.source
	if source == nil {
		source = []string{c.uri, c.name}
	}
	out, err := output(ctx, l.python, append([]string{s.script("torchloop.py"), l.name, l.workers}, source...)...)
	if err != nil {
		return r, errors.Join(context.Cause(ctx), err)
	}
	after, err := c.cpu()
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return r, err
	}
	if got := fmt.Sprint(r.Sum); got != truth {
		return r, fmt.Errorf("other samples: their digests add up to %s, not %s (%d rows)", got, truth, r.Rows)
	}
	r.CPU += (after - before).Seconds()
	fmt.Fprintf(os.Stderr, "bench: %s: %.1f s, %.1f s of CPU\n", l.title, r.Seconds, r.CPU)
	return r, nil
}

// fail takes a loop out of the race.
func (l *loop) fail(err error) {
	if err != nil {
		lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
		l.out = "failed: " + strings.ReplaceAll(lines[0], "|", "/")
		fmt.Fprintf(os.Stderr, "bench: %s: %v\n", l.title, err)
	}
}

// drop takes a rival's loop out that was not half as fast in the first round as the same one with another number of workers.
func (l *loop) drop(all []*loop) {
	for _, o := range all {
		if l.source != nil && o.name == l.name && len(l.runs) == 1 && len(o.runs) > 0 && o.runs[0].throughput() > 2*l.runs[0].throughput() {
			l.out = fmt.Sprintf("%.2f of the speed with %s workers, in one round", l.runs[0].throughput()/o.runs[0].throughput(), o.workers)
		}
	}
}

// loopNotes tells what is measured beside the race: going on in the middle, and the client's own share.
func (s settings) loopNotes(ctx context.Context, c *contestant) (string, error) {
	var times []float64
	for range s.repeats {
		var seconds float64
		if err := s.ask(ctx, &seconds, "resume", c); err != nil {
			return "", err
		}
		times = append(times, seconds)
	}
	var cost struct{ PyArrow, Arrow, Torch, Shared float64 }
	if err := s.ask(ctx, &cost, "share", c); err != nil {
		return "", err
	}
	versions, err := s.versions(ctx)
	return fmt.Sprintf("Going on in the middle of a pass: %.2f s until the first batch. A batch of few bytes takes the client %.0f µs of CPU,\n"+
		"all threads together, and %.0f over the wire; of these %.0f are pyarrow's own, %.0f ours to read, and %.0f to make tensors\n"+
		"(wanted: at most 15 more than pyarrow's).\n%s",
		median(times), cost.Shared, cost.Torch, cost.PyArrow, cost.Arrow-cost.PyArrow, cost.Torch-cost.Arrow, versions), err
}

// ask has the script measure something of ours.
func (s settings) ask(ctx context.Context, answer any, what string, c *contestant) error {
	out, err := output(ctx, s.python, s.script("torchloop.py"), what, c.uri, c.name)
	if err != nil {
		return err
	}
	return json.Unmarshal(out, answer)
}

func loopsTable(loops []*loop, notes string, rounds int) string {
	var b strings.Builder
	ours, first := warmRuns(loops[0]), warmRuns(loops[2])
	fmt.Fprintf(&b, "## Torch: training loops that touch every byte of a shuffled epoch\n\n")
	fmt.Fprintf(&b, "Wide rows as Parquet, %d rows, %.2f GB decoded, in batches of %d rows; %d interleaved rounds, warm page cache; medians\n"+
		"(least–most). The digests of all samples are right in every pass. CPU is that of all processes, the gateway's too; memory is\n"+
		"the loop's own and its workers'. Loops touch with one thread. Time runs from before the data set is made to the end of the pass. What comes of\n"+
		"pyarrow's own Flight server, which has the batches ready, is all that a gateway can bring over Flight. %s\n\n",
		ours[0].Rows, ours[0].gb(), orderBatch, rounds, notes)
	b.WriteString("| loop | 1,000 samples/s | CPU-s/GB | first batch, s | peak memory, GB | our first epoch against it | a later one | wanted |\n|---|---|---|---|---|---|---|---|\n")
	for _, l := range loops {
		if l.out != "" {
			fmt.Fprintf(&b, "| %s | %s | | | | | | |\n", l.title, l.out)
			continue
		}
		theirs := warmRuns(l)
		var firsts, peaks []float64
		for _, r := range l.runs[1:] {
			firsts, peaks = append(firsts, r.First), append(peaks, r.Peak/1e9)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %.2f | %.2f | %.2f | %.2f | %s |\n", l.title, spread(theirs, reading.samples), spread(theirs, reading.clientPerGB),
			median(firsts), median(peaks), ratio(first, theirs, reading.throughput), ratio(ours, theirs, reading.throughput), l.wanted)
	}
	return b.String()
}

// warmRuns are those that count.
func warmRuns(l *loop) (runs []reading) {
	for _, r := range l.runs[1:] {
		runs = append(runs, r.reading)
	}
	return runs
}

func (r reading) samples() float64 { return float64(r.Rows) / 1e3 / r.Seconds }

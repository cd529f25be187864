package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// loop is one of the training loops that are compared; torchloop.py knows them by name.
type loop struct {
	title   string
	name    string
	workers string
	source  []string
	python  string
	wanted  string    // of our throughput against it
	firsts  []float64 // seconds
	peaks   []float64 // GB
}

// torchLoops measures shuffled passes of training loops in PyTorch, each with no worker and with two.
func torchLoops(ctx context.Context, s settings) (string, error) {
	size := fmt.Sprint(int64(s.scale * parquetBytes))
	folder, err := s.generate(ctx, "wide-"+size, func(part string) []string {
		return []string{s.script("parquet.py"), "wide", part, size}
	})
	if err != nil {
		return "", err
	}
	all, loops, err := s.loops(ctx, folder)
	if err != nil {
		return "", err
	}
	defer stop(all[:1])
	if err := s.raceLoops(ctx, all, loops); err != nil {
		return "", err
	}
	resumed, err := s.resumes(ctx, all[0], loops[0])
	if err != nil {
		return "", err
	}
	versions, err := s.versions(ctx)
	if err != nil {
		return "", err
	}
	return loopsTable(all, loops, versions, resumed, s.repeats), nil
}

// loops prepares what each loop reads; the first one's server serves all of ours.
func (s settings) loops(ctx context.Context, folder string) ([]*contestant, []*loop, error) {
	mapped, err := s.generate(ctx, filepath.Base(folder)+".arrow", func(part string) []string {
		return []string{s.script("torchloop.py"), "convert", "arrow", folder, part}
	})
	if err != nil {
		return nil, nil, err
	}
	lit, err1 := s.torchEnvironment(ctx, "torch-litdata", "requirements-torch-litdata.txt", "--no-deps")
	mosaic, err2 := s.torchEnvironment(ctx, "torch-mds", "requirements-torch-mds.txt", "--no-deps")
	hugging, err3 := s.torchEnvironment(ctx, "datasets", "requirements.txt", "--require-hashes")
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, nil, err
	}
	shards := folder + ".mds"
	if _, err := os.Stat(shards); err != nil {
		if _, err := output(ctx, mosaic, s.script("torchloop.py"), "convert", "mds", folder, shards); err != nil {
			return nil, nil, err
		}
	}
	if _, err := output(ctx, lit, s.script("torchloop.py"), "convert", "litdata", folder, ""); err != nil {
		return nil, nil, err
	}
	all, err := launch(ctx, s.headraceServing(folder))
	if err != nil {
		return nil, nil, err
	}
	ours := []string{all[0].uri, all[0].name}
	loops := []*loop{
		{title: "headrace, Loader", name: "headrace", workers: "0", source: ours, python: s.python},
		{title: "headrace, DataLoader", name: "dataloader", workers: "2", source: ours, python: s.python, wanted: "–"},
	}
	for _, rival := range []loop{
		{title: "DataLoader over mapped Arrow", name: "mapped", source: []string{mapped}, python: s.python, wanted: "≥ 1.3"},
		{title: "Hugging Face datasets", name: "hf", source: []string{folder}, python: hugging, wanted: "≥ 2"},
		{title: "LitData on Parquet", name: "litdata", source: []string{folder}, python: lit, wanted: "≥ 10"},
		{title: "MosaicML MDS, converted", name: "mds", source: []string{shards}, python: mosaic, wanted: "≥ 15"},
	} {
		for _, workers := range []string{"0", "2"} {
			one := rival
			one.workers = workers
			one.title = fmt.Sprintf("%s, %s workers", rival.title, workers)
			loops = append(loops, &one)
		}
	}
	for range loops[1:] {
		all = append(all, &contestant{server: all[0].server})
	}
	return all, loops, nil
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

// raceLoops lets all loops take turns, and checks that each had every row.
func (s settings) raceLoops(ctx context.Context, all []*contestant, loops []*loop) error {
	number := map[*contestant]*loop{}
	for i, c := range all {
		c.title, number[c] = loops[i].title, loops[i]
	}
	err := interleave(ctx, s.repeats, all, func(c *contestant, warm bool) error {
		l := number[c]
		before, err := c.cpu()
		if err != nil {
			return err
		}
		out, err := output(ctx, l.python, append([]string{s.script("torchloop.py"), l.name, l.workers}, l.source...)...)
		if err != nil {
			return err
		}
		after, err := c.cpu()
		if err != nil {
			return err
		}
		var r struct {
			reading
			First float64
			Peak  float64
		}
		if err := json.Unmarshal(out, &r); err != nil || !warm {
			return err
		}
		r.CPU += (after - before).Seconds()
		c.runs = append(c.runs, r.reading)
		l.firsts, l.peaks = append(l.firsts, r.First), append(l.peaks, r.Peak/1e9)
		return nil
	})
	if err != nil {
		return err
	}
	err = alike(all, "the number of rows", func(r reading) uint64 { return uint64(r.Rows) })
	return errors.Join(err, alike(all, "the sum of the rows", func(r reading) uint64 { return r.Sum }))
}

// resumes times going on in the middle of a pass, in a fresh process.
func (s settings) resumes(ctx context.Context, c *contestant, l *loop) (float64, error) {
	var times []float64
	for range s.repeats {
		out, err := output(ctx, l.python, s.script("torchloop.py"), "resume", "headrace", c.uri, l.source[1])
		if err != nil {
			return 0, err
		}
		var seconds float64
		if err := json.Unmarshal(out, &seconds); err != nil {
			return 0, err
		}
		times = append(times, seconds)
	}
	return median(times), nil
}

func loopsTable(all []*contestant, loops []*loop, versions string, resumed float64, rounds int) string {
	var b strings.Builder
	first := all[0].runs[0]
	fmt.Fprintf(&b, "## Torch: training loops that touch every byte of a shuffled epoch\n\n")
	fmt.Fprintf(&b, "The wide files of the Parquet bench, %d rows, %.2f GB decoded, in batches of %d rows; %d interleaved rounds, warm page\n"+
		"cache; medians (least–most). All rows' sums are the same. CPU is that of all processes, the gateway's too; memory is the\n"+
		"loop's own and its workers'. Going on in the middle of a pass: %.2f s until the first batch.\n%s\n\n",
		first.Rows, first.gb(), orderBatch, rounds, resumed, versions)
	b.WriteString("| loop | 1,000 samples/s | CPU-s/GB | first batch, s | peak memory, GB | ours against it | wanted |\n|---|---|---|---|---|---|---|\n")
	for i, l := range loops {
		c := all[i]
		fmt.Fprintf(&b, "| %s | %s | %s | %.2f | %.2f | %.2f | %s |\n", l.title, spread(c.runs, reading.samples), spread(c.runs, reading.clientPerGB),
			median(l.firsts), median(l.peaks), ratio(all[0].runs, c.runs, reading.throughput), l.wanted)
	}
	return b.String()
}

func (r reading) samples() float64 { return float64(r.Rows) / 1e3 / r.Seconds }

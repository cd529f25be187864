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

// datasetsBuffer is how many rows the shuffle buffer of Hugging Face datasets holds: ten times its default.
const datasetsBuffer = "10000"

// datasets measures a shuffled epoch of local Parquet files beside Hugging Face datasets, which streams the same files.
func datasets(ctx context.Context, s settings) (string, error) {
	python, err := s.environment(ctx, "datasets", "requirements.txt", "--require-hashes")
	if err != nil {
		return "", err
	}
	size := fmt.Sprint(int64(s.scale * parquetBytes))
	folder, err := s.generate(ctx, "wide-"+size, func(part string) []string {
		return []string{s.script("parquet.py"), "wide", part, size}
	})
	if err != nil {
		return "", err
	}
	all, err := s.raceShufflers(ctx, python, folder)
	if err != nil {
		return "", err
	}
	versions, err := s.versions(ctx)
	if err != nil {
		return "", err
	}
	theirs, err := output(ctx, python, s.script("huggingface.py"), "version")
	if err != nil {
		return "", err
	}
	var b strings.Builder
	first := all[0].runs[0]
	fmt.Fprintf(&b, "## Datasets: a shuffled epoch of Parquet files beside Hugging Face datasets\n\n")
	fmt.Fprintf(&b, "The wide files of the Parquet bench, %d rows, %.2f GB decoded, in batches of %d rows; %d interleaved rounds, warm page\n"+
		"cache; medians (least–most). Every byte is touched, and all rows' sums are the same. CPU is that of all processes.\n%s %s, a buffer of %s rows.\n\n",
		first.Rows, first.gb(), orderBatch, s.repeats, versions, strings.TrimSpace(string(theirs)), datasetsBuffer)
	b.WriteString("| reader | GB/s | CPU-s/GB |\n|---|---|---|\n")
	for _, r := range all {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", r.title, spread(r.runs, reading.throughput), spread(r.runs, reading.clientPerGB))
	}
	fmt.Fprintf(&b, "\n| %s against | throughput | CPU per GB | wanted |\n|---|---|---|---|\n", all[0].title)
	for _, other := range all[1:] {
		fmt.Fprintf(&b, "| %s | %.2f | %.2f | throughput ≥ 2 |\n", other.title, ratio(all[0].runs, other.runs, reading.throughput),
			ratio(all[0].runs, other.runs, reading.clientPerGB))
	}
	return b.String(), nil
}

// raceShufflers lets a gateway with its client, and the other in each of its formats, take turns.
func (s settings) raceShufflers(ctx context.Context, python, folder string) ([]*contestant, error) {
	all, err := launch(ctx, s.headraceServing(folder))
	if err != nil {
		return nil, err
	}
	defer stop(all[:1])
	all[0].title, all[0].name = "headrace, to pyarrow", training(all[0].name, "window")
	for _, format := range []string{"arrow", "numpy"} { // they read the files themselves
		all = append(all, &contestant{command: command{title: "Hugging Face datasets, format " + format, name: format}})
	}
	err = interleave(ctx, s.repeats, all, func(c *contestant, warm bool) (err error) {
		var r reading
		if c.server != nil {
			r, err = s.measure(ctx, c, "train")
			r.CPU += r.serverCPU
		} else {
			var out []byte
			out, err = output(ctx, python, s.script("huggingface.py"), "read", folder, datasetsBuffer, fmt.Sprint(orderBatch), c.name)
			err = errors.Join(err, json.Unmarshal(out, &r))
		}
		if err == nil && warm {
			c.runs = append(c.runs, r)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		for i := range c.runs {
			c.runs[i].Bytes = all[0].runs[0].Bytes // not what wider numbers add
		}
	}
	err = alike(all, "the number of rows", func(r reading) uint64 { return uint64(r.Rows) })
	return all, errors.Join(err, alike(all, "the sum of the rows", func(r reading) uint64 { return r.Sum }))
}

// environment is the interpreter of a Python environment with what a file names, made unless it is there.
func (s settings) environment(ctx context.Context, name, file, how string) (string, error) {
	dir := filepath.Join(s.data, "env-"+name)
	interpreter, ready := filepath.Join(dir, "bin", "python"), filepath.Join(dir, "ready")
	want, err := os.ReadFile(s.script(file))
	if err != nil {
		return "", err
	}
	if have, err := os.ReadFile(ready); err == nil && string(have) == string(want) {
		return interpreter, nil
	}
	_, err1 := output(ctx, s.python, "-m", "venv", "--clear", dir)
	_, err2 := output(ctx, interpreter, "-m", "pip", "install", "-q", "--disable-pip-version-check", how, "-r", s.script(file))
	if err := errors.Join(err1, err2); err != nil {
		return "", err
	}
	return interpreter, os.WriteFile(ready, want, 0o644)
}

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// wireBytes is the full size of the wire bench's data.
const wireBytes = 1e9

// streaming sends uncompressed fixed-width Arrow data, just under 4 MiB a message, to one pyarrow client at a time, which
// touches every byte: headrace, pyarrow's C++ server and arrow-go's stock writer over the same file.
func streaming(ctx context.Context, s settings) (string, error) {
	file, err := s.wireData(ctx)
	if err != nil {
		return "", err
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	all, err := launch(ctx, s.headraceServing(filepath.Dir(file)), s.wireInCpp(file),
		command{title: "arrow-go stock writer", line: []string{self, stockCommand, file}})
	if err != nil {
		return "", err
	}
	defer stop(all)
	ways := append(slices.Clone(all), all[0].by("shared", "its own client, shared memory"), all[0].by("wired", "its own client, over the wire"))
	if err := s.race(ctx, ways); err != nil {
		return "", err
	}
	if err := alike(ways, "the sum of all bytes", func(r reading) uint64 { return r.Sum }); err != nil {
		return "", err
	}
	versions, err := s.versions(ctx)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	first := all[0].runs[0]
	fmt.Fprintf(&b, "## Wire: one stream of uncompressed Arrow to a pyarrow client that touches every byte\n\n")
	fmt.Fprintf(&b, "%.2f GB in %d messages, %d interleaved rounds, loopback, warm page cache; medians (least–most).\n%s\n\n",
		first.gb(), first.Batches, s.repeats, versions)
	compare(&b, all, "throughput ≥ 0.95, CPU ≤ 1.1", "CPU ≤ 0.55")
	b.WriteString("\nThe same file, read by headrace's own client on the same host:\n\n")
	compare(&b, append(ways[len(all):], all[0]), "–", "throughput ≥ 2")
	return b.String(), nil
}

// wireInCpp serves the file with pyarrow's own server.
func (s settings) wireInCpp(file string) command {
	return command{title: "pyarrow C++ server", line: []string{s.python, s.script("wire.py"), "serve", file}}
}

// wireData makes the data unless it is there from an earlier run. It lies in a folder of its own: one data set.
func (s settings) wireData(ctx context.Context) (string, error) {
	size := fmt.Sprint(int64(s.scale * wireBytes))
	dir, err := s.generate(ctx, "wire-"+size, func(part string) []string {
		return []string{s.script("wire.py"), "make", part, size}
	})
	return filepath.Join(dir, "wire.arrow"), err
}

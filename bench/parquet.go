package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// parquetBytes is the full size of the wide rows, decoded.
const parquetBytes = 5e8

// parquetSets are the shapes of training tables, and their full sizes, decoded. Batches of so many rows make messages of
// about 4 MiB, as headrace's are.
var parquetSets = []struct {
	kind, about, rows string
	bytes             float64
	wanted            string
}{
	{"wide", "x fixed_size_list<float32>[480], id int64, label int32", "2032", parquetBytes, "–"},
	{"table", "9 columns of integers, floats with nulls, strings with dictionaries", "48000", 1 << 30, "throughput ≥ 1.2"},
}

// parquet streams Parquet files, decoded, to one pyarrow client at a time, which touches every byte: headrace and
// pyarrow's C++ server, which scans the same files. Then it decodes columns of many kinds, beside pyarrow and without a wire.
func parquet(ctx context.Context, s settings) (string, error) {
	var b strings.Builder
	versions, err := s.versions(ctx)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&b, "## Parquet: one stream of decoded files to a pyarrow client that touches every byte\n\n")
	fmt.Fprintf(&b, "Snappy and pyarrow's other defaults; bytes are those of the decoded table; %d interleaved rounds, loopback, warm page\n"+
		"cache; medians (least–most). Servers run on from round to round. headrace has memory for half of the table and keeps what\n"+
		"came last (policy lru), so that nothing it reads has been kept; just started, with all of its memory, it takes fresh\n"+
		"memory for all that it keeps, which the system has to clear.\n%s\n", s.repeats, versions)
	for _, set := range parquetSets {
		size := int64(s.scale * set.bytes)
		folder, err := s.generate(ctx, fmt.Sprintf("%s-%d", set.kind, size), func(part string) []string {
			return []string{s.script("parquet.py"), set.kind, part, fmt.Sprint(size)}
		})
		if err != nil {
			return "", err
		}
		all, err := s.raceParquet(ctx, folder, set.rows, size)
		if err != nil {
			return "", fmt.Errorf("%s: %w", set.kind, err)
		}
		first := all[0].runs[0]
		fmt.Fprintf(&b, "\n**%s**: %s; %d rows, %.2f GB.\n\n", set.kind, set.about, first.Rows, first.gb())
		compare(&b, all, set.wanted, set.wanted, "–")
	}
	columns, err := s.decoding(ctx)
	if err != nil {
		return "", err
	}
	b.WriteString("\n" + columns)
	return b.String(), nil
}

// raceParquet measures one data set, after each server has been seen to send what is in the files. The C++ scanner's own
// size of batches suits it best with small rows, ours with large ones: both are shown.
func (s settings) raceParquet(ctx context.Context, folder, rows string, size int64) ([]*contestant, error) {
	scanning := func(title, rows string) command {
		return command{title: "pyarrow C++ server, " + title, line: []string{s.python, s.script("parquet.py"), "serve", folder, rows}}
	}
	fresh := s.headraceServing(folder).anew()
	fresh.title = "headrace, just started"
	all, err := launch(ctx, s.headraceServing(folder).forgetful(size),
		scanning("its scanner's default batches", "0"), scanning("batches of about 4 MiB", rows), fresh)
	if err != nil {
		return nil, err
	}
	defer stop(all)
	var files struct{ Rows, Bytes int64 }
	for _, c := range all {
		out, err := s.client(ctx, c, "check", folder)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.title, err)
		}
		if err := json.Unmarshal(out, &files); err != nil {
			return nil, err
		}
	}
	if err := s.race(ctx, all); err != nil {
		return nil, err
	}
	for _, c := range all {
		for i := range c.runs {
			c.runs[i].Bytes = files.Bytes // not what each server's paddings and bitmaps add to it
		}
	}
	return all, alike(all, "the number of rows", func(r reading) uint64 { return uint64(r.Rows) })
}

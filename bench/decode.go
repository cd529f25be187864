package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/parquetfile"
	"github.com/headrace/headrace/storage/snapshot"
)

// decodeBytes is about the full size of each kind of column, decoded.
const decodeBytes = 4e8

// columnKinds are what training data is made of; wanted is the least that our throughput may be of pyarrow's, with one thread.
var columnKinds = []struct{ kind, about, wanted string }{
	{"floats", "float32[480] as fixed-size list", "3.0"},
	{"fixed", "the same as FIXED_LEN_BYTE_ARRAY", "1.0"},
	{"blobs", "binary, 60–140 KiB", "0.95"},
	{"int64", "int64, dictionary of 1,000", "1.0"},
	{"int32", "int32, dictionary of 1,000", "1.0"},
	{"words", "strings of 27 bytes, dictionary of 2,000", "1.0"},
	{"strings", "strings of 20 bytes, PLAIN", "1.0"},
	{"texts", "large_string of about 1 KiB, PLAIN", "1.0"},
	{"nulls", "float64, one in ten null", "1.0"},
	{"deltas", "int64, DELTA_BINARY_PACKED", "0.8"},
	{"lists", "list<int32> of 0–999", "1.0"},
}

// decoding reads columns of many kinds from Parquet files into memory: our reader in this process and pyarrow's in
// another, with one thread each and with two.
func (s settings) decoding(ctx context.Context) (string, error) {
	var b strings.Builder
	b.WriteString("**Decoding** files into memory, one column each: our reader into frames, pyarrow's into tables, file by file with so\n" +
		"many threads. GB/s by the clock; in brackets CPU-s/GB. The ratios are ours to pyarrow's, by the clock and by the processor's time.\n\n" +
		"| data | threads | headrace | pyarrow | × by the clock | × by CPU | wanted |\n|---|---|---|---|---|---|---|\n")
	for _, k := range columnKinds {
		size := fmt.Sprint(int64(s.scale * decodeBytes))
		folder, err := s.generate(ctx, "decode-"+k.kind+"-"+size, func(part string) []string {
			return []string{s.script("decode.py"), "write", k.kind, part, size}
		})
		if err != nil {
			return "", err
		}
		if err := s.decodeKind(ctx, &b, folder, k.about, k.wanted); err != nil {
			return "", fmt.Errorf("%s: %w", k.kind, err)
		}
	}
	return b.String(), nil
}

// decodeKind writes the rows of one kind.
func (s settings) decodeKind(ctx context.Context, b *strings.Builder, folder, about, wanted string) error {
	python, stop, err := s.conversation(ctx, "decode.py", "read", folder)
	if err != nil {
		return err
	}
	defer stop()
	ours, done, err := decoder(ctx, folder)
	if err != nil {
		return err
	}
	defer done()
	for threads := 1; threads <= 2; threads++ {
		takers := []taker{func() (reading, error) { return ours(threads) }, func() (reading, error) { return python(fmt.Sprint(threads)) }}
		runs := make([][]reading, len(takers))
		for round := range s.repeats + 1 { // the first one warms up and does not count
			for _, i := range rand.Perm(len(takers)) {
				r, err := takers[i]()
				if err != nil {
					return err
				}
				if round > 0 {
					runs[i] = append(runs[i], r)
				}
			}
		}
		for i := range runs[0] {
			if runs[0][i].Rows != runs[1][i].Rows {
				return fmt.Errorf("%d rows where pyarrow reads %d", runs[0][i].Rows, runs[1][i].Rows)
			}
			runs[0][i].Bytes = runs[1][i].Bytes // not what paddings add to it
		}
		fmt.Fprintf(b, "| %s | %d | %s [%s] | %s [%s] | %.2f | %.2f | %s |\n", about, threads,
			spread(runs[0], reading.throughput), spread(runs[0], reading.clientPerGB),
			spread(runs[1], reading.throughput), spread(runs[1], reading.clientPerGB),
			ratio(runs[0], runs[1], reading.throughput), ratio(runs[1], runs[0], reading.clientPerGB), wanted)
		wanted = "–"
	}
	return nil
}

// decoder reads all files of a folder as a gateway would, with so many threads.
func decoder(ctx context.Context, folder string) (read func(threads int) (reading, error), done func(), err error) {
	files, err := bucket.Open(folder)
	if err != nil {
		return nil, nil, err
	}
	ledger := budget.New(budget.Options{Limit: 4 << 30})
	grant, err := ledger.Admit(ctx, 0)
	if err != nil {
		return nil, nil, err
	}
	pool := frame.NewPool(frame.Options{Idle: 1 << 30})
	names, err := os.ReadDir(folder)
	done = func() {
		grant.Close()
		_ = pool.Close()
		_ = files.Close()
	}
	return func(threads int) (r reading, err error) {
		rows := make([]int64, len(names))
		begin, used := time.Now(), processorSeconds()
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(threads)
		for i, name := range names {
			group.Go(func() (err error) {
				rows[i], err = decodeFile(ctx, files, name.Name(), pool, grant)
				return err
			})
		}
		err = group.Wait()
		r.Seconds, r.CPU = time.Since(begin).Seconds(), processorSeconds()-used
		for _, n := range rows {
			r.Rows += n
		}
		return r, err
	}, done, err
}

// decodeFile decodes one file block by block, and returns its rows.
func decodeFile(ctx context.Context, files *bucket.Bucket, name string, pool *frame.Pool, grant *budget.Grant) (rows int64, err error) {
	obj, err := files.Open(ctx, name, "")
	if err != nil {
		return 0, err
	}
	defer func() { _ = obj.Close() }()
	shard, err := parquetfile.Describe(ctx, obj)
	if err != nil {
		return 0, err
	}
	all, err := schema.Project(shard.Schema, nil)
	if err != nil {
		return 0, err
	}
	for i := range shard.Segments {
		n, err := decodeSegment(ctx, obj, shard, i, all, pool, grant)
		if err != nil {
			return 0, err
		}
		rows += n
	}
	return rows, nil
}

func decodeSegment(ctx context.Context, obj *bucket.Object, shard *snapshot.Shard, segment int, all *schema.Projection, pool *frame.Pool, grant *budget.Grant) (rows int64, err error) {
	scanner, err := parquetfile.Options{}.Open(ctx, obj, shard, segment, all, pool, grant)
	if err != nil {
		return 0, err
	}
	defer scanner.Close()
	for block := range shard.Segments[segment].Blocks() {
		from, to := shard.Segments[segment].Block(block)
		leases, err := scanner.Next(ctx, nil, to-from)
		if err != nil {
			return 0, err
		}
		for _, l := range leases {
			rows += l.Batch().NumRows()
			l.Release()
		}
	}
	return rows, nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

// pair is what one reader did with one thread and with two, by rounds.
type pair [2][]reading

// gain is how many times faster two threads are.
func (p pair) gain() float64 { return ratio(p[1], p[0], reading.throughput) }

// decoding reads columns of many kinds from Parquet files into memory: our reader in this process and pyarrow's in
// another, with one thread each and with two.
func (s settings) decoding(ctx context.Context) (string, error) {
	var b, threads strings.Builder
	b.WriteString("**Decoding** files into memory, one column each: our reader into frames, pyarrow's into tables, file by file with so\n" +
		"many threads. GB/s by the clock; in brackets CPU-s/GB. The ratios are ours to pyarrow's, by the clock and by the processor's time.\n\n" +
		"| data | threads | headrace | pyarrow | × by the clock | × by CPU | wanted |\n|---|---|---|---|---|---|---|\n")
	threads.WriteString("**Two threads**, how many times as fast as one, in the same rounds. *Copying* is what this machine's memory allows: it reads\n" +
		"the same files into 1 MiB and copies as many bytes as are decoded from there into 4 MiB, and nothing else.\n\n" +
		"| data | headrace | pyarrow | copying | copying, GB/s with one | with two | wanted |\n|---|---|---|---|---|---|---|\n")
	for _, k := range columnKinds {
		size := fmt.Sprint(int64(s.scale * decodeBytes))
		folder, err := s.generate(ctx, "columns-"+k.kind+"-"+size, func(part string) []string {
			return []string{s.script("decode.py"), "write", k.kind, part, size}
		})
		if err != nil {
			return "", err
		}
		ours, theirs, copies, err := s.decodeKind(ctx, folder)
		if err != nil {
			return "", fmt.Errorf("%s: %w", k.kind, err)
		}
		for i, wanted := range []string{k.wanted, "–"} {
			fmt.Fprintf(&b, "| %s | %d | %s [%s] | %s [%s] | %.2f | %.2f | %s |\n", k.about, i+1,
				spread(ours[i], reading.throughput), spread(ours[i], reading.clientPerGB),
				spread(theirs[i], reading.throughput), spread(theirs[i], reading.clientPerGB),
				ratio(ours[i], theirs[i], reading.throughput), ratio(theirs[i], ours[i], reading.clientPerGB), wanted)
		}
		fmt.Fprintf(&threads, "| %s | %.2f | %.2f | %.2f | %s | %s | 1.6, or as copying |\n", k.about, ours.gain(), theirs.gain(), copies.gain(),
			spread(copies[0], reading.throughput), spread(copies[1], reading.throughput))
	}
	return b.String() + "\n" + threads.String(), nil
}

// decodeKind measures the files of one kind: our reader, pyarrow's, and copying.
func (s settings) decodeKind(ctx context.Context, folder string) (ours, theirs, copies pair, err error) {
	python, stop, err := s.conversation(ctx, "decode.py", "read", folder)
	if err != nil {
		return ours, theirs, copies, err
	}
	defer stop()
	decode, done, err := decoder(ctx, folder)
	if err != nil {
		return ours, theirs, copies, err
	}
	defer done()
	first, err := python("1")
	if err != nil {
		return ours, theirs, copies, err
	}
	readers := []struct {
		into *pair
		read func(threads int) (reading, error)
	}{
		{&ours, decode},
		{&theirs, func(threads int) (reading, error) { return python(fmt.Sprint(threads)) }},
		{&copies, func(threads int) (reading, error) { return copyAlong(ctx, folder, first.Bytes, threads) }},
	}
	for round := range s.repeats + 1 { // the first one warms up and does not count
		for _, i := range rand.Perm(2 * len(readers)) {
			r := readers[i/2]
			got, err := r.read(i%2 + 1)
			if err != nil {
				return ours, theirs, copies, err
			}
			if got.Rows != first.Rows && r.into != &copies {
				return ours, theirs, copies, fmt.Errorf("%d rows where pyarrow reads %d", got.Rows, first.Rows)
			}
			if got.Bytes = first.Bytes; round > 0 { // not what paddings add to it
				r.into[i%2] = append(r.into[i%2], got)
			}
		}
	}
	return ours, theirs, copies, nil
}

// copyAlong reads the files of a folder, with so many threads, into a buffer for each, and copies from there size bytes
// in all: the least that anybody does who decodes them.
func copyAlong(ctx context.Context, folder string, size int64, threads int) (r reading, err error) {
	names, err := os.ReadDir(folder)
	if err != nil {
		return r, err
	}
	began, used := time.Now(), processorSeconds()
	group, _ := errgroup.WithContext(ctx)
	group.SetLimit(threads)
	for _, name := range names {
		group.Go(func() error { return copyFile(filepath.Join(folder, name.Name()), size/int64(len(names))) })
	}
	err = group.Wait()
	r.Seconds, r.CPU = time.Since(began).Seconds(), processorSeconds()-used
	return r, err
}

// copied is memory that copyFile uses again and again.
var copied = sync.Pool{New: func() any { return &[2][]byte{make([]byte, 1<<20), make([]byte, 4<<20)} }}

func copyFile(name string, size int64) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	memory := copied.Get().(*[2][]byte)
	defer copied.Put(memory)
	from, to := memory[0], memory[1]
	var done, at int64
	for read := int64(0); ; {
		n, err := f.Read(from)
		read += int64(n)
		for due := int64(float64(size) * float64(read) / float64(info.Size())); done < due; {
			k := copy(to[at:min(int64(len(to)), at+due-done)], from)
			done, at = done+int64(k), (at+int64(k))%int64(len(to))
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
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

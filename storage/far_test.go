package storage

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/snapshot"
)

// upload puts the files of a folder into a bucket of the store's own.
func (r *rig) upload(url, dir string) {
	r.t.Helper()
	b, err := r.clients.Open(url)
	must(r.t, err)
	entries, err := os.ReadDir(dir)
	must(r.t, err)
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		must(r.t, err)
		must(r.t, b.Put(context.Background(), e.Name(), data))
	}
	must(r.t, b.Close())
}

// wide writes a file of each format: 24 columns, 4 segments of 6 MiB, pages of
// 16 KiB, one column with a dictionary.
const wide = `
import sys, numpy as np, pyarrow as pa, pyarrow.parquet as pq
dir, n = sys.argv[1], 4 * 32_768
random = np.random.default_rng(1)
columns = {f"c{i}": random.random(n) for i in range(23)} | {"word": pa.array([f"w{i % 9}" for i in range(n)]).dictionary_encode()}
table = pa.table(columns)
pq.write_table(table, f"{dir}/parquet", row_group_size=n // 4, data_page_size=16 << 10, compression="zstd", use_dictionary=["word"])
for name, codec in (("arrow", None), ("zstd", "zstd")):
    with pa.ipc.new_file(f"{dir}/{name}", table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as w:
        w.write_table(table, max_chunksize=n // 4)
with pa.ipc.new_stream(f"{dir}/stream", table.schema) as w:
    w.write_table(table, max_chunksize=n // 4)
`

// What lies in a store is read in a few large requests, however small the pages
// are, and is the same as what lies in a folder.
func TestFarShardsTakeFewRequests(t *testing.T) {
	if noCorpus != "" {
		t.Skip(noCorpus)
	}
	dir := t.TempDir()
	python := os.Getenv("HEADRACE_PYTHON")
	if python == "" {
		python = filepath.Join("..", ".venv", "bin", "python")
	}
	if out, err := exec.Command(python, "-c", wide, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, most := range map[string]int64{"parquet": 14, "arrow": 22, "zstd": 22, "stream": 22} {
		for _, columns := range [][]string{nil, {"c3", "word", "c20"}, {"c3", "c5"}} {
			t.Run(fmt.Sprint(name, len(columns)), func(t *testing.T) {
				var gets, bytes atomic.Int64
				events := Events{Request: func(_ context.Context, _, verb string) func(int64, error) {
					return func(n int64, err error) {
						if verb == "get" {
							gets.Add(1)
							bytes.Add(n)
						}
						if err != nil {
							t.Error(err)
						}
					}
				}}
				near := newRig(t, Options{Mounts: []Mount{{Name: "d", URL: dir, Files: []string{name}}}})
				far := newRig(t, Options{Mounts: []Mount{{Name: "d", URL: "mem://d", Files: []string{name}}}, Events: events})
				far.upload("mem://d", dir)
				want, got := near.newest("d"), far.newest("d")
				if want.ID != got.ID {
					t.Fatal("another snapshot")
				}
				gets.Store(0)
				bytes.Store(0)
				compareRows(t, near, far, want, got, columns)
				info, err := os.Stat(filepath.Join(dir, name))
				must(t, err)
				if columns != nil && name == "parquet" {
					most = int64(4 * len(columns)) // they lie apart
				}
				if n := gets.Load(); n > most {
					t.Errorf("%d requests, at most %d are needed", n, most)
				}
				if n := bytes.Load(); n > info.Size()+info.Size()/4 || columns != nil && name != "zstd" && n > info.Size()/2 {
					t.Errorf("%d bytes were fetched of an object of %d", n, info.Size())
				}
				t.Logf("%d requests, %d bytes of %d", gets.Load(), bytes.Load(), info.Size())
				// A block's part of every column is read at once where each read is a round trip; what comes behind it is not needed.
				if one, two := near.scratch(want, columns), far.scratch(got, columns); two > 2*one {
					t.Errorf("decoders need %d bytes behind a store, %d at a folder", two, one)
				}
			})
		}
	}
}

// compareRows reads both snapshots block by block.
func compareRows(t *testing.T, near, far *rig, want, got *snapshot.Snapshot, columns []string) {
	t.Helper()
	var paths [][]string
	for _, c := range columns {
		paths = append(paths, []string{c})
	}
	readers := make([]*Reader, 2)
	for i, r := range []*rig{near, far} {
		p, err := schema.Project([]*snapshot.Snapshot{want, got}[i].Schema, paths)
		must(t, err)
		g, err := r.ledger.Admit(t.Context(), 256<<20)
		must(t, err)
		defer g.Close()
		readers[i] = r.Open([]*snapshot.Snapshot{want, got}[i], p, g)
		defer readers[i].Close()
	}
	blocks := want.Blocks(nil)
	for n := range blocks.Len() {
		b := blocks.At(n)
		one, err := readers[0].Block(t.Context(), b)
		must(t, err)
		two, err := readers[1].Block(t.Context(), b)
		must(t, err)
		for i := range one {
			if !array.RecordEqual(one[i].Batch(), two[i].Batch()) {
				t.Errorf("block %d: other rows", n)
			}
			one[i].Release()
			two[i].Release()
		}
	}
}

// Footers of objects that were read a moment ago are not fetched again, and objects that nobody reads any more are let go
// of in the end.
func TestFarObjectsRememberTheirFooters(t *testing.T) {
	dir := folder(t, map[string]string{"a.parquet": "p0.parquet"})
	var gets atomic.Int64
	r := newRig(t, Options{Mounts: []Mount{{Name: "d", URL: "mem://d"}}, Events: Events{Request: func(_ context.Context, _, verb string) func(int64, error) {
		if verb == "get" {
			gets.Add(1)
		}
		return func(int64, error) {}
	}}})
	r.upload("mem://d", dir)
	snap := r.newest("d")
	var took []int64
	for range 3 {
		before := gets.Load()
		runtime.GC() // parsed footers are kept by those who use them
		if _, err := r.read(snap, snap.Blocks(nil)); err != nil {
			t.Fatal(err)
		}
		took = append(took, gets.Load()-before)
	}
	if took[1] != took[2] || took[1] > took[0] || took[1] == 0 {
		t.Errorf("requests: %v, want one less once the footer is known", took)
	}
	for i := range 2 * maxIdle {
		v := version{dataset: r.registry.known("d"), key: "a.parquet", pin: bucket.Pin(fmt.Sprintf("%d x", i))}
		_, release, err := r.objects.acquire(t.Context(), v)
		must(t, err)
		release()
	}
	if n := len(r.objects.open); n > maxIdle+1 {
		t.Errorf("%d objects are open", n)
	}
}

// What a block took is told apart: for bytes to come out of the store, and for all else.
func TestReadersTellWhatTheyWaitedFor(t *testing.T) {
	const latency = 20 * time.Millisecond
	dir := folder(t, map[string]string{"a.parquet": "p0.parquet"})
	for url, least := range map[string]time.Duration{dir: 0, "mem://d": latency} {
		r := newRig(t, Options{Mounts: []Mount{{Name: "d", URL: url}}, Events: Events{
			Request: func(context.Context, string, string) func(int64, error) {
				time.Sleep(latency)
				return func(int64, error) {}
			},
			Decode: func(ctx context.Context, _ string, _ int64) (context.Context, func(int64, error)) {
				time.Sleep(2 * latency)
				return ctx, func(int64, error) {}
			},
		}})
		if least > 0 {
			r.upload(url, dir)
		}
		snap := r.newest("d")
		p, err := schema.Project(snap.Schema, nil)
		must(t, err)
		g, err := r.ledger.Admit(t.Context(), 64<<20)
		must(t, err)
		reader := r.Open(snap, p, g)
		began := time.Now()
		leases, err := reader.Block(t.Context(), snap.Blocks(nil).At(0))
		must(t, err)
		whole, took := time.Since(began), reader.Took()
		if took.Store < least || took.Decode < 2*latency || took.Store+took.Decode > whole {
			t.Errorf("%s: %+v of %v", url, took, whole)
		}
		for _, l := range leases {
			l.Release()
		}
		reader.Close()
		g.Close()
	}
}

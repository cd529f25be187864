package parquetfile

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/budget"
)

// TestFewRequests reads files from a store: small row groups come with one
// request, large ones with about one for each column and block.
func TestFewRequests(t *testing.T) {
	clients := bucket.NewClients(bucket.Options{})
	defer clients.Close()
	opened, err := clients.Open("mem://data/")
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	var requests atomic.Int64
	b := opened.Observed(bucket.Events{Request: func(_ context.Context, verb string) func(int64, error) {
		if verb == "get" {
			requests.Add(1)
		}
		return func(int64, error) {}
	}})
	for name, most := range map[string]int64{"codec_zstd_v1": 1, "flat_v2": 1, "across_snappy": 1, "huge": 26 * 5} {
		file := filepath.Join(folder(t), name+".parquet")
		if name == "huge" {
			file = filepath.Join(folder(t), "huge.one")
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Put(t.Context(), name, data); err != nil {
			t.Fatal(err)
		}
		obj, err := b.Open(t.Context(), name, "")
		if err != nil {
			t.Fatal(err)
		}
		sh := describe(t, obj)
		w := newWorld(t, Need(sh, 0, schema.All(sh.Schema))+12<<20)
		requests.Store(0)
		scanBlocks(t, w, obj, sh, schema.All(sh.Schema))
		if n := requests.Load(); n > most {
			t.Errorf("%s: %d requests for %d blocks, %d would do", name, n, sh.Segments[0].Blocks(), most)
		}
		if name != "huge" {
			s, want := expected(t, folder(t), name)
			same(t, s, newWorld(t, 1<<30).readFile(t, obj, sh, schema.All(sh.Schema), 37), want, 0)
		}
		obj.Close()
	}
}

// longRows writes a row group of rows of 480 floats, 30 MB with a dictionary that is given up, and pages of 1 MiB.
const longRows = `
import sys, numpy as np, pyarrow as pa, pyarrow.parquet as pq
x = pa.array(np.random.default_rng(1).standard_normal(16_000 * 480, dtype=np.float32))
pq.write_table(pa.table({"x": pa.FixedSizeListArray.from_arrays(x, 480), "id": np.arange(16_000)}), sys.argv[1])
`

// TestRowsAreReachedWithoutWhatLiesBefore enters a row group of which it is known where rows begin: of what lies before
// them no more than the dictionary is fetched, whether there is memory to read ahead or not, and a scanner that waits for
// the next block keeps little.
func TestRowsAreReachedWithoutWhatLiesBefore(t *testing.T) {
	folder(t) // there is a Python
	file := filepath.Join(t.TempDir(), "long")
	if _, err := python("-c", longRows, file); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	clients := bucket.NewClients(bucket.Options{})
	defer clients.Close()
	opened, err := clients.Open("mem://long/")
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	var came atomic.Int64
	b := opened.Observed(bucket.Events{Request: func(context.Context, string) func(int64, error) {
		return func(n int64, _ error) { came.Add(n) }
	}})
	if err := b.Put(t.Context(), "long", data); err != nil {
		t.Fatal(err)
	}
	obj, err := b.Open(t.Context(), "long", "")
	if err != nil {
		t.Fatal(err)
	}
	defer obj.Close()
	const block, from = 2000, 13_000
	w, sh := newWorld(t, 64<<20), describe(t, obj)
	want := w.readFile(t, obj, sh, schema.All(sh.Schema), block)
	for name, ledger := range map[string]*budget.Ledger{"scarce": w.ledger, "plenty": budget.New(budget.Options{Limit: 1 << 30})} {
		g := w.grant
		if name == "plenty" {
			if g, err = ledger.Admit(t.Context(), 64<<20); err != nil {
				t.Fatal(err)
			}
			defer g.Close()
		}
		s, err := (Options{}).Open(t.Context(), obj, sh, 0, schema.All(sh.Schema), w.pool, g)
		if err != nil {
			t.Fatal(err)
		}
		came.Store(0)
		if err := s.Skip(t.Context(), from); err != nil {
			t.Fatal(err)
		}
		in := &world{pool: w.pool, ledger: ledger, grant: g}
		got, err := in.drain(t, s, schema.All(sh.Schema), block, block)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if part := array.NewSlice(want[i], from, from+block); !array.Equal(got[i], part) {
				t.Errorf("%s: column %d has other rows", name, i)
			}
		}
		// the dictionary, the block, and a page or a piece around it
		if n, most := came.Load(), map[string]int64{"scarce": 8 << 20, "plenty": 10 << 20}[name]; n > most {
			t.Errorf("%s: %d bytes were fetched, %d would do", name, n, most)
		}
		if n := ledger.Stats().Used[budget.Input]; name == "scarce" && n > 2<<20 {
			t.Errorf("%d bytes of input wait for the next block", n)
		}
		t.Logf("%s: %d bytes, then %+v", name, came.Load(), ledger.Stats().Used)
		s.Close()
	}
}

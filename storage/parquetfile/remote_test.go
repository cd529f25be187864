package parquetfile

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/bucket"
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

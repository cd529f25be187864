package feed

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/storage"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/buckettest"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

// farRows writes four files of one row group of 10 blocks, as pyarrow does by itself: rows of 480 floats, a dictionary that is
// given up, then pages of 1 MiB of which only their levels tell how many rows they have.
const farRows = `
import sys, numpy as np, pyarrow as pa, pyarrow.parquet as pq
rows, width, random = 19_400, 480, np.random.default_rng(1)
for n in range(4):
    x = pa.FixedSizeListArray.from_arrays(pa.array(random.standard_normal(rows * width, dtype=np.float32)), width)
    pq.write_table(pa.table({"id": np.arange(n * rows, (n + 1) * rows), "x": x}), f"{sys.argv[1]}/{n}.parquet")
`

// newFarRig is a rig over these files in an S3 server some way off. came counts the bytes that it sends.
func newFarRig(t *testing.T, memory int64) (r *rig, came *atomic.Int64, size int64) {
	t.Helper()
	need(t)
	s := buckettest.S3(t)
	s.Use(t)
	size = upload(t, s.URL("far"))
	behind, faults := buckettest.Before(t, s)
	faults.Answer(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		time.Sleep(5 * time.Millisecond)
		pass.ServeHTTP(w, r)
	})
	came = new(atomic.Int64)
	events := storage.Events{Request: func(context.Context, string, string) func(int64, error) {
		return func(n int64, _ error) { came.Add(n) }
	}}
	r = &rig{
		pool: frame.NewPool(frame.Options{Poison: true}), ledger: budget.New(budget.Options{Limit: memory, Large: memory / 4}),
		decoded: map[string]int64{},
	}
	events.Decode = r.count
	var err error
	r.store, err = storage.New(t.Context(), storage.Options{
		Mounts: []storage.Mount{{Name: "far", URL: behind.URL("far")}}, Pool: r.pool, Refresh: time.Hour, Events: events,
	})
	must(t, err)
	r.remember(t, 0)
	return r, came, size
}

// upload puts the files into a bucket and returns how many bytes they have.
func upload(t *testing.T, url string) (size int64) {
	t.Helper()
	python := os.Getenv("HEADRACE_PYTHON")
	if python == "" {
		python = filepath.Join("..", "..", ".venv", "bin", "python")
	}
	dir := t.TempDir()
	if out, err := exec.Command(python, "-c", farRows, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	clients := bucket.NewClients(bucket.Options{})
	defer clients.Close()
	to, err := clients.Open(url)
	must(t, err)
	defer to.Close()
	files, err := os.ReadDir(dir)
	must(t, err)
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		must(t, err)
		must(t, to.Put(t.Context(), f.Name(), data))
		size += int64(len(data))
	}
	return size
}

// far is a request for an epoch of them, in which two lanes go through each file.
func far(epoch int64) request {
	return request{
		dataset: "far", columns: []string{"id", "x"}, plan: sampler.Plan{Shuffle: sampler.ShuffleWindow, WindowBlocks: 8, Seed: 1},
		cut: sampler.Cut{Batch: 512, Start: sampler.Place{Epoch: epoch}, End: epoch + 1},
	}
}

// Data that do not fit memory come from a store about once an epoch, however little memory there is for scanners beside two
// windows. In the first epoch the lanes that begin in the midst of a row group have to read what lies before, to count its rows.
func TestFarRowGroupsAreFetchedOnce(t *testing.T) {
	for _, memory := range []int64{96 << 20, 112 << 20, 160 << 20} {
		r, came, size := newFarRig(t, memory)
		for epoch := range int64(2) {
			before, rows := came.Load(), r.rows()
			s := r.open(t, r.walk(t, far(epoch)))
			if n := take(t, s, 1<<30); int64(n) != s.walk.Schedule.Count() {
				t.Errorf("%d steps", n)
			}
			s.Close()
			part := float64(came.Load()-before) / float64(size)
			if most := []float64{2, 1.5}[epoch]; part > most {
				t.Errorf("%d MiB of memory, epoch %d: %.2f times the files were fetched, %.1f would do", memory>>20, epoch, part, most)
			}
			t.Logf("%d MiB of memory, epoch %d: %.2f times the files were fetched, %d rows decoded", memory>>20, epoch, part, r.rows()-rows)
		}
		r.close(t)
	}
}

// A stream that ends while its blocks wait for memory leaves nothing behind.
func TestFarBlocksThatWaitForMemoryEndWithTheirStream(t *testing.T) {
	r, _, _ := newFarRig(t, 96<<20)
	for steps := range 3 {
		s := r.open(t, r.walk(t, far(0)))
		take(t, s, 20*steps)
		if steps == 0 {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			_, err := s.Next(ctx)
			cancel()
			if err == nil {
				t.Error("a window was there at once")
			}
		}
		s.Close()
	}
	r.close(t)
}

package storage

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/buckettest"
)

// replace writes other data over one object of a store and takes another away.
func replace(t *testing.T, a *archived, url string) {
	t.Helper()
	b, err := a.clients.Open(url)
	must(t, err)
	content, err := os.ReadFile(filepath.Join(corpus, "p0.parquet"))
	must(t, errors.Join(err, b.Put(t.Context(), "2.parquet", content), b.Remove(t.Context(), "3.parquet"), b.Close()))
}

// Where the bucket keeps versions, what was planned stays readable, whatever
// becomes of the objects; replicas that share a bucket share what was found in
// it, and look at no object themselves.
func TestVersionsStayReadable(t *testing.T) {
	store := buckettest.VersionedS3(t)
	store.Upload(t, "data", folder(t, fourShards("parquet")))
	shared := Archive{URL: store.URL("snapshots")}
	a := restart(t, store.URL("data"), shared)
	s := a.planned("")
	replace(t, a, store.URL("data"))
	b := restart(t, store.URL("data"), shared)
	old := b.planned(s.ID)
	x, err := b.read(old, old.Blocks(nil))
	must(t, errors.Join(err, counts(x, 0, 400)))
	if n := b.looks.Load(); n > 1 {
		t.Errorf("%d looks, one object has changed", n)
	}
	if now := b.planned(""); now.ID == s.ID || len(now.Shards) != 3 {
		t.Errorf("%d shards of the newest snapshot", len(now.Shards))
	}
	a.quiet()
	b.quiet()
}

// Where it does not, whoever reads what has changed is told its name.
func TestChangedObjectsOfStoresAreNamed(t *testing.T) {
	store := buckettest.S3(t)
	store.Upload(t, "data", folder(t, fourShards("parquet")))
	shared := Archive{URL: store.URL("snapshots")}
	a := restart(t, store.URL("data"), shared)
	s := a.planned("")
	b := restart(t, store.URL("data"), shared)
	if again := b.planned(""); again.ID != s.ID || b.looks.Load() != 0 {
		t.Errorf("%d looks by a replica that shares snapshots", b.looks.Load())
	}
	replace(t, a, store.URL("data"))
	c := restart(t, store.URL("data"), shared)
	old := c.planned(s.ID)
	if x, err := c.read(old, old.Blocks([]int{0, 1})); err != nil || counts(x, 0, 200) != nil {
		t.Errorf("what did not change: %v", err)
	}
	for i, want := range map[int]error{2: bucket.ErrChanged, 3: bucket.ErrNotFound} {
		if _, err := c.read(old, old.Blocks([]int{i})); !errors.Is(err, want) || !strings.Contains(err.Error(), old.Shards[i].Key) {
			t.Errorf("%v, want %v naming %s", err, want, old.Shards[i].Key)
		}
	}
	a.quiet()
	b.quiet()
	c.quiet()
}

// Who finds out that objects were replaced has them listed again, however young the listing is, but not at every turn.
func TestB56TheNextPlanHasWhatReplacedTheObject(t *testing.T) {
	dir := folder(t, fourShards("parquet"))
	var lists atomic.Int64
	r := newRig(t, Options{Mounts: []Mount{{Name: "d", URL: "mem://d"}}, Refresh: time.Hour, Events: Events{
		Request: func(_ context.Context, _, verb string) func(int64, error) {
			if verb == "list" {
				lists.Add(1)
			}
			return func(int64, error) {}
		},
	}})
	r.upload("mem://d", dir)
	old := r.newest("d")
	b, err := r.clients.Open("mem://d")
	must(t, err)
	content, err := os.ReadFile(filepath.Join(dir, "0.parquet"))
	must(t, errors.Join(err, b.Put(t.Context(), "1.parquet", content), b.Close()))
	if now := r.newest("d"); now != old {
		t.Error("listed again for no reason")
	}
	for range 3 {
		if _, err := r.read(old, old.Blocks(nil)); !errors.Is(err, bucket.ErrChanged) {
			t.Fatal(err)
		}
		if old == r.newest("d") { // the listing was a moment old
			m := r.registry.known("d").mount
			aged := *m.last
			aged.began = aged.began.Add(-leastAge)
			m.last = &aged
		}
		r.newest("d")
	}
	if now := r.newest("d"); now.ID == old.ID || lists.Load() != 2 {
		t.Errorf("the old snapshot: %v, %d listings", now.ID == old.ID, lists.Load())
	}
}

// A cold snapshot takes as long as its requests do many at a time: here none is
// answered before many have come.
func TestColdSnapshotAsksForManyAtOnce(t *testing.T) {
	const shards, least = 100, 48
	store := buckettest.S3(t)
	files := map[string]string{}
	for i := range shards {
		files[strings.Repeat("x", i+1)+".parquet"] = "required.parquet"
	}
	store.Upload(t, "data", folder(t, files))
	behind, faults := buckettest.Before(t, store)
	r := restart(t, behind.URL("data"), Archive{})
	var waiting atomic.Int64
	enough := make(chan struct{})
	var once sync.Once
	faults.Answer(func(w http.ResponseWriter, req *http.Request, pass http.Handler) {
		if req.Method == http.MethodGet && req.Header.Get("Range") != "" {
			if waiting.Add(1) == least {
				once.Do(func() { close(enough) })
			}
			<-enough
		}
		pass.ServeHTTP(w, req)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := r.Snapshot(ctx, "d", "")
	once.Do(func() { close(enough) })
	if err != nil || len(s.Shards) != shards {
		t.Fatalf("%v: %d requests came at once", err, waiting.Load())
	}
	if n := waiting.Load(); n > shards+shards/10 {
		t.Errorf("%d requests for %d footers", n, shards)
	}
}

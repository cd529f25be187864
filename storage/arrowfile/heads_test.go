package arrowfile

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"

	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/snapshot"
)

// far is a store in memory, which counts what it is asked for.
type far struct {
	*bucket.Bucket
	ledger      *budget.Ledger
	gets, bytes atomic.Int64
	begins      func() // nil, or called as a request begins
}

func newFar(t testing.TB) *far {
	t.Helper()
	b, err := bucket.Open("mem://far")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	f := &far{ledger: budget.New(budget.Options{Limit: room})}
	f.Bucket = b.Observed(bucket.Events{Request: func(_ context.Context, verb string) func(int64, error) {
		if f.begins != nil {
			f.begins()
		}
		return func(n int64, _ error) {
			if verb == "get" {
				f.gets.Add(1)
				f.bytes.Add(n)
			}
		}
	}})
	return f
}

// describe describes b as an object of the store, and counts from there on.
func (f *far) describe(t testing.TB, b []byte) (*snapshot.Shard, error) {
	t.Helper()
	if err := f.Put(t.Context(), "x", b); err != nil {
		t.Fatal(err)
	}
	obj, err := f.Open(t.Context(), "x", "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = obj.Close() }()
	f.gets.Store(0)
	f.bytes.Store(0)
	return Describe(t.Context(), obj, f.ledger)
}

// alike checks that an object in a store is described as it is in a folder: sh, or what is wrong with it.
func (f *far) alike(t testing.TB, b []byte, sh *snapshot.Shard, err error) {
	t.Helper()
	got, failed := f.describe(t, b)
	if (failed == nil) != (err == nil) || err != nil && ownError(t, failed).Error() != err.Error() {
		t.Fatalf("in a store: %v, in a folder: %v", failed, err)
	}
	if err != nil {
		return
	}
	if got.Format != sh.Format || got.Size != sh.Size || got.Meta != sh.Meta || !got.Schema.Equal(sh.Schema) ||
		!reflect.DeepEqual(got.Segments, sh.Segments) || !reflect.DeepEqual(got.Facts, sh.Facts) {
		t.Fatal("in a store it is another shard than in a folder")
	}
}

func TestFarFilesAreDescribedAlike(t *testing.T) {
	store := newFar(t)
	for _, dir := range []string{files(t), "testdata/golden"} {
		h := newHouse(t, dir)
		names, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(names) == 0 {
			t.Fatal(names, err)
		}
		for _, name := range names {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			sh, err := Describe(t.Context(), h.open(t, filepath.Base(name)), nil)
			if err != nil {
				continue // with another name in its error; damaged files have tests of their own
			}
			store.alike(t, b, sh, nil)
		}
	}
}

// batches makes a file or stream of n batches of so many rows, 8 bytes each.
func batches(t testing.TB, n int, rows func(i int) int, whole bool) []byte {
	t.Helper()
	var out bytes.Buffer
	s := arrow.NewSchema([]arrow.Field{{Name: "x", Type: arrow.PrimitiveTypes.Int64}}, nil)
	type writer interface {
		Write(arrow.RecordBatch) error
		Close() error
	}
	var w writer = ipc.NewWriter(&out, ipc.WithSchema(s))
	if whole {
		file, err := ipc.NewFileWriter(&out, ipc.WithSchema(s))
		if err != nil {
			t.Fatal(err)
		}
		w = file
	}
	for i := range n {
		b := array.NewInt64Builder(memory.DefaultAllocator)
		b.AppendValues(make([]int64, rows(i)), nil)
		x := b.NewArray()
		if err := w.Write(array.NewRecordBatch(s, []arrow.Array{x}, int64(rows(i)))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestFarFilesAreDescribedWithFewRequests(t *testing.T) {
	const n = 1000
	store := newFar(t)
	for _, c := range []struct {
		rows        int
		file        bool
		gets, bytes int64 // at most
	}{
		{10, true, 8, 400 << 10},                 // close together: what the file has
		{1_000, true, 60, 10 << 20},              // 8 kB each: still joined
		{8_000, true, n + 4, 1 << 20},            // 64 kB each: nothing but metadata
		{10, false, 8, 400 << 10},                // of a stream only the last message tells where the next one is
		{1_000, false, 16, 10 << 20},             //
		{20_000, false, n + 4, 10 * 1024 * 1000}, // 160 kB each
	} {
		t.Run(fmt.Sprint(c.rows, c.file), func(t *testing.T) {
			whole := batches(t, n, func(int) int { return c.rows }, c.file)
			sh, err := store.describe(t, whole)
			if err != nil || len(sh.Segments) != n || sh.Segments[n-1].Rows != int64(c.rows) {
				t.Fatal(err)
			}
			t.Logf("%d requests, %d of %d bytes", store.gets.Load(), store.bytes.Load(), len(whole))
			if store.gets.Load() > c.gets || store.bytes.Load() > c.bytes {
				t.Errorf("at most %d and %d are needed", c.gets, c.bytes)
			}
		})
	}
}

// What is fetched at once stays within its bounds and holds every message, whatever a footer says.
func TestFetchable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(head+foot, 64<<20).Draw(t, "size")
		var entries []byte
		at := int64(head)
		for range rapid.IntRange(1, 300).Draw(t, "messages") {
			at += rapid.SampledFrom([]int64{64, 1 << 10, 15 << 10, 20 << 10, 300 << 10, -5000, 1 << 40}).Draw(t, "step")
			entries = binary.LittleEndian.AppendUint64(entries, uint64(at))
			entries = binary.LittleEndian.AppendUint64(entries, uint64(rapid.SampledFrom([]uint32{0, 200, 8 << 10, 2 << 20, 1 << 31}).Draw(t, "meta")))
			entries = binary.LittleEndian.AppendUint64(entries, 0)
		}
		for rest := entries; len(rest) > 0; {
			portions := fetchable(rest, size, room)
			var held int64
			for _, p := range portions {
				if p.entries < 1 || p.Off < 0 || p.Len < 0 || p.Off+p.Len > size {
					t.Fatalf("%+v of %d bytes", p, size)
				}
				held += p.Len
				for range p.entries {
					e := entry(rest[:entrySize])
					if want := e.portion(size); want.Len > 0 && (want.Off < p.Off || want.Off+want.Len > p.Off+p.Len) {
						t.Fatalf("%+v is not in %+v", want, p)
					}
					rest = rest[entrySize:]
				}
			}
			if len(portions) == 0 || len(portions) > together || held > room && len(portions) > 1 {
				t.Fatalf("%d bytes in %d requests", held, len(portions))
			}
		}
	})
}

// What is read ahead of metadata in a store is memory of the ledger's while an object is described, and no longer. Where
// there is none, little is read at a time, and the shard is the same.
func TestDescribingIsCharged(t *testing.T) {
	for _, whole := range []bool{true, false} {
		b := batches(t, 3_000, func(int) int { return 1 }, whole)
		store := newFar(t)
		var mu sync.Mutex
		var most, heap int64
		store.begins = func() {
			mu.Lock()
			defer mu.Unlock()
			st := store.ledger.Stats()
			most, heap = max(most, st.Used[budget.Input]), max(heap, st.Heap)
		}
		want, err := store.describe(t, b)
		if err != nil {
			t.Fatal(err)
		}
		few := store.gets.Load()
		if most != room || heap != room {
			t.Errorf("%d bytes charged, %d of them on the heap, want %d", most, heap, room)
		}
		if st := store.ledger.Stats(); st.Reserved != 0 || st.Grants != 0 || len(st.Used) != 0 {
			t.Errorf("memory left: %+v", st)
		}
		all, err := store.ledger.Try(1)
		if err != nil {
			t.Fatal(err)
		}
		most = 0
		store.alike(t, b, want, nil)
		if most != 0 || store.gets.Load() < 4*few {
			t.Errorf("without memory %d bytes were charged, and %d requests made; with it %d", most, store.gets.Load(), few)
		}
		all.Close()
	}
}

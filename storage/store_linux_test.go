package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

func TestRowsInStoredOrder(t *testing.T) {
	stream := map[string]string{"0.arrow": "a0.arrow", "1.arrow": "a1.arrow", "2.arrow": "a2.arrow", "3.arrow": "a3.arrow", "4.arrow": "stream.arrow"}
	for name, tt := range map[string]struct {
		files map[string]string
		rows  int64
	}{
		"parquet":          {fourShards("parquet"), 400},
		"arrow":            {fourShards("arrow"), 400},
		"file and stream":  {stream, 500},
		"one row group":    {map[string]string{"big.parquet": "big.parquet"}, 2_000_000},
		"one record batch": {map[string]string{"big.arrow": "big.arrow"}, 2_000_000},
	} {
		t.Run(name, func(t *testing.T) {
			r := one(t, folder(t, tt.files))
			s := r.newest("d")
			x, err := r.read(s, s.Blocks(nil))
			must(t, err)
			must(t, counts(x, 0, tt.rows))
			if s.Rows() != tt.rows {
				t.Errorf("%d rows, want %d", s.Rows(), tt.rows)
			}
		})
	}
}

func TestNewFilesJoinOnlyNewSnapshots(t *testing.T) {
	dir := folder(t, map[string]string{"0.parquet": "p0.parquet", "1.parquet": "p1.parquet"})
	r := one(t, dir)
	old := r.newest("d")
	if r.newest("d") != old {
		t.Error("nothing changed, yet the snapshot is another")
	}
	add(t, dir, "2.parquet", "p2.parquet")
	newer := r.newest("d")
	if newer.ID == old.ID || newer.Rows() != 300 || old.Rows() != 200 {
		t.Errorf("%d rows, then %d", old.Rows(), newer.Rows())
	}
	for i, sh := range old.Shards {
		if newer.Shards[i] != sh {
			t.Errorf("%s was described again", sh.Key)
		}
	}
	for _, s := range []*snapshot.Snapshot{old, newer} {
		if got, err := r.Snapshot(t.Context(), "d", s.ID); err != nil || got != s {
			t.Errorf("by identity: %v, %v", got, err)
		}
	}
	x, err := r.read(old, old.Blocks(nil))
	must(t, err)
	must(t, counts(x, 0, 200))
	if _, err := r.Snapshot(t.Context(), "d", strings.Repeat("0", 64)); !errors.Is(err, ErrSnapshotGone) {
		t.Errorf("%v, want ErrSnapshotGone", err)
	}
}

// A file written anew with the same bytes is the same data under a new pin.
func TestSameDataKeepsItsIdentity(t *testing.T) {
	dir := folder(t, map[string]string{"0.parquet": "p0.parquet"})
	r := one(t, dir)
	old := r.newest("d")
	must(t, os.Remove(filepath.Join(dir, "0.parquet")))
	add(t, dir, "0.parquet", "p0.parquet")
	s := r.newest("d")
	if s.ID != old.ID || s.Shards[0].Pin == old.Shards[0].Pin {
		t.Errorf("identity %s, then %s; pin %s, then %s", old.ID, s.ID, old.Shards[0].Pin, s.Shards[0].Pin)
	}
	byID, err := r.Snapshot(t.Context(), "d", old.ID)
	must(t, err)
	if _, err := r.read(byID, byID.Blocks(nil)); err != nil {
		t.Errorf("by identity: %v", err)
	}
	if _, err := r.read(old, old.Blocks(nil)); !errors.Is(err, bucket.ErrChanged) {
		t.Errorf("who held the old snapshot: %v, want ErrChanged", err)
	}
}

func TestKnownSnapshotsAreBounded(t *testing.T) {
	dir := folder(t, map[string]string{"a.parquet": "p0.parquet"})
	r := one(t, dir)
	first := r.newest("d")
	for i := range maxKnown {
		add(t, dir, fmt.Sprintf("b%02d.parquet", i), "p1.parquet")
		r.newest("d")
	}
	if _, err := r.Snapshot(t.Context(), "d", first.ID); !errors.Is(err, ErrSnapshotGone) {
		t.Errorf("%v, want ErrSnapshotGone after %d more", err, maxKnown)
	}
	if n := len(r.registry.known("d").known); n != maxKnown {
		t.Errorf("%d snapshots known", n)
	}
}

func TestListingIsAsOldAsRefreshAllows(t *testing.T) {
	dir := folder(t, map[string]string{"a.parquet": "p0.parquet"})
	r := newRig(t, Options{Mounts: []Mount{{Name: "d", URL: dir}}, Refresh: time.Hour})
	old := r.newest("d")
	add(t, dir, "b.parquet", "p1.parquet")
	if r.newest("d") != old {
		t.Error("listed again before its time")
	}
	r.mounts[0].last.began = time.Now().Add(-2 * time.Hour)
	if got := r.newest("d"); got.Rows() != 200 {
		t.Errorf("%d rows after its time, want 200", got.Rows())
	}
}

func TestDatasetThatVanished(t *testing.T) {
	dir := folder(t, map[string]string{"x/a.parquet": "p0.parquet", "y/a.parquet": "p1.parquet"})
	r := tree(t, dir)
	s := r.newest("x")
	must(t, os.RemoveAll(filepath.Join(dir, "x")))
	if got := r.names(); got != "y" {
		t.Errorf("datasets %q", got)
	}
	if _, err := r.Snapshot(t.Context(), "x", ""); !errors.Is(err, ErrNoDataset) {
		t.Errorf("%v, want ErrNoDataset", err)
	}
	if got, err := r.Snapshot(t.Context(), "x", s.ID); err != nil || got != s {
		t.Errorf("by identity: %v, %v", got, err)
	}
	if _, err := r.read(s, s.Blocks(nil)); !errors.Is(err, bucket.ErrNotFound) {
		t.Errorf("%v, want ErrNotFound", err)
	}
}

// Names lead nowhere: they are looked up among those that were found.
func TestB62NamesThatLeadOutAreUnknown(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	add(t, dir, "x/a.parquet", "p0.parquet")
	add(t, dir+"-secret", "s.parquet", "p1.parquet")
	must(t, os.Symlink(dir+"-secret", filepath.Join(dir, "link")))
	r := tree(t, dir)
	for _, name := range []string{"..", "../data-secret", dir + "-secret", "data-secret", "link", "link/", "link/x", "x/", "x/../x", "./x", "x%2f", "..%2fdata-secret", "x\x00", ""} {
		_, err := r.Snapshot(t.Context(), name, "")
		if !errors.Is(err, ErrNoDataset) || err.Error() != fmt.Sprintf("%v: %q", ErrNoDataset, name) {
			t.Errorf("%q: %v, want the one refusal", name, err)
		}
	}
	if got := r.names(); got != "x" {
		t.Errorf("datasets %q", got)
	}
}

// Footers may claim any size; a stream over them asks for what can never be had.
func TestNeedOfHugeClaims(t *testing.T) {
	r := one(t, folder(t, map[string]string{"a.parquet": "p0.parquet"}))
	huge := *r.newest("d").Shards[0]
	huge.Segments = append([]snapshot.Segment{}, huge.Segments...)
	huge.Segments[0].Rows, huge.Segments[0].Bytes = 1, math.MaxInt64/2
	s, err := snapshot.New("d", []*snapshot.Shard{&huge}, snapshot.Rules{})
	must(t, err)
	if need := r.Need(s, schema.All(s.Schema), s.Blocks(nil)); need < 1<<40 {
		t.Errorf("need is %d", need)
	}
}

func TestBadDatasetHarmsNoOther(t *testing.T) {
	dir := folder(t, map[string]string{
		"good/a.parquet": "p0.parquet", "mismatch/a.parquet": "p0.parquet", "mismatch/b.parquet": "text.parquet",
		"twice/a.arrow": "twice.arrow", "corrupt/a.parquet": "=not Parquet at all", "mixed/a.parquet": "p0.parquet", "mixed/b.arrow": "a0.arrow",
	})
	var told sync.Map
	r := newRig(t, Options{Mounts: []Mount{{URL: dir, Tree: true}}, Events: Events{Refreshed: func(name string, s Status) { told.Store(name, s) }}})
	for name, want := range map[string]error{
		"good": nil, "mismatch": schema.ErrMismatch, "twice": schema.ErrDuplicate, "corrupt": snapshot.ErrCorrupt, "mixed": snapshot.ErrUnsupported,
	} {
		_, err := r.Snapshot(t.Context(), name, "")
		if !errors.Is(err, want) || err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		if st := r.Status(t.Context(), name); !errors.Is(st.Err, want) {
			t.Errorf("%s: status %+v", name, st)
		}
		if s, ok := told.Load(name); !ok || !errors.Is(s.(Status).Err, want) {
			t.Errorf("%s: told %+v", name, s)
		}
	}
	must(t, os.Remove(filepath.Join(dir, "mismatch/b.parquet")))
	r.newest("mismatch")
}

func TestB92FilesDifferOnlyInNullability(t *testing.T) {
	r := one(t, folder(t, map[string]string{"a.parquet": "required.parquet", "b.parquet": "optional.parquet", "c.parquet": "noted.parquet"}))
	s := r.newest("d")
	if f := s.Schema.Field(0); !f.Nullable || s.Rows() != 8 {
		t.Errorf("%v with %d rows", f, s.Rows())
	}
	g, err := r.ledger.Admit(t.Context(), 1<<24)
	must(t, err)
	defer g.Close()
	reader := r.Open(s, schema.All(s.Schema), g)
	defer reader.Close()
	var nulls int
	for i := range s.Blocks(nil).Len() {
		leases, err := reader.Block(t.Context(), s.Blocks(nil).At(i))
		must(t, err)
		for _, l := range leases {
			if !bytes.Equal(schema.Message(l.Batch().Schema()), schema.Message(s.Schema)) {
				t.Errorf("block %d has schema %v, want %v", i, l.Batch().Schema(), s.Schema)
			}
			nulls += l.Batch().Column(0).NullN()
			l.Release()
		}
	}
	if nulls != 1 {
		t.Errorf("%d nulls, want 1", nulls)
	}
}

// Blocks in any order, from any row on, give the rows they name.
func TestReaderInAnyOrder(t *testing.T) {
	for _, file := range []string{"big.parquet", "big.arrow"} {
		var loads atomic.Int64
		r := newRig(t, Options{Mounts: []Mount{{Name: "d", URL: folder(t, map[string]string{file: file})}}, Events: Events{
			Load: func(ctx context.Context, _ string, _ int) (context.Context, func(error)) {
				loads.Add(1)
				return ctx, func(error) {}
			},
		}})
		s := r.newest("d")
		g, err := r.ledger.Admit(t.Context(), r.Need(s, schema.All(s.Schema), s.Blocks(nil)))
		must(t, err)
		reader := r.Open(s, schema.All(s.Schema), g)
		for _, tt := range []struct{ from, to, loads int64 }{
			{0, 100, 1},
			{100, 101, 1},     // goes on
			{1_000, 2_000, 1}, // skips
			{500_000, 500_001, 1},
			{499_999, 500_002, 2}, // back: from the start again
			{1_999_999, 2_000_000, 2},
			{0, 1, 3}, // the segment was read to its end
		} {
			x, err := column(reader, snapshot.Block{From: tt.from, To: tt.to})
			must(t, err)
			must(t, counts(x, tt.from, tt.to-tt.from))
			if got := loads.Load(); got != tt.loads {
				t.Errorf("%s: rows from %d: %d loads, want %d", file, tt.from, got, tt.loads)
			}
		}
		reader.Close()
		reader.Close()
		g.Close()
	}
}

// A stream stays within what Need asked for.
func TestNeedIsEnough(t *testing.T) {
	for _, file := range []string{"big.parquet", "big.arrow", "p0.parquet", "f.feather"} {
		r := one(t, folder(t, map[string]string{file: file}))
		s := r.newest("d")
		p := schema.All(s.Schema)
		need := r.Need(s, p, s.Blocks(nil))
		tight := budget.New(budget.Options{Limit: need})
		g, err := tight.Admit(t.Context(), need)
		must(t, err)
		reader := r.Open(s, p, g)
		var last []*frame.Lease
		for i := range s.Blocks(nil).Len() {
			leases, err := reader.Block(t.Context(), s.Blocks(nil).At(i))
			if err != nil {
				t.Fatalf("%s, block %d of need %d: %v", file, i, need, err)
			}
			last = append(last, leases...)
			for len(last) >= held {
				last[0].Release()
				last = last[1:]
			}
		}
		for _, l := range last {
			l.Release()
		}
		reader.Close()
		g.Close()
	}
}

func TestChangesUnderAStream(t *testing.T) {
	for _, file := range []string{"big.parquet", "big.arrow"} {
		for name, tt := range map[string]struct {
			change func(path string) error
			want   error
		}{
			"unlink": {os.Remove, nil},
			"replace": {func(path string) error {
				return errors.Join(os.WriteFile(path+".new", nil, 0o644), os.Rename(path+".new", path))
			}, nil},
			"truncate": {func(path string) error { return os.Truncate(path, 1000) }, bucket.ErrChanged},
			"rewrite": {func(path string) error {
				info, err := os.Stat(path)
				return errors.Join(err, os.WriteFile(path, make([]byte, info.Size()), 0o644))
			}, bucket.ErrChanged},
		} {
			dir := folder(t, map[string]string{file: file})
			r := one(t, dir)
			s := r.newest("d")
			g, err := r.ledger.Admit(t.Context(), 256<<20)
			must(t, err)
			reader := r.Open(s, schema.All(s.Schema), g)
			blocks := s.Blocks(nil)
			x, err := column(reader, blocks.At(0))
			must(t, err)
			must(t, tt.change(filepath.Join(dir, file)))
			for i := 1; i < blocks.Len() && err == nil; i++ {
				var more []int64
				more, err = column(reader, blocks.At(i))
				x = append(x, more...)
			}
			if !errors.Is(err, tt.want) {
				t.Errorf("%s, %s: %v, want %v", file, name, err, tt.want)
			}
			must(t, counts(x, 0, int64(len(x))))
			reader.Close()
			g.Close()
		}
	}
}

// short gives one row less than it is asked for.
type short struct{ scanner }

func (s short) Next(ctx context.Context, g *budget.Grant, rows int64) ([]*frame.Lease, error) {
	return s.scanner.Next(ctx, g, rows-1)
}

// A segment that holds other rows than it claims must not shift those behind it.
func TestWrongRowCountIsAnError(t *testing.T) {
	for _, file := range []string{"a0.arrow", "p0.parquet"} {
		r := one(t, folder(t, map[string]string{file: file}))
		s := r.newest("d")
		lying := *s.Shards[0]
		lying.Segments = append([]snapshot.Segment{}, lying.Segments...)
		lying.Segments[0].Rows++
		forged, err := snapshot.New("d", []*snapshot.Shard{&lying}, snapshot.Rules{})
		must(t, err)
		if _, err := r.read(forged, forged.Blocks(nil)); err == nil {
			t.Errorf("%s: rows that are not there were read", file)
		}
		g, err := r.ledger.Admit(t.Context(), 1<<24)
		must(t, err)
		reader := r.Open(s, schema.All(s.Schema), g)
		_, err = column(reader, snapshot.Block{From: 0, To: 1})
		must(t, err)
		reader.scan = short{reader.scan}
		if _, err := column(reader, snapshot.Block{From: 1, To: 20}); !errors.Is(err, snapshot.ErrCorrupt) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v, want ErrCorrupt naming it", file, err)
		}
		reader.Close()
		g.Close()
	}
}

func TestB10ManyReadersOfOneSnapshot(t *testing.T) {
	for _, ext := range []string{"parquet", "arrow"} {
		r := one(t, folder(t, fourShards(ext)))
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				s, err := r.Snapshot(context.Background(), "d", "")
				if err != nil {
					t.Error(err)
					return
				}
				x, err := r.read(s, s.Blocks(nil))
				if err = errors.Join(err, counts(x, 0, 400)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}

// Those who come while a snapshot is made wait for it; who gives up leaves
// the work done so far to the next.
func TestConcurrentMissesDescribeOnce(t *testing.T) {
	var refreshed atomic.Int64
	r := newRig(t, Options{Refresh: time.Hour, Mounts: []Mount{{Name: "d", URL: folder(t, fourShards("parquet"))}}, Events: Events{
		Refreshed: func(string, Status) { refreshed.Add(1) },
	}})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Snapshot(gone, "d", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			if _, err := r.Snapshot(context.Background(), "d", ""); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := refreshed.Load(); n != 1 {
		t.Errorf("refreshed %d times, want once", n)
	}
}

// However often it is interrupted, describing ends with every shard in.
func TestInterruptedDescribingLosesNothing(t *testing.T) {
	files := map[string]string{}
	for i := range 40 {
		files[fmt.Sprintf("%02d.parquet", i)] = "p0.parquet"
	}
	r := newRig(t, Options{Refresh: time.Hour, Mounts: []Mount{{Name: "d", URL: folder(t, files)}}})
	for i := range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*100*time.Microsecond)
		_, _ = r.Snapshot(ctx, "d", "")
		cancel()
	}
	if s := r.newest("d"); len(s.Shards) != 40 || s.Rows() != 4000 {
		t.Errorf("%d shards, %d rows", len(s.Shards), s.Rows())
	}
}

func TestObjectsAreSharedAndClosed(t *testing.T) {
	r := one(t, folder(t, map[string]string{"big.arrow": "big.arrow"}))
	s := r.newest("d")
	g, err := r.ledger.Admit(t.Context(), 256<<20)
	must(t, err)
	defer g.Close()
	var readers []*Reader
	for range 8 {
		reader := r.Open(s, schema.All(s.Schema), g)
		_, err := column(reader, s.Blocks(nil).At(0))
		must(t, err)
		readers = append(readers, reader)
	}
	if n := len(r.objects.open); n != 1 {
		t.Errorf("%d objects open for 8 readers of one", n)
	}
	if r.Close() == nil {
		t.Error("a store with an object open closes without a word")
	}
	for _, reader := range readers {
		reader.Close()
	}
	if n := len(r.objects.open); n != 0 {
		t.Errorf("%d objects left open", n)
	}
}

func BenchmarkFirstSnapshotOf1000(b *testing.B) {
	files := map[string]string{}
	for i := range 1000 {
		files[fmt.Sprintf("%04d.parquet", i)] = "p0.parquet"
	}
	dir := folder(b, files)
	for b.Loop() {
		s, err := New(b.Context(), Options{Mounts: []Mount{{Name: "d", URL: dir}}, Pool: frame.NewPool(frame.Options{})})
		must(b, err)
		if snap, err := s.Snapshot(b.Context(), "d", ""); err != nil || len(snap.Shards) != 1000 {
			b.Fatal(err)
		}
	}
}

// While files come, go and are replaced, a reader gets exactly the rows of its
// snapshot or an error that says what changed; never others, never fewer.
func TestReadersWhileFilesChange(t *testing.T) {
	dir := folder(t, fourShards("parquet"))
	r := one(t, dir)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		for i := range 60 {
			source := filepath.Join(corpus, fmt.Sprintf("p%d.parquet", i%4))
			content, err := os.ReadFile(source)
			path := filepath.Join(dir, fmt.Sprintf("%d.parquet", i%5))
			if i%3 == 0 {
				_ = os.Remove(path)
			}
			if err = errors.Join(err, os.WriteFile(path+".new", content, 0o644), os.Rename(path+".new", path)); err != nil {
				t.Error(err)
			}
		}
	})
	var whole atomic.Int64
	for range 4 {
		wg.Go(func() {
			for running := true; running; {
				select {
				case <-done:
					running = false // once more, undisturbed
				default:
				}
				s, err := r.Snapshot(context.Background(), "d", "")
				if err != nil {
					t.Error(err)
					return
				}
				x, err := r.read(s, s.Blocks(nil))
				switch {
				case errors.Is(err, bucket.ErrChanged), errors.Is(err, bucket.ErrNotFound):
				case err != nil || int64(len(x)) != s.Rows():
					t.Errorf("%d of %d rows, %v", len(x), s.Rows(), err)
				default:
					whole.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if whole.Load() < 4 {
		t.Errorf("%d reads came to their end, want at least the last of each reader", whole.Load())
	}
}

package parquetfile

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

// blocks opens a scanner and calls visit for each block of the segment.
func (w *world) blocks(t *testing.T, obj *bucket.Object, sh *snapshot.Shard, segment int, visit func(from, to int64, leases []*frame.Lease)) {
	t.Helper()
	s, err := (Options{}).Open(t.Context(), obj, sh, segment, schema.All(sh.Schema), w.pool, w.grant)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	seg := sh.Segments[segment]
	for i := range seg.Blocks() {
		from, to := seg.Block(i)
		leases, err := s.Next(t.Context(), nil, to-from)
		if err != nil {
			t.Fatal(err)
		}
		visit(from, to, leases)
	}
}

// TestHugeRowGroup reads a row group of 100 MB block by block: each is one
// frame near 3.75 MiB, and memory is that of a block or two, as Need foretells.
func TestHugeRowGroup(t *testing.T) {
	folder(t)
	obj := store(t, folder(t), "huge.one")
	sh := describe(t, obj)
	w := newWorld(t, 64<<20)
	var most, widest int64
	next := int64(0)
	w.blocks(t, obj, sh, 0, func(from, to int64, leases []*frame.Lease) {
		used := w.ledger.Stats().Used
		most = max(most, used[budget.Scratch]+used[budget.Input])
		if len(leases) != 1 {
			t.Errorf("%d frames for rows %d to %d", len(leases), from, to)
		}
		for _, l := range leases {
			widest = max(widest, l.Bytes())
			for _, n := range l.Batch().Column(0).(*array.Int64).Int64Values() {
				if n != next {
					t.Fatalf("row %d, want %d", n, next)
				}
				next++
			}
			x := l.Batch().Column(1).(*array.FixedSizeList).ListValues().(*array.Float32)
			for i := range 3 {
				if at := int64(i) * (to - from - 1) * 100 / 2; x.Value(int(at)) != float32(from*100+at) {
					t.Fatalf("x[%d] from row %d on is %f", at, from, x.Value(int(at)))
				}
			}
			l.Release()
		}
	})
	if next != sh.Rows() || widest > 6<<20 {
		t.Errorf("%d rows of %d, widest frame %d bytes", next, sh.Rows(), widest)
	}
	need := Need(sh, 0, schema.All(sh.Schema))
	t.Logf("%d blocks; between blocks %d bytes, Need %d, pool %+v", sh.Segments[0].Blocks(), most, need, w.pool.Stats())
	if most > need || need > 32<<20 {
		t.Errorf("%d bytes in use, Need said %d", most, need)
	}
}

// TestNeedIsEnough admits no more than Need and the frames.
func TestNeedIsEnough(t *testing.T) {
	for _, name := range []string{"huge.one", "flat_v1.parquet", "nested_v2.parquet", "fallback.parquet", "long.parquet", "blobs.one"} {
		obj := store(t, folder(t), name)
		sh := describe(t, obj)
		w := newWorld(t, Need(sh, 0, schema.All(sh.Schema))+12<<20)
		blocks := 0
		w.blocks(t, obj, sh, 0, func(_, _ int64, leases []*frame.Lease) {
			for _, l := range leases {
				l.Release()
			}
			blocks++
		})
		if int64(blocks) != sh.Segments[0].Blocks() {
			t.Errorf("%s: %d blocks", name, blocks)
		}
	}
}

// TestLargeAsk asks for a whole row group at once: frames stay small.
func TestLargeAsk(t *testing.T) {
	obj := store(t, folder(t), "huge.one")
	sh := describe(t, obj)
	w := newWorld(t, 1<<30)
	s, err := (Options{}).Open(t.Context(), obj, sh, 0, schema.All(sh.Schema), w.pool, w.grant)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	leases, err := s.Next(t.Context(), nil, sh.Rows())
	if err != nil {
		t.Fatal(err)
	}
	var rows int64
	for _, l := range leases {
		if l.Bytes() > frame.MaxFrame {
			t.Errorf("a frame of %d bytes", l.Bytes())
		}
		rows += l.Batch().NumRows()
		l.Release()
	}
	if rows != sh.Rows() || len(leases) < 3 {
		t.Errorf("%d rows in %d frames", rows, len(leases))
	}
	if _, err := s.Next(t.Context(), nil, 1); err == nil || !strings.Contains(err.Error(), "1 rows asked for, 0 are left") {
		t.Errorf("beyond the end: %v", err)
	}
}

// TestFrameLimit splits by rows what decodes to more than a frame, though the
// footer could not say so.
func TestFrameLimit(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lies.parquet")
	folder(t)
	// Without size statistics nothing shows that 100 index bytes are 80 MB.
	code := `import sys, pyarrow as pa, pyarrow.parquet as pq
s = pa.array(["x" * 500_000] * 160)
pq.write_table(pa.table({"s": s}), sys.argv[1])`
	if _, err := python("-c", code, path); err != nil {
		t.Fatal(err)
	}
	obj := store(t, dir, "lies.parquet")
	sh := describe(t, obj)
	sh.Segments[0].Bytes = 600_000
	w := newWorld(t, 1<<30)
	s, err := (Options{}).Open(t.Context(), obj, sh, 0, schema.All(sh.Schema), w.pool, w.grant)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	leases, err := s.Next(t.Context(), nil, 160)
	if err != nil {
		t.Fatal(err)
	}
	if len(leases) < 2 {
		t.Errorf("%d frames", len(leases))
	}
	for _, l := range leases {
		if l.Bytes() > frame.MaxFrame {
			t.Errorf("a frame of %d bytes", l.Bytes())
		}
		l.Release()
	}
}

// TestOutOfMemory ends a scan whose grant is too small with the ledger's error,
// and gives everything back.
func TestOutOfMemory(t *testing.T) {
	obj := store(t, folder(t), "huge.one")
	sh := describe(t, obj)
	for _, limit := range []int64{1 << 10, 300 << 10, 2 << 20, 5 << 20} {
		w := newWorld(t, limit)
		s, err := (Options{}).Open(t.Context(), obj, sh, 0, schema.All(sh.Schema), w.pool, w.grant)
		if err == nil {
			_, err = s.Next(t.Context(), nil, 8000)
			if _, again := s.Next(t.Context(), nil, 1); again == nil || again.Error() != err.Error() {
				t.Errorf("after an error: %v", again)
			}
			s.Close()
		}
		if !errors.Is(err, budget.ErrExhausted) || errors.Is(err, snapshot.ErrCorrupt) || !strings.Contains(err.Error(), "huge.one") {
			t.Errorf("with %d bytes: %v", limit, err)
		}
	}
}

// TestNoMemoryForChildren opens structs, whose children arrow-go opens on goroutines of its own, without the memory: a panic
// there would end the program.
func TestNoMemoryForChildren(t *testing.T) {
	obj := store(t, folder(t), "nested_v1.parquet")
	sh := describe(t, obj)
	p, err := schema.Project(sh.Schema, [][]string{{"pairs"}})
	if err != nil {
		t.Fatal(err)
	}
	open := func(w *world) error {
		s, err := (Options{}).Open(t.Context(), obj, sh, 0, p, w.pool, w.grant)
		if err == nil {
			s.Close()
		}
		return err
	}
	opened := false
	for limit := int64(1 << 10); limit < 16<<20 && !opened; limit += 4 << 10 {
		err := open(newWorld(t, limit))
		opened = err == nil
		if err != nil && (!errors.Is(err, budget.ErrExhausted) || errors.Is(err, snapshot.ErrCorrupt)) {
			t.Errorf("with %d bytes: %v", limit, err)
		}
	}
	if !opened {
		t.Error("no limit is enough")
	}
	w := newWorld(t, 16<<20)
	w.grant.Close()
	if err := open(w); !errors.Is(err, budget.ErrExhausted) {
		t.Errorf("on a closed grant: %v", err)
	}
}

// TestChangedWhileReading rewrites a file under a scanner: the store's error
// comes out, not one about pages.
func TestChangedWhileReading(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"truncated": func(path string) error { return os.Truncate(path, 1000) },
		"rewritten": func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte{7}, 4<<20), 0o600) },
	} {
		b, err := os.ReadFile(filepath.Join(folder(t), "long.parquet"))
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		path := filepath.Join(dir, "file.parquet")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		obj := store(t, dir, "file.parquet")
		sh := describe(t, obj)
		w := newWorld(t, 1<<30)
		s, err := (Options{}).Open(t.Context(), obj, sh, 0, schema.All(sh.Schema), w.pool, w.grant)
		if err != nil {
			t.Fatal(err)
		}
		if err := change(path); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Next(t.Context(), nil, 20_000); !errors.Is(err, bucket.ErrChanged) || errors.Is(err, snapshot.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		s.Close()
	}
}

// TestReplaced opens a scanner on another file than the one described.
func TestReplaced(t *testing.T) {
	sh := describe(t, store(t, folder(t), "codec_none_v1.parquet"))
	for sh.Facts.(*facts).parsed.Value() != nil {
		runtime.GC()
	}
	w := newWorld(t, 1<<30)
	for _, name := range []string{"codec_none_v2.parquet", "codec_zstd_v1.parquet", "empty_group.parquet"} {
		if _, err := (Options{}).Open(t.Context(), store(t, folder(t), name), sh, 0, schema.All(sh.Schema), w.pool, w.grant); err == nil {
			t.Errorf("%s opened as another", name)
		}
	}
	s, err := (Options{}).Open(t.Context(), store(t, folder(t), "codec_none_v1.parquet"), sh, 0, schema.All(sh.Schema), w.pool, w.grant)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

func TestCancel(t *testing.T) {
	obj := store(t, folder(t), "long.parquet")
	sh := describe(t, obj)
	w := newWorld(t, 1<<30)
	s, err := (Options{}).Open(t.Context(), obj, sh, 0, schema.All(sh.Schema), w.pool, w.grant)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Next(ctx, nil, 10); !errors.Is(err, context.Canceled) || errors.Is(err, snapshot.ErrCorrupt) {
		t.Error(err)
	}
}

// TestB10 runs many scanners at once over one shard and its one parsed footer, of columns that either reader reads.
func TestB10_ManyScanners(t *testing.T) {
	obj := store(t, folder(t), "checksums_v1.parquet")
	sh := describe(t, obj)
	s, want := expected(t, folder(t), "checksums_v1")
	w := newWorld(t, 1<<30)
	var g errgroup.Group
	for range 64 {
		g.Go(func() error {
			same(t, s, w.readFile(t, obj, sh, schema.All(sh.Schema), 1700), want, 0)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// TestFewerRows asks for rows that the pages do not have: a shard whose row
// count is a lie would otherwise come out short.
func TestFewerRows(t *testing.T) {
	for _, name := range []string{"nested_v1.parquet", "nested_v2.parquet"} {
		obj := store(t, folder(t), name)
		sh := describe(t, obj)
		for _, lie := range []int64{1, -1} {
			sh.Segments[0].Rows = 333 + lie
			w := newWorld(t, 1<<30)
			_, err := w.read(t, obj, sh, 0, schema.All(sh.Schema), 0, 100)
			if !errors.Is(err, snapshot.ErrCorrupt) || !strings.Contains(err.Error(), "row group 0") || !strings.Contains(err.Error(), "column") {
				t.Errorf("%s with %d rows: %v", name, 333+lie, err)
			}
		}
	}
}

// TestHoles compares reads around pages that are left out with a copy of the
// file without them.
func TestHoles(t *testing.T) {
	file := golden(t, "plain.parquet")
	obj := store(t, "testdata/golden", "plain.parquet")
	rapid.Check(t, func(r *rapid.T) {
		start := rapid.Int64Range(0, 500).Draw(r, "start")
		end := start + rapid.Int64Range(1, 500).Draw(r, "length")
		var holes []hole
		chunk := []byte{}
		at := start
		for range rapid.IntRange(1, 4).Draw(r, "holes") {
			from := at + rapid.Int64Range(0, end-at).Draw(r, "from")
			to := from + rapid.Int64Range(0, end-from).Draw(r, "to")
			chunk = append(chunk, file[at:from]...)
			holes, at = append(holes, hole{from: from, to: to, start: start, end: end}), to
		}
		chunk = append(chunk, file[at:end]...)
		s := &source{ctx: t.Context(), obj: obj, holes: append([]hole{{from: end + 10, to: end + 20, start: end, end: end + 50}}, holes...)}
		off := rapid.Int64Range(0, end-start).Draw(r, "off")
		p := make([]byte, rapid.Int64Range(0, 600).Draw(r, "ask"))
		if off == end-start {
			return // that is the next chunk's first byte
		}
		n, err := s.ReadAt(p, start+off)
		want := chunk[min(off, int64(len(chunk))):]
		want = want[:min(len(want), len(p))]
		if !bytes.Equal(p[:n], want) || (n < len(p)) != (err == io.EOF) {
			r.Fatalf("%d bytes at %d: %d, %v, want %d", len(p), off, n, err, len(want))
		}
	})
}

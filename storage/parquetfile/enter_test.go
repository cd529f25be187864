package parquetfile

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/klauspost/compress/snappy"
	"pgregory.net/rapid"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/parquet/compress"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/snapshot"
)

// bordersOf lists the rows with which pages can be entered, and those around them.
func (w *world) bordersOf(t testing.TB, obj *bucket.Object, sh *snapshot.Shard, segment int) (rows []int64) {
	t.Helper()
	s, err := Open(t.Context(), obj, sh, segment, schema.All(sh.Schema), w.pool, w.grant)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, c := range s.columns {
		for _, l := range c.leaves {
			if err := s.findBorders(l, s.rows); err != nil {
				t.Fatal(err)
			}
			if n := int64(len(l.sum.places)); l.rows.pages == n && l.rows.rows != s.rows {
				t.Errorf("%s: counted %d rows of %d", c.field.Name, l.rows.rows, s.rows)
			}
			for _, b := range l.rows.starts {
				rows = append(rows, max(b.row-1, 0), b.row, min(b.row+1, s.rows))
			}
		}
	}
	slices.Sort(rows)
	return slices.Compact(rows)
}

// sliced is what pyarrow read of the rows of one segment.
func sliced(all []arrow.Array, from, to int64) []arrow.Array {
	out := make([]arrow.Array, len(all))
	for c := range all {
		out[c] = array.NewSlice(all[c], from, to)
	}
	return out
}

// TestEnter begins at every place where a page does, and a row before and after
// it: what comes is what comes to those who decode all.
func TestEnter(t *testing.T) {
	for _, name := range names(t, "") {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1<<30)
			obj := store(t, folder(t), name+".parquet")
			sh := describe(t, obj)
			s, all := expected(t, folder(t), name)
			var before int64
			for i, seg := range sh.Segments {
				rows := w.bordersOf(t, obj, sh, i)
				want := sliced(all, before, before+seg.Rows)
				const most = 6
				step := 1 + len(rows)/most
				for at := i % step; at < len(rows); at += step {
					got, err := w.read(t, obj, sh, i, schema.All(sh.Schema), rows[at], 3, 0)
					if err != nil {
						t.Fatalf("from row %d: %v", rows[at], err)
					}
					same(t, s, got, want, rows[at])
				}
				before += seg.Rows
			}
		})
	}
}

// TestEnterAcross checks that columns are entered, not passed over, in every
// compression whose front can be read: those of one leaf at the page that has the
// row, structs at such a page of each leaf, lists of structs where pages meet.
func TestEnterAcross(t *testing.T) {
	for _, name := range []string{"across_none", "across_snappy", "across_zstd", "across_gzip", "across_brotli", "across_v2"} {
		w := newWorld(t, 1<<30)
		obj := store(t, folder(t), name+".parquet")
		sh := describe(t, obj)
		s, err := Open(t.Context(), obj, sh, 0, schema.All(sh.Schema), w.pool, w.grant)
		if err != nil {
			t.Fatal(err)
		}
		for i := range s.columns {
			c := &s.columns[i]
			if err := s.enter(i, 1200); err != nil {
				t.Error(err)
			}
			hidden := len(s.source.holes) > 0
			s.source.holes = nil
			if !hidden && c.field.Name != "map" && c.field.Name != "cells" || len(c.leaves) == 1 && c.at < 900 {
				t.Errorf("%s: %s entered at row %d, %t", name, c.field.Name, c.at, hidden)
			}
		}
		s.Close()
	}
}

// TestEnterAnew skips and reads in turns, with steps so short that every skip
// begins a new reader, and without.
func TestEnterAnew(t *testing.T) {
	for _, name := range names(t, "across_snappy", "across_v2", "across_dict", "nested_v2_plain", "flat_v1_plain", "fallback", "delta_v2_5000", "dictionary_pages") {
		w := newWorld(t, 1<<30)
		obj := store(t, folder(t), name+".parquet")
		sh := describe(t, obj)
		fields, all := expected(t, folder(t), name)
		rows := sh.Segments[0].Rows
		rapid.Check(t, func(r *rapid.T) {
			s, err := Open(t.Context(), obj, sh, 0, schema.All(sh.Schema), w.pool, w.grant)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			short := rapid.Bool().Draw(r, "short")
			for range rapid.IntRange(1, 3).Draw(r, "turns") {
				if short {
					s.perRow = stepBytes / 20
				}
				if err := s.Skip(t.Context(), rapid.Int64Range(0, rows-s.at).Draw(r, "skip")); err != nil {
					r.Fatal(err)
				}
				at, n := s.at, min(rapid.Int64Range(0, 30).Draw(r, "read"), rows-s.at)
				leases, err := s.Next(t.Context(), nil, n)
				if err != nil {
					r.Fatal(err)
				}
				for _, l := range leases {
					same(t, fields, l.Batch().Columns(), sliced(all, at, at+l.Batch().NumRows()), 0)
					at += l.Batch().NumRows()
					l.Release()
				}
				if at != s.at {
					r.Fatalf("at row %d, not %d", at, s.at)
				}
			}
		})
	}
}

// watched is an object that notes what is read.
type watched struct {
	*bucket.Object
	mu    sync.Mutex
	reads []hole
}

func (w *watched) ReaderAt(ctx context.Context) io.ReaderAt {
	return watchedReader{w, w.Object.ReaderAt(ctx)}
}

type watchedReader struct {
	w *watched
	r io.ReaderAt
}

func (r watchedReader) ReadAt(p []byte, off int64) (int, error) {
	r.w.mu.Lock()
	r.w.reads = append(r.w.reads, hole{from: off, to: off + int64(len(p))})
	r.w.mu.Unlock()
	return r.r.ReadAt(p, off)
}

// TestHiddenPagesAreNotRead enters at three quarters of flat columns.
func TestHiddenPagesAreNotRead(t *testing.T) {
	obj := store(t, folder(t), "long.parquet")
	sh := describe(t, obj)
	w := newWorld(t, 1<<30)
	p, err := schema.Project(sh.Schema, [][]string{{"n"}, {"s"}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), obj, sh, 0, p, w.pool, w.grant)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	seen := &watched{Object: obj}
	s.source.obj = seen
	if err := s.Skip(t.Context(), s.rows*3/4); err != nil {
		t.Fatal(err)
	}
	leases, err := s.Next(t.Context(), nil, s.rows-s.at)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leases {
		l.Release()
	}
	for _, c := range s.columns {
		l := c.leaves[0]
		b, _ := l.rows.below(s.rows * 3 / 4)
		if first := l.sum.places[0].at; b.at-first < (l.end-first)/4 {
			t.Errorf("%s is entered at %d, of %d to %d", c.field.Name, b.at, first, l.end)
		}
		for _, r := range seen.reads {
			if r.from < b.at && r.to > l.sum.places[0].at {
				t.Errorf("%s: read %d to %d, hidden up to %d", c.field.Name, r.from, r.to, b.at)
			}
		}
	}
}

// TestBordersAreKept counts levels once per file.
func TestBordersAreKept(t *testing.T) {
	obj := store(t, folder(t), "across_snappy.parquet")
	sh := describe(t, obj)
	w := newWorld(t, 1<<30)
	for round := range 2 {
		s, err := Open(t.Context(), obj, sh, 0, schema.All(sh.Schema), w.pool, w.grant)
		if err != nil {
			t.Fatal(err)
		}
		seen := &watched{Object: obj}
		s.source.obj = seen
		for i := range s.columns {
			if err := s.enter(i, 1200); err != nil {
				t.Fatal(err)
			}
		}
		if (len(seen.reads) == 0) != (round == 1) {
			t.Errorf("round %d: %d reads", round, len(seen.reads))
		}
		s.Close()
	}
	if kept := sh.Facts.(*facts).found; kept.count == 0 || kept.count > maxFound {
		t.Errorf("%d borders kept", kept.count)
	}
}

// TestKeepApart finds the chunks that share bytes.
func TestKeepApart(t *testing.T) {
	var all []*leaf
	for _, c := range [][2]int64{{90, 100}, {0, 50}, {10, 20}, {45, 60}, {60, 90}, {100, 101}} {
		all = append(all, &leaf{chunk: chunk{start: c[0], end: c[1]}})
	}
	keepApart(all)
	for _, l := range all {
		if l.stuck != (l.start < 60) {
			t.Errorf("%d to %d: %t", l.start, l.end, l.stuck)
		}
	}
}

// TestUnsnappy compares the front of blocks with what the whole decodes to.
func TestUnsnappy(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		words := rapid.SliceOf(rapid.SampledFrom([]string{"a", "bc", "aaaaaaaaaaaaaaaa", "x1y2z3", string(bytes.Repeat([]byte("long"), 80))})).Draw(r, "words")
		plain := bytes.Join(func() (out [][]byte) {
			for _, w := range words {
				out = append(out, []byte(w))
			}
			return append(out, rapid.SliceOf(rapid.Byte()).Draw(r, "end"))
		}(), nil)
		u, done, err := unpack(compress.Codecs.Snappy, bufio.NewReader(bytes.NewReader(snappy.Encode(nil, plain))))
		if err != nil {
			r.Fatal(err)
		}
		defer done()
		for at := 0; at < len(plain); {
			p := make([]byte, rapid.IntRange(1, len(plain)-at).Draw(r, "n"))
			if _, err := io.ReadFull(u, p); err != nil || !bytes.Equal(p, plain[at:at+len(p)]) {
				r.Fatalf("%d bytes at %d: %q, %v", len(p), at, p, err)
			}
			at += len(p)
		}
	})
}

// FuzzLevels counts rows in foreign levels.
func FuzzLevels(f *testing.F) {
	f.Add([]byte{8, 0, 0, 0, 2, 0, 6, 1, 3, 0b1010_1010, 2, 0}, int64(13), int16(1), uint8(0))
	f.Add([]byte{3, 0, 0, 0, 3, 0xe4, 0x1b}, int64(8), int16(3), uint8(0))
	f.Add(snappy.Encode(nil, []byte{8, 0, 0, 0, 2, 0, 6, 1, 3, 0b1010_1010, 2, 0}), int64(13), int16(1), uint8(1))
	f.Add([]byte{9, 0x0d, 1, 0xff}, int64(100), int16(300), uint8(6))
	f.Fuzz(func(t *testing.T, b []byte, n int64, most int16, codec uint8) {
		if n < 1 || n > 1<<20 || most < 1 {
			return
		}
		p := page{kind: pageData, raw: maxPage, values: n, repeats: 3, levels: int64(len(b)), rows: n}
		for _, p.kind = range []int64{pageData, pageDataV2} {
			tally, err := countRows(p, most, compress.Compression(codec%8), bytes.NewReader(b))
			if err == nil && (tally.rows < 0 || tally.rows > n || tally.fresh && tally.rows == 0) {
				t.Errorf("%+v in %d values", tally, n)
			}
		}
	})
}

package parquetfile

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
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

// marksOf lists the rows with which pages begin, and those around them. All rows
// are passed to find them.
func (w *world) marksOf(t testing.TB, obj *bucket.Object, sh *snapshot.Shard, segment int) (rows []int64) {
	t.Helper()
	s, err := (Options{}).Open(t.Context(), obj, sh, segment, schema.All(sh.Schema), w.pool, w.grant)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Skip(t.Context(), s.rows); err != nil {
		t.Fatal(err)
	}
	for _, l := range s.chunks() {
		if len(l.marks) == 0 && s.rows > 0 || len(l.marks) > 0 && l.marks[0].row != 0 {
			t.Errorf("%s: marks %v", l.column.Path(), l.marks)
		}
		for _, m := range l.marks {
			rows = append(rows, max(m.row-1, 0), m.row, min(m.row+1, s.rows))
		}
	}
	slices.Sort(rows)
	return slices.Compact(rows)
}

// chunks lists the readers of all columns that we read ourselves.
func (s *Scanner) chunks() (all []*leafReader) {
	for _, c := range s.columns {
		if c.own != nil {
			all = append(all, c.own.leaves...)
		}
	}
	return all
}

// TestMarksAreSharedAtOnce opens a large row group at several places, and leaves the scanners open, as an order with lanes
// does: each learns from those before it where rows begin.
func TestMarksAreSharedAtOnce(t *testing.T) {
	w := newWorld(t, 1<<30)
	most := 0
	for _, name := range names(t, "") {
		obj := store(t, folder(t), name+".parquet")
		sh := describe(t, obj)
		var ended []*Scanner
		for i, seg := range sh.Segments {
			for part := range int64(4) {
				s, err := (Options{}).Open(t.Context(), obj, sh, i, schema.All(sh.Schema), w.pool, w.grant)
				if err != nil {
					t.Fatal(err)
				}
				ended = append(ended, s)
				if err := s.Skip(t.Context(), seg.Rows*part/4); err != nil {
					t.Fatal(err)
				}
				for _, l := range s.chunks() {
					if known := len(s.marks.get(i, l.col)); known < len(l.marks) {
						t.Errorf("%s: %s: %d marks are known, the scanner has %d", name, l.column.Path(), known, len(l.marks))
					} else {
						most = max(most, known)
					}
				}
			}
		}
		for _, s := range ended {
			s.Close()
		}
	}
	if most < 3 {
		t.Errorf("%d marks at most: the files have too few pages", most)
	}
}

// sliced is what pyarrow read of the rows of one segment.
func sliced(all []arrow.Array, from, to int64) []arrow.Array {
	out := make([]arrow.Array, len(all))
	for c := range all {
		out[c] = array.NewSlice(all[c], from, to)
	}
	return out
}

// TestSkipToPages begins at every place where a page does, and a row before and
// after it, with and without knowing where that is: what comes is what comes to
// those who decode all.
func TestSkipToPages(t *testing.T) {
	for _, name := range names(t, "flat_v", "nested_v", "fixed_lists_v", "delta_v1_3000", "delta_v2_5000", "across", "holes", "long", "fallback") {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1<<30)
			obj := store(t, folder(t), name+".parquet")
			sh := describe(t, obj)
			s, all := expected(t, folder(t), name)
			var before int64
			for i, seg := range sh.Segments {
				rows := w.marksOf(t, obj, sh, i)
				want := sliced(all, before, before+seg.Rows)
				const most = 6
				step := 1 + len(rows)/most
				for at := i % step; at < len(rows); at += step {
					if at%2 == 0 {
						sh = describe(t, obj)
					}
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

// TestSkipsInTurns skips and reads in turns.
func TestSkipsInTurns(t *testing.T) {
	for _, name := range names(t, "across_snappy", "across_v2", "across_lz4", "across_dict", "nested_v2_plain", "flat_v1_plain", "fallback", "delta_v2_5000", "dictionary_pages", "fixed_lists_v1_plain") {
		w := newWorld(t, 1<<30)
		obj := store(t, folder(t), name+".parquet")
		fields, all := expected(t, folder(t), name)
		rapid.Check(t, func(r *rapid.T) {
			sh := describe(t, obj)
			rows := sh.Segments[0].Rows
			s, err := (Options{}).Open(t.Context(), obj, sh, 0, schema.All(sh.Schema), w.pool, w.grant)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for range rapid.IntRange(1, 4).Draw(r, "turns") {
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

// TestSkippedPages reads a few rows at three quarters of a row group: of what was
// passed no bodies of pages are read the first time, and not even headers later.
// In lists the first time takes levels.
func TestSkippedPages(t *testing.T) {
	for _, c := range []struct{ name, column string }{
		{"long", "n"},
		{"long", "s"},
		{"long", "v"},
		{"long_v2", "n"},
		{"long_v2", "v"},
		{"long_v2", "l"},
		{"long_index", "n"},
		{"long_index", "s"},
		{"long_index", "v"},
		{"long_index", "l"},
	} {
		obj := store(t, folder(t), c.name+".parquet")
		sh := describe(t, obj)
		w := newWorld(t, 1<<30)
		p, err := schema.Project(sh.Schema, [][]string{{c.column}})
		if err != nil {
			t.Fatal(err)
		}
		for round := range 2 {
			seen := &watched{Object: obj}
			s, err := (Options{}).Open(t.Context(), obj, sh, 0, p, w.pool, w.grant)
			if err != nil {
				t.Fatal(err)
			}
			s.source.obj = seen
			l := s.chunks()[0]
			l.step = 256 // no more than asked for
			to := s.rows * 3 / 4
			if err := s.Skip(t.Context(), to); err != nil {
				t.Fatal(err)
			}
			leases, err := s.Next(t.Context(), nil, 1)
			if err != nil {
				t.Fatal(err)
			}
			leases[0].Release()
			last := l.marks[len(l.marks)-1]
			for i, m := range l.marks {
				if m.row <= to {
					last = l.marks[i]
				}
			}
			var passed int64
			for _, r := range seen.reads {
				if r.from > l.marks[0].at && r.from < last.at {
					passed += r.to - r.from
				}
			}
			most := (last.at - l.marks[0].at) / 4
			if round == 1 || c.name == "long_index" {
				most = 0
			}
			if passed > most && (!l.nested || c.name != "long" || round == 1) {
				t.Errorf("%s: round %d: %d bytes were read of %d that were passed", c.column, round, passed, last.at-l.marks[0].at)
			}
			s.Close()
		}
		if kept := sh.Facts.(*facts).marks; kept.count == 0 || kept.count > maxMarks {
			t.Errorf("%d marks kept", kept.count)
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

// TestIndexThatLies enters by an index that says other rows than the pages: the
// page behind tells.
func TestIndexThatLies(t *testing.T) {
	obj := store(t, folder(t), "long_index.parquet")
	for _, column := range []string{"n", "v", "l"} {
		sh := describe(t, obj)
		p, err := schema.Project(sh.Schema, [][]string{{column}})
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(t, 1<<30)
		s, err := (Options{}).Open(t.Context(), obj, sh, 0, p, w.pool, w.grant)
		if err != nil {
			t.Fatal(err)
		}
		l := s.chunks()[0]
		if err := l.index(); err != nil || len(l.marks) < 3 {
			t.Fatal(len(l.marks), err)
		}
		l.marks[1].row++
		if err := s.Skip(t.Context(), l.marks[1].row); err != nil {
			t.Fatal(err)
		}
		_, err = s.Next(t.Context(), nil, s.rows-s.at)
		if !errors.Is(err, snapshot.ErrCorrupt) || !strings.Contains(err.Error(), "offset index") {
			t.Errorf("%s: %v", column, err)
		}
		s.Close()
	}
}

// FuzzIndex reads foreign indices: what passes ascends, within the chunk.
func FuzzIndex(f *testing.F) {
	f.Add([]byte{1<<4 | thriftList, 2<<4 | thriftStruct, 1<<4 | thriftI64, 8, 1<<4 | thriftI32, 20, 1<<4 | thriftI64, 0, 0, 1<<4 | thriftI64, 40, 1<<4 | thriftI32, 20, 1<<4 | thriftI64, 10, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		l := &leafReader{rows: 100}
		l.chunk = chunk{start: 4, end: 1000}
		before := mark{at: 3, row: -1}
		for _, m := range l.locations(&thrift{b: b}) {
			if m.at <= before.at || m.row <= before.row || m.at >= 1000 || m.row >= 100 {
				t.Errorf("%+v after %+v", m, before)
			}
			before = m
		}
	})
}

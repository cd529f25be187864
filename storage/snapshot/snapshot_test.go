package snapshot

import (
	"errors"
	"io/fs"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"pgregory.net/rapid"

	"github.com/headrace/headrace/schema"
)

func oneColumn(t arrow.DataType, nullable bool) *arrow.Schema {
	return arrow.NewSchema([]arrow.Field{{Name: "x", Type: t, Nullable: nullable}}, nil)
}

var ints = oneColumn(arrow.PrimitiveTypes.Int64, false)

func shard(key string, segments ...Segment) *Shard {
	return &Shard{Key: key, Size: 100, Format: Parquet, Schema: ints, Segments: segments, Meta: [32]byte{1, 2, 3}}
}

func broken(key string, err error) *Shard {
	s := shard(key, Segment{Rows: 99, Bytes: 99})
	s.Err = err
	return s
}

func mustNew(t interface{ Fatal(...any) }, shards ...*Shard) *Snapshot {
	s, err := New("d", shards, Rules{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSegmentBlocks(t *testing.T) {
	const mib4 = 4 << 20
	for _, tt := range []struct {
		rows, bytes, blocks int64
	}{
		{0, 0, 0},
		{0, 1 << 40, 0},
		{1, 0, 1},
		{1, 1 << 40, 1},
		{10, blockBytes, 1},
		{10, blockBytes + 1, 2},
		{3, 10 * blockBytes, 3},
		{1000, 10 * blockBytes, 10},
		{1 << 20, mib4, 2},
		{math.MaxInt64, math.MaxInt64, math.MaxInt64/blockBytes + 1},
	} {
		s := Segment{Rows: tt.rows, Bytes: tt.bytes}
		if got := s.Blocks(); got != tt.blocks {
			t.Errorf("%d rows of %d bytes: %d blocks, want %d", tt.rows, tt.bytes, got, tt.blocks)
		}
	}
	if from, to := (Segment{Rows: 10, Bytes: 3 * blockBytes}).Block(1); from != 3 || to != 6 {
		t.Errorf("block 1 of 3 of 10 rows is [%d, %d), want [3, 6)", from, to)
	}
}

// drawShards draws shards of any size, some of them corrupt, some empty.
func drawShards(t *rapid.T, most int64) []*Shard {
	keys := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,3}(/[a-z])?`), 1, 6, rapid.ID[string]).Draw(t, "keys")
	list := []*Shard{shard("sound", Segment{Rows: 1, Bytes: 8})}
	for _, key := range keys {
		s := shard("x" + key)
		for range rapid.IntRange(0, 4).Draw(t, "segments") {
			s.Segments = append(s.Segments, Segment{
				Rows:  rapid.Int64Range(0, most).Draw(t, "rows"),
				Bytes: rapid.Int64Range(0, most*100_000).Draw(t, "bytes"),
			})
		}
		if rapid.IntRange(0, 5).Draw(t, "broken") == 0 {
			s.Err = ErrCorrupt
		}
		list = append(list, s)
	}
	return rapid.Permutation(list).Draw(t, "order")
}

// The blocks of any selection tile its rows in order, each inside one segment,
// and Find is the inverse of Start.
func TestBlocksProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := mustNew(t, drawShards(t, 300)...)
		var sel []int
		if rapid.Bool().Draw(t, "some") {
			sel = []int{}
			for i := range s.Shards {
				if rapid.Bool().Draw(t, "taken") {
					sel = append(sel, i)
				}
			}
		}
		b := s.Blocks(sel)
		var want []int64 // the snapshot's number of every row of the selection
		var row int64
		for i, sh := range s.Shards {
			for range sh.Rows() {
				if sel == nil || contains(sel, i) {
					want = append(want, row)
				}
				row++
			}
		}
		if b.Rows() != int64(len(want)) || s.Rows() != row {
			t.Fatalf("%d of %d rows, want %d of %d", b.Rows(), s.Rows(), len(want), row)
		}
		var at int64
		places := [][2]int{}
		for shard, segment := range b.Segments() {
			places = append(places, [2]int{shard, segment})
		}
		for i := range b.Len() {
			bl := b.At(i)
			if place := [2]int{bl.Shard, bl.Segment}; place != places[0] {
				places = places[1:]
				if place != places[0] {
					t.Fatalf("block %d lies in %v, the next segment is %v", i, place, places[0])
				}
			}
			if bl.Bytes > b.Largest()*2 {
				t.Fatalf("block %d has %d bytes, the largest %d", i, bl.Bytes, b.Largest())
			}
			seg := s.Shards[bl.Shard].Segments[bl.Segment]
			if b.Start(i) != at || bl.From >= bl.To || bl.To > seg.Rows || bl.Bytes > seg.Bytes {
				t.Fatalf("block %d of %+v starts at %d, want %d: %+v", i, seg, b.Start(i), at, bl)
			}
			for x := range bl.To - bl.From {
				if want[at] != bl.Row+x || b.Find(at) != i {
					t.Fatalf("row %d: number %d in block %d, want %d in %d", at, bl.Row+x, b.Find(at), want[at], i)
				}
				at++
			}
		}
		if at != b.Rows() || b.Start(b.Len()) != at {
			t.Fatalf("blocks hold %d rows and end at %d, want %d", at, b.Start(b.Len()), b.Rows())
		}
	})
}

// Whatever a footer claims, no arithmetic overflows.
func TestBlocksOfHugeClaims(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seg := Segment{
			Rows:  rapid.Int64Range(1, math.MaxInt64/2).Draw(t, "rows"),
			Bytes: rapid.Int64Range(0, math.MaxInt64).Draw(t, "bytes"),
		}
		b := mustNew(t, shard("a", seg)).Blocks(nil)
		row := rapid.Int64Range(0, seg.Rows-1).Draw(t, "row")
		i := b.Find(row)
		if bl := b.At(i); row < bl.From || row >= bl.To || b.Start(i) != bl.From || bl.Bytes < 0 {
			t.Fatalf("row %d of %+v found in %+v", row, seg, bl)
		}
		if last := b.At(b.Len() - 1); last.To != seg.Rows {
			t.Fatalf("the last block of %+v is %+v", seg, last)
		}
	})
}

func contains(list []int, x int) bool {
	for _, y := range list {
		if x == y {
			return true
		}
	}
	return false
}

// Frozen for ever: cursors and tickets of every version hold identities.
func TestIdentityGolden(t *testing.T) {
	s := mustNew(t,
		shard("b/2.parquet", Segment{Rows: 3, Bytes: 30}, Segment{Rows: 0, Bytes: 0}),
		shard("a.parquet", Segment{Rows: math.MaxInt32, Bytes: 1 << 40}),
		broken("c.parquet", ErrCorrupt),
		broken("d.parquet", ErrUnsupported),
		broken("e.parquet", fs.ErrPermission))
	const want = "98b20fdc5abff2a65923a483ed653a8eac0e3f1a1fbe94b42987a1059b9e7d5e"
	if s.ID != want {
		t.Errorf("identity is %s, want %s", s.ID, want)
	}
}

func TestIdentityIsWhatTheDataIs(t *testing.T) {
	base := func() []*Shard { return []*Shard{shard("a", Segment{Rows: 3, Bytes: 30}), shard("b")} }
	id := mustNew(t, base()...).ID
	same := map[string]func([]*Shard){
		"order": func(s []*Shard) { s[0], s[1] = s[1], s[0] },
		"pin":   func(s []*Shard) { s[0].Pin = "elsewhere" },
		"facts": func(s []*Shard) { s[0].Facts = 1; s[0].Segments[0].Facts = 2 },
	}
	for name, change := range same {
		shards := base()
		change(shards)
		if got := mustNew(t, shards...).ID; got != id {
			t.Errorf("%s changed the identity", name)
		}
	}
	other, err := New("another dataset", base(), Rules{})
	if err != nil || other.ID != id {
		t.Errorf("the name changed the identity: %v", err)
	}
	seen := map[string]string{id: "base"}
	for name, change := range map[string]func([]*Shard){
		"key":      func(s []*Shard) { s[1].Key = "c" },
		"size":     func(s []*Shard) { s[0].Size++ },
		"rows":     func(s []*Shard) { s[0].Segments[0].Rows++ },
		"bytes":    func(s []*Shard) { s[0].Segments[0].Bytes++ },
		"segments": func(s []*Shard) { s[1].Segments = make([]Segment, 1) },
		"meta":     func(s []*Shard) { s[1].Meta[31]++ },
		"corrupt":  func(s []*Shard) { s[1].Err = ErrCorrupt },
		"refused":  func(s []*Shard) { s[1].Err = ErrUnsupported },
		"locked":   func(s []*Shard) { s[1].Err = fs.ErrPermission },
	} {
		shards := base()
		change(shards)
		got := mustNew(t, shards...).ID
		if seen[got] != "" {
			t.Errorf("%s has the identity of %s", name, seen[got])
		}
		seen[got] = name
	}
}

func TestCorruptShardsFailOnlyThoseWhoNeedThem(t *testing.T) {
	s := mustNew(t, broken("b", errors.New("no footer")), shard("a", Segment{Rows: 2, Bytes: 16}), broken("c", ErrUnsupported))
	if s.Rows() != 2 || s.Bytes() != 16 || s.Blocks([]int{1}).Len() != 0 {
		t.Errorf("%d rows, %d bytes, %d blocks in the corrupt one", s.Rows(), s.Bytes(), s.Blocks([]int{1}).Len())
	}
	if err := s.Corrupt([]int{0}); err != nil {
		t.Errorf("the sound shard: %v", err)
	}
	for _, sel := range [][]int{nil, {0, 1}, {1}} {
		if err := s.Corrupt(sel); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), `"b"`) || !strings.Contains(err.Error(), "no footer") {
			t.Errorf("%v: %v", sel, err)
		}
	}
	if err := s.Corrupt([]int{2}); !errors.Is(err, ErrUnsupported) || errors.Is(err, ErrCorrupt) {
		t.Errorf("%v, want ErrUnsupported alone", err)
	}
	if n, ok := s.Number("c"); !ok || n != 2 {
		t.Errorf("c is number %d, %v", n, ok)
	}
	if _, ok := s.Number("bb"); ok {
		t.Error("bb has a number")
	}
}

func TestNewRefuses(t *testing.T) {
	twice := shard("twice.parquet")
	twice.Schema = arrow.NewSchema([]arrow.Field{ints.Field(0), ints.Field(0)}, nil)
	text := shard("text.parquet")
	text.Schema = oneColumn(arrow.BinaryTypes.String, false)
	for name, tt := range map[string]struct {
		shards []*Shard
		want   error
		says   string
	}{
		"nothing":      {nil, ErrEmpty, ""},
		"only corrupt": {[]*Shard{broken("bad.parquet", ErrCorrupt)}, ErrCorrupt, "bad.parquet"},
		"duplicates":   {[]*Shard{shard("a"), twice}, schema.ErrDuplicate, "twice.parquet"},
		"mismatch":     {[]*Shard{shard("a"), text}, schema.ErrMismatch, "text.parquet"},
		"negative":     {[]*Shard{shard("neg.parquet", Segment{Rows: -1})}, ErrCorrupt, "neg.parquet"},
		"too many":     {[]*Shard{shard("a", Segment{Rows: 1}), shard("many.parquet", Segment{Rows: math.MaxInt64})}, ErrCorrupt, "many.parquet"},
		"too large":    {[]*Shard{shard("a", Segment{Bytes: 1}), shard("large.parquet", Segment{Bytes: math.MaxInt64})}, ErrCorrupt, "large.parquet"},
	} {
		if _, err := New("d", tt.shards, Rules{}); !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %v naming %s", name, err, tt.want, tt.says)
		}
	}
}

func TestB92FilesDifferOnlyInNullability(t *testing.T) {
	a, b := shard("a"), shard("b")
	b.Schema = oneColumn(arrow.PrimitiveTypes.Int64, true)
	if s := mustNew(t, a, b); !s.Schema.Field(0).Nullable {
		t.Error("the joined column is not nullable")
	}
}

package encoding

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// bit is bit i of b.
func bit(b []byte, i int) bool { return b[i/8]>>(i%8)&1 == 1 }

// dirty is room for n bits from bit at on, and a few behind them, all of them set to what must not stay, or must.
func dirty(t world, at, n int) []byte {
	b := room(t, (at+n+7)/8)
	for i := range b {
		b[i] = canary
	}
	return b
}

// untouched fails the test if bits beside those n from bit at on were written.
func untouched(t world, b []byte, at, n int) {
	t.Helper()
	for i := range len(b) * 8 {
		if (i < at || i >= at+n) && bit(b, i) != (byte(canary)>>(i%8)&1 == 1) {
			t.Fatalf("bit %d was written, beside %d bits from %d on", i, n, at)
		}
	}
}

func TestLevelsValidity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.OneOf(rapid.IntRange(1, 9), rapid.Just(maxLevel)).Draw(t, "most")
		width := bits.Len(uint(most))
		b, values := drawRuns(t, width, uint32(most))
		var l Levels
		if rapid.Bool().Draw(t, "prefixed") {
			page := append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...)
			rest, err := l.ResetPrefixed(fenced(t, append(page, 1, 2, 3)), most, RLE)
			must(t, err)
			if !slices.Equal(rest, []byte{1, 2, 3}) {
				t.Fatalf("behind the levels are %v", rest)
			}
		} else {
			must(t, l.Reset(fenced(t, b), most))
		}
		for _, s := range drawSteps(t, len(values)) {
			least, at := rapid.IntRange(0, most).Draw(t, "least"), rapid.IntRange(0, 70).Draw(t, "at")
			want := 0
			for _, v := range values[:s.n] {
				if int(v) >= least {
					want++
				}
			}
			dst := dirty(t, at, s.n)
			if s.skip {
				dst = nil
			}
			set, err := l.Validity(dst, at, s.n, least)
			must(t, err)
			if set != want {
				t.Fatalf("%d of %v are %d or more, not %d", want, values[:s.n], least, set)
			}
			for i, v := range values[:s.n] {
				if dst != nil && bit(dst, at+i) != (int(v) >= least) {
					t.Fatalf("the bit of level %d, value %d, is wrong", v, i)
				}
			}
			untouched(t, dst, at, s.n)
			values = values[s.n:]
		}
	})
}

func TestLevelsAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 9).Draw(t, "most")
		values := slices.Repeat([]uint32{uint32(most)}, rapid.IntRange(1, 200).Draw(t, "n"))
		odd := rapid.IntRange(0, 2*len(values)).Draw(t, "odd")
		if odd < len(values) {
			values[odd] = rapid.Uint32Range(0, uint32(most)).Draw(t, "level")
		}
		b := hybrid(nil, values, bits.Len(uint(most)))
		if rapid.Bool().Draw(t, "packed") {
			b = packedRun(nil, values, bits.Len(uint(most)))
		}
		var l Levels
		must(t, l.Reset(fenced(t, b), most))
		for _, s := range drawSteps(t, len(values)) {
			all, err := l.All(s.n)
			must(t, err)
			if want := slices.Min(values[:s.n]) == uint32(most); all != want {
				t.Fatalf("%v of %v", all, values[:s.n])
			}
			if !all {
				_, err := l.Validity(nil, 0, s.n, 1) // it has stayed
				must(t, err)
			}
			values = values[s.n:]
		}
	})
}

func TestLevelsRegular(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size, lists := rapid.OneOf(rapid.IntRange(1, 9), rapid.IntRange(1, 200)).Draw(t, "size"), rapid.IntRange(1, 10).Draw(t, "lists")
		levels := make([]uint32, size*lists)
		for i := range levels {
			levels[i] = min(1, uint32(i%size))
		}
		good := slices.Clone(levels)
		if odd := rapid.IntRange(0, 2*len(levels)).Draw(t, "odd"); odd < len(levels) {
			levels[odd] ^= 1
		}
		b := hybrid(nil, levels, 1)
		if rapid.Bool().Draw(t, "packed") {
			b = packedRun(nil, levels, 1)
		}
		var l Levels
		must(t, l.Reset(fenced(t, b), 1))
		at := 0
		for _, s := range drawSteps(t, len(levels)) {
			regular, err := l.Regular(s.n, size, at%size)
			must(t, err)
			if want := slices.Equal(levels[at:at+s.n], good[at:at+s.n]); regular != want {
				t.Fatalf("%v of %d levels from %d on, lists of %d", regular, s.n, at, size)
			}
			if !regular {
				_, err := l.Validity(nil, 0, s.n, 1)
				must(t, err)
			}
			at += s.n
		}
	})
}

func TestLevelsMalformed(t *testing.T) {
	validity := func(b []byte, most, n int) error {
		var l Levels
		if err := l.Reset(fenced(t, b), most); err != nil {
			return err
		}
		_, err := l.Validity(nil, 0, n, 1)
		return err
	}
	prefixed := func(b []byte, e Encoding) error {
		var l Levels
		_, err := l.ResetPrefixed(b, 1, e)
		return err
	}
	for name, c := range map[string]struct{ err, class error }{
		"too high, repeated":      {validity([]byte{2, 3}, 2, 1), ErrMalformed},
		"too high, two bits":      {validity([]byte{3, 0xFF, 0xFF}, 2, 1), ErrMalformed},
		"too high, three bits":    {validity([]byte{3, 0xFF, 0xFF, 0xFF}, 5, 1), ErrMalformed},
		"not enough":              {validity([]byte{2, 1}, 1, 2), ErrMalformed},
		"too deep":                {validity(nil, maxLevel+1, 0), ErrUnsupported},
		"no levels":               {validity(nil, 0, 0), ErrUnsupported},
		"no length":               {prefixed([]byte{1, 0, 0}, RLE), ErrMalformed},
		"a length out of bounds":  {prefixed([]byte{2, 0, 0, 0, 1}, RLE), ErrMalformed},
		"a length of 4294967295":  {prefixed([]byte{255, 255, 255, 255, 1}, RLE), ErrMalformed},
		"the encoding before RLE": {prefixed(make([]byte, 9), BitPacked), ErrUnsupported},
	} {
		if !errors.Is(c.err, c.class) {
			t.Errorf("%s: the error is %v", name, c.err)
		}
	}
	if err := prefixed(nil, BitPacked); !strings.Contains(err.Error(), "BIT_PACKED") {
		t.Errorf("no name in %q", err)
	}
}

// lists are drawn rows of a column of lists, and their levels.
type lists struct {
	rep, def []uint32
	rows     []int // the pair that each begins with
}

func drawLists(t *rapid.T, s Shape) (l lists) {
	for range rapid.IntRange(1, 40).Draw(t, "rows") {
		l.rows = append(l.rows, len(l.rep))
		n := rapid.OneOf(rapid.IntRange(0, 5), rapid.IntRange(0, 200)).Draw(t, "elements")
		if n == 0 {
			l.rep, l.def = append(l.rep, 0), append(l.def, uint32(rapid.IntRange(0, s.Slot-1).Draw(t, "none")))
		}
		plain := rapid.Bool().Draw(t, "no nulls")
		for i := range n {
			d := s.Most
			if !plain {
				d = rapid.IntRange(s.Slot, s.Most).Draw(t, "level")
			}
			l.rep, l.def = append(l.rep, min(1, uint32(i))), append(l.def, uint32(d))
		}
	}
	return l
}

// want is what pairs from on are, to the next rows+1st row or the end.
func (l *lists) want(s Shape, from, rows, end int) (c Counts, offsets []int32, valid, items []bool) {
	for i := from; i < end; i++ {
		d := int(l.def[i])
		if l.rep[i] == 0 {
			if c.Rows == rows {
				break
			}
			c.Rows++
			offsets, valid = append(offsets, int32(c.Slots)), append(valid, d >= s.List)
			if d >= s.List {
				c.Lists++
			}
		}
		c.Levels++
		if d >= s.Slot {
			c.Slots++
			items = append(items, d >= s.Item)
			if d >= s.Item {
				c.Items++
			}
		}
		if d == s.Most {
			c.Stored++
		}
	}
	return c, offsets, valid, items
}

func TestListsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Shape{Slot: rapid.IntRange(1, 3).Draw(t, "slot")}
		s.List = rapid.IntRange(0, s.Slot).Draw(t, "list")
		s.Item = s.Slot + rapid.IntRange(0, 2).Draw(t, "item")
		s.Most = s.Item + rapid.IntRange(0, 2).Draw(t, "most")
		all := drawLists(t, s)
		var l Lists
		must(t, l.Reset(s))
		slots := int32(0)
		for at := 0; at < len(all.rep); {
			end := min(len(all.rep), at+rapid.IntRange(1, len(all.rep)).Draw(t, "page"))
			var rep, def Levels
			must(t, rep.Reset(fenced(t, hybrid(nil, all.rep[at:end], 1)), 1))
			must(t, def.Reset(fenced(t, hybrid(nil, all.def[at:end], bits.Len(uint(s.Most)))), s.Most))
			l.Page(rep, def, end-at)
			for l.Left() > 0 {
				rows := rapid.IntRange(0, len(all.rows)).Draw(t, "at a time")
				want, offsets, valid, items := all.want(s, at, rows, end)
				got := ListsInto[int32]{Offsets: numbers[int32](t, rows), Slots: slots}
				got.Lists = Bitmap{At: rapid.IntRange(0, 70).Draw(t, "at")}
				got.Lists.B = dirty(t, got.Lists.At, rows)
				got.Items = Bitmap{At: rapid.IntRange(0, 70).Draw(t, "at")}
				got.Items.B = dirty(t, got.Items.At, len(items))
				if rapid.IntRange(0, 5).Draw(t, "skip") == 0 {
					got = ListsInto[int32]{}
				}
				c, err := DecodeLists(&l, rows, got)
				must(t, err)
				if c != want {
					t.Fatalf("got %+v, want %+v", c, want)
				}
				for i, o := range offsets {
					if got.Offsets != nil && (got.Offsets[i] != o+slots || bit(got.Lists.B, got.Lists.At+i) != valid[i]) {
						t.Fatalf("list %d begins at %d, not %d, or its bit is not %v", i, got.Offsets[i], o+slots, valid[i])
					}
				}
				for i, set := range items {
					if got.Items.B != nil && bit(got.Items.B, got.Items.At+i) != set {
						t.Fatalf("the bit of slot %d is not %v", i, set)
					}
				}
				untouched(t, got.Lists.B, got.Lists.At, c.Rows)
				untouched(t, got.Items.B, got.Items.At, c.Slots)
				at, slots = at+c.Levels, slots+int32(c.Slots)
				if rows == 0 && c.Levels == 0 { // the next row has to be asked for
					c, err := DecodeLists(&l, 1, ListsInto[int32]{})
					must(t, err)
					at, slots = at+c.Levels, slots+int32(c.Slots)
				}
			}
		}
	})
}

func TestListsMalformed(t *testing.T) {
	s := Shape{Most: 3, List: 1, Slot: 2, Item: 3}
	decode := func(rep, def []uint32, n int, into ListsInto[int32]) error {
		var l Lists
		must(t, l.Reset(s))
		var r, d Levels
		must(t, r.Reset(hybrid(nil, rep, 1), 1))
		must(t, d.Reset(hybrid(nil, def, 2), 3))
		l.Page(r, d, n)
		_, err := DecodeLists(&l, 3, into)
		return err
	}
	var into ListsInto[int32]
	for name, c := range map[string]struct{ err, class error }{
		"no list to go on":        {decode([]uint32{1}, []uint32{3}, 1, into), ErrMalformed},
		"an empty list goes on":   {decode([]uint32{0, 1}, []uint32{1, 3}, 2, into), ErrMalformed},
		"nothing goes on":         {decode([]uint32{0, 1}, []uint32{3, 1}, 2, into), ErrMalformed},
		"levels that are missing": {decode([]uint32{0, 1, 1, 1, 1, 1, 1, 1}, slices.Repeat([]uint32{3}, 8), 9, into), ErrMalformed},
		"too many slots":          {decode([]uint32{0, 1}, []uint32{3, 3}, 2, ListsInto[int32]{Slots: 1<<31 - 2}), ErrOffsets},
		"no room for rows":        {decode([]uint32{0}, []uint32{3}, 1, ListsInto[int32]{Offsets: make([]int32, 2)}), errRoom},
		"no room for items":       {decode([]uint32{0}, []uint32{3}, 1, ListsInto[int32]{Items: Bitmap{B: make([]byte, 1), At: 8}}), errRoom},
	} {
		if !errors.Is(c.err, c.class) {
			t.Errorf("%s: the error is %v", name, c.err)
		}
	}
	var l Lists
	if err := l.Reset(Shape{Most: 1, List: 2, Slot: 1, Item: 1}); !errors.Is(err, ErrMalformed) {
		t.Errorf("a shape that makes no sense: %v", err)
	}
}

func TestBooleansRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, values := drawRuns(t, 1, 1)
		var d Booleans
		if rapid.Bool().Draw(t, "plain") {
			wide := make([]uint64, len(values))
			for i, v := range values {
				wide[i] = uint64(v)
			}
			d.Reset(fenced(t, packed(nil, wide, 1)))
		} else {
			must(t, d.ResetRLE(fenced(t, append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...))))
		}
		for _, s := range drawSteps(t, len(values)) {
			at := rapid.IntRange(0, 70).Draw(t, "at")
			if s.skip {
				must(t, d.Skip(s.n))
			} else {
				dst := dirty(t, at, s.n)
				must(t, d.Decode(dst, at, s.n))
				untouched(t, dst, at, s.n)
				for i, v := range values[:s.n] {
					if bit(dst, at+i) != (v == 1) {
						t.Fatalf("value %d is wrong", i)
					}
				}
			}
			values = values[s.n:]
		}
		if err := d.Skip(8); !errors.Is(err, ErrMalformed) {
			t.Fatalf("more values than there are: %v", err)
		}
	})
	var d Booleans
	for _, b := range [][]byte{nil, {1, 0, 0}, {2, 0, 0, 0, 1}} {
		if err := d.ResetRLE(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%v: %v", b, err)
		}
	}
}

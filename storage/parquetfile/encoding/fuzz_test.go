package encoding

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// Each target decodes any bytes twice, by the fast way all at once and by a plain
// one, in memory that ends where the bytes and the values end. Both must
// agree, and an error must have a class.

// agree fails the test unless both errors are nil, or both are not and have a class.
func agree(t *testing.T, fast, plain error) bool {
	t.Helper()
	for _, err := range []error{fast, plain} {
		if err != nil && !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrUnsupported) && !errors.Is(err, ErrOffsets) {
			t.Fatalf("an error without a class: %v", err)
		}
	}
	if (fast == nil) != (plain == nil) {
		t.Fatalf("%v one way, %v the other way", fast, plain)
	}
	return fast == nil
}

// oneByOne decodes n values of h, so that none is decoded with others.
func oneByOne(h Hybrid, n int) (values []uint32, err error) {
	for range n {
		value, _, err := h.Run(1)
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, nil
}

func FuzzHybrid(f *testing.F) {
	f.Add(hybrid(nil, random(100, 1000), 10), byte(10), uint16(100))
	f.Add(repeatedRun(packedRun(nil, random(24, 2), 1), 1, 77, 1), byte(1), uint16(101))
	f.Add([]byte{3, 0xD1}, byte(3), uint16(2))
	f.Add(packedRun(nil, random(40, 1<<30), 31), byte(31), uint16(40))
	f.Fuzz(func(t *testing.T, b []byte, width byte, n uint16) {
		var h Hybrid
		if err := h.Reset(fenced(t, b), int(width)); !agree(t, err, err) {
			return
		}
		skipped := h
		want, plainly := oneByOne(h, int(n))
		got := numbers[uint32](t, int(n))
		err := h.Decode(got)
		agree(t, skipped.Skip(int(n)), plainly)
		if agree(t, err, plainly) && !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

func FuzzLevels(f *testing.F) {
	f.Add(append([]byte{4, 0, 0, 0}, 200, 1, 1, 9), byte(1), uint16(100), byte(3), true)
	f.Add(hybrid(nil, random(200, 4), 2), byte(3), uint16(200), byte(0), false)
	f.Add(hybrid(nil, random(200, 7), 3), byte(6), uint16(200), byte(9), false)
	f.Add(packedRun(nil, []uint32{0, 1, 1, 0, 1, 1, 0, 1, 1}, 1), byte(1), uint16(9), byte(3), false)
	f.Fuzz(func(t *testing.T, b []byte, most byte, n uint16, x byte, prefixed bool) {
		var l Levels
		var err error
		if prefixed {
			_, err = l.ResetPrefixed(fenced(t, b), int(most), RLE)
		} else {
			err = l.Reset(fenced(t, b), int(most))
		}
		if !agree(t, err, err) {
			return
		}
		all, regular := l, l
		values, plainly := oneByOne(l.runs, int(n))
		if i := slices.IndexFunc(values, func(v uint32) bool { return v > uint32(most) }); i >= 0 {
			plainly = l.tooHigh(values[i])
		}
		least, at := int(x%most)+1, int(x)
		dst := dirty(t, at, int(n))
		_, err = l.Validity(dst, at, int(n), least)
		if !agree(t, err, plainly) {
			return
		}
		untouched(t, dst, at, int(n))
		full, fits := true, true
		size := int(x) + 1
		for i, v := range values {
			if bit(dst, at+i) != (int(v) >= least) {
				t.Fatalf("the bit of level %d, value %d, is wrong", v, i)
			}
			full = full && v == uint32(most)
			fits = fits && v == min(1, uint32(i%size))
		}
		if got, err := all.All(int(n)); err != nil || got != full {
			t.Fatalf("all: %v, %v", got, err)
		}
		if got, err := regular.Regular(int(n), size, 0); (err == nil) != (most == 1) || got != (fits && most == 1) {
			t.Fatalf("regular: %v, %v", got, err)
		}
	})
}

func FuzzLists(f *testing.F) {
	add := func(rep, def []uint32) {
		f.Add(hybrid(nil, rep, 1), hybrid(nil, def, 2), uint16(len(rep)), uint16(3), byte(5))
	}
	add([]uint32{0, 1, 1, 0, 0, 1}, []uint32{3, 2, 3, 0, 3, 3})
	add(append([]uint32{0}, slices.Repeat([]uint32{1}, 200)...), slices.Repeat([]uint32{3}, 201))
	f.Fuzz(func(t *testing.T, reps, defs []byte, n, rows uint16, at byte) {
		s := Shape{Most: 3, List: 1, Slot: 2, Item: 3}
		var rep, def Levels
		must(t, rep.Reset(fenced(t, reps), 1))
		must(t, def.Reset(fenced(t, defs), 3))
		var l Lists
		must(t, l.Reset(s))
		l.Page(rep, def, int(n))
		into := ListsInto[int32]{Offsets: numbers[int32](t, int(rows)), Lists: Bitmap{At: int(at)}, Items: Bitmap{At: int(at)}}
		into.Lists.B, into.Items.B = dirty(t, int(at), int(rows)), dirty(t, int(at), int(n))
		c, err := DecodeLists(&l, int(rows), into)
		if !agree(t, err, err) {
			return
		}
		var model lists
		if model.rep, err = oneByOne(rep.runs, c.Levels); err != nil {
			t.Fatal(err)
		}
		if model.def, err = oneByOne(def.runs, c.Levels); err != nil {
			t.Fatal(err)
		}
		want, offsets, valid, items := model.want(s, 0, int(rows), c.Levels)
		if c != want || !slices.Equal(into.Offsets[:c.Rows], offsets) {
			t.Fatalf("got %+v, %v, want %+v, %v", c, into.Offsets[:c.Rows], want, offsets)
		}
		for i := range c.Rows {
			if bit(into.Lists.B, int(at)+i) != valid[i] {
				t.Fatalf("the bit of list %d is wrong", i)
			}
		}
		for i := range c.Slots {
			if bit(into.Items.B, int(at)+i) != items[i] {
				t.Fatalf("the bit of slot %d is wrong", i)
			}
		}
		untouched(t, into.Lists.B, int(at), c.Rows)
		untouched(t, into.Items.B, int(at), c.Slots)
	})
}

func FuzzBooleans(f *testing.F) {
	f.Add(append([]byte{2, 0, 0, 0}, 200, 1), uint16(100), byte(3), true)
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, uint16(77), byte(9), false)
	f.Fuzz(func(t *testing.T, b []byte, n uint16, at byte, rle bool) {
		var d Booleans
		d.Reset(fenced(t, b))
		if rle {
			if err := d.ResetRLE(fenced(t, b)); !agree(t, err, err) {
				return
			}
		}
		single := d
		dst := dirty(t, int(at), int(n))
		err := d.Decode(dst, int(at), int(n))
		var plainly error
		one := make([]byte, 1)
		for i := 0; i < int(n) && plainly == nil; i++ {
			if plainly = single.Decode(one, i%8, 1); err == nil && plainly == nil && bit(one, i%8) != bit(dst, int(at)+i) {
				t.Fatalf("value %d is wrong", i)
			}
		}
		if agree(t, err, plainly) {
			untouched(t, dst, int(at), int(n))
		}
	})
}

func fuzzDelta[T int32 | int64](t *testing.T, b []byte, step int) {
	var d Delta[T]
	if err := d.Reset(fenced(t, b)); !agree(t, err, err) {
		return
	}
	n := min(d.Len(), 1<<11)
	behind := d
	steps := d
	got, want := numbers[T](t, n), numbers[T](t, n)
	err := d.Decode(got)
	var plainly error
	for i := 0; i < n && plainly == nil; i += step {
		plainly = steps.Decode(want[i:min(i+step, n)])
	}
	if agree(t, err, plainly) && !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	if rest, bad := behind.Rest(); err == nil && n == behind.Len() {
		if bad != nil || !bytes.HasSuffix(b, rest) {
			t.Fatalf("behind the values: %d bytes, %v", len(rest), bad)
		}
	}
}

func FuzzDelta(f *testing.F) {
	f.Add(delta(nil, []int64{7, 5, 3, 1, 2, 3, 4, 5}, 128, 4), byte(3), true)
	f.Add(delta(nil, []int32{1 << 30, -1 << 30, 0, 9}, 256, 8), byte(1), false)
	f.Add(delta(nil, slices.Repeat([]int64{1, 1 << 40, -3, 0}, 200), 128, 4), byte(40), true)
	f.Fuzz(func(t *testing.T, b []byte, step byte, wide bool) {
		if wide {
			fuzzDelta[int64](t, b, int(step)+1)
		} else {
			fuzzDelta[int32](t, b, int(step)+1)
		}
	})
}

func FuzzSplit(f *testing.F) {
	f.Add(bytes.Repeat([]byte{1, 2, 3, 4}, 40), byte(4), byte(3))
	f.Add(bytes.Repeat([]byte{1, 2, 3, 4}, 80), byte(8), byte(0))
	f.Fuzz(func(t *testing.T, b []byte, width, skip byte) {
		var s Split
		if err := s.Reset(fenced(t, b), int(width)); !agree(t, err, err) {
			return
		}
		n := len(b) / int(width)
		if err := s.Skip(int(skip)); !agree(t, err, err) {
			return
		}
		dst := room(t, (n-int(skip))*int(width))
		must(t, s.Decode(dst))
		if want := split(nil, dst, int(width)); skip == 0 && !bytes.Equal(want, b) {
			t.Fatalf("%v does not split into %v", dst, b)
		}
	})
}

func FuzzIndexed(f *testing.F) {
	f.Add(hybrid([]byte{3}, random(100, 8), 3), bytes.Repeat([]byte{1, 2, 3, 4}, 16), byte(8), uint16(100))
	f.Add([]byte{0}, []byte{1, 2, 3, 4}, byte(4), uint16(20))
	f.Fuzz(func(t *testing.T, b, dict []byte, width byte, n uint16) {
		var h Hybrid
		if err := h.ResetIndices(fenced(t, b)); width == 0 || int(n)*int(width) > guarded/2 || !agree(t, err, err) {
			return
		}
		indices, plainly := oneByOne(h, int(n))
		var want []byte
		for _, x := range indices {
			if int(x) >= len(dict)/int(width) {
				plainly = noEntry(x, len(dict)/int(width))
				break
			}
			want = append(want, dict[int(x)*int(width):][:width]...)
		}
		got := room(t, int(n)*int(width))
		if agree(t, DecodeIndexed(&h, got, fenced(t, dict), int(width)), plainly) && !bytes.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

// decodeBytes decodes n values of d at once, and those of again one by one, if they are not too long together.
func decodeBytes(t *testing.T, d, again byteDecoder[int32], n int) {
	size, err := d.Measure(n)
	if err == nil && size > guarded/2 {
		return
	}
	offsets, data := numbers[int32](t, n+1), room(t, int(size))
	offsets[0] = 0
	if err == nil {
		must(t, d.Decode(offsets, data))
	}
	at := 0
	var plainly error
	for i := range n {
		var one int64
		if one, plainly = again.Measure(1); plainly != nil {
			break
		}
		ends, value := []int32{0, 0}, room(t, int(min(one, guarded/2)))
		if i%3 == 2 {
			plainly = again.Skip(1)
		} else {
			plainly = again.Decode(ends, value)
		}
		if plainly != nil {
			break
		}
		if err == nil && (int(offsets[i]) != at || i%3 < 2 && !bytes.Equal(value, data[at:at+int(one)])) {
			t.Fatalf("value %d at %d: %q, not %q", i, at, value, data[at:])
		}
		at += int(one)
	}
	if plainly == errRoom {
		return // one value that is too long here, behind which is another error
	}
	if agree(t, err, plainly) && at != int(size) {
		t.Fatalf("%d bytes, not %d", size, at)
	}
}

var some = [][]byte{[]byte("axis"), []byte("axle"), nil, []byte("babble"), []byte("babyhood"), bytes.Repeat([]byte("long"), 20)}

func FuzzBytes(f *testing.F) {
	f.Add(plain(nil, some), byte(6), byte(3))
	f.Fuzz(func(t *testing.T, b []byte, n, cut byte) {
		var d, again, cutUpOnce Bytes[int32]
		d.Reset(fenced(t, b))
		again.Reset(fenced(t, b))
		parts := cutUp(t, b, []byte{cut, cut / 3})
		cutUpOnce.Reset(parts[0], parts[1:]...)
		sizes := again
		size, err := sizes.Measure(int(n))
		if cut, otherwise := cutUpOnce.Measure(int(n)); cut != size || fmt.Sprint(otherwise) != fmt.Sprint(err) {
			t.Fatalf("%d bytes, %v in pieces, but %d, %v", cut, otherwise, size, err)
		}
		pieces := cutUpOnce
		decodeBytes(t, &d, &again, int(n))
		again.Reset(b)
		decodeBytes(t, &pieces, &again, int(n))
	})
}

func FuzzDictionary(f *testing.F) {
	f.Add(plain(nil, some), uint16(6), hybrid(nil, random(40, 6), 3), byte(3), byte(40), byte(2))
	f.Fuzz(func(t *testing.T, b []byte, entries uint16, runs []byte, width, n, cut byte) {
		var dict, cutUpOnce Dictionary
		err := dict.Reset(fenced(t, b), int(entries))
		if parts := cutUp(t, b, []byte{cut, cut / 3}); len(parts) > 1 {
			if !agree(t, cutUpOnce.Reset(parts[0], int(entries), parts[1:]...), err) {
				return
			}
		} else if !agree(t, err, err) {
			return
		}
		d := indexed[int32]{dict: &dict}
		if err := d.runs.Reset(fenced(t, runs), int(width)); !agree(t, err, err) {
			return
		}
		pieces, again := indexed[int32]{dict: &cutUpOnce, runs: d.runs}, d
		decodeBytes(t, &d, &again, int(n))
		if cutUpOnce.Len() > 0 {
			again.runs = pieces.runs
			decodeBytes(t, &pieces, &again, int(n))
		}
	})
}

func FuzzLengthBytes(f *testing.F) {
	f.Add(lengthed(nil, some), byte(6))
	f.Fuzz(func(t *testing.T, b []byte, n byte) {
		var d, again LengthBytes[int32]
		if err := d.Reset(fenced(t, b)); !agree(t, err, again.Reset(fenced(t, b))) {
			return
		}
		decodeBytes(t, &d, &again, int(n))
	})
}

func FuzzFrontBytes(f *testing.F) {
	f.Add(fronted(nil, some), byte(6), byte(4))
	f.Add(fronted(nil, [][]byte{[]byte("four"), []byte("fool"), []byte("foot")}), byte(3), byte(4))
	f.Fuzz(func(t *testing.T, b []byte, n, width byte) {
		var d, again, fixed FrontBytes[int32]
		if err := d.Reset(fenced(t, b)); !agree(t, err, again.Reset(fenced(t, b))) {
			return
		}
		must(t, fixed.Reset(b))
		if width > 0 {
			err := fixed.DecodeFixed(room(t, int(n)*int(width)), int(width))
			agree(t, err, err)
		}
		decodeBytes(t, &d, &again, int(n))
	})
}

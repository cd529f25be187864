package encoding

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// byteDecoder is what the decoders of byte arrays have in common.
type byteDecoder[O Offset] interface {
	Measure(n int) (int64, error)
	Decode(offsets []O, data []byte) error
	Skip(n int) error
}

// indexed makes of a dictionary and its indices what the others are.
type indexed[O Offset] struct {
	dict *Dictionary
	runs Hybrid
}

func (x *indexed[O]) indices(n int) ([]uint32, error) {
	indices := make([]uint32, n)
	return indices, x.runs.Decode(indices)
}

func (x *indexed[O]) Measure(n int) (int64, error) {
	ahead := *x
	indices, err := ahead.indices(n)
	if err != nil {
		return 0, err
	}
	return x.dict.Measure(indices)
}

func (x *indexed[O]) Decode(offsets []O, data []byte) error {
	indices, err := x.indices(len(offsets) - 1)
	if err != nil {
		return err
	}
	return GatherBytes(x.dict, indices, offsets, data)
}

func (x *indexed[O]) Skip(n int) error { return x.runs.Skip(n) }

func drawBytes(t *rapid.T) [][]byte {
	letters := rapid.SampledFrom([]byte("ab"))
	one := rapid.OneOf(rapid.SliceOfN(letters, 0, 20), rapid.SliceOfN(letters, 25, 40), rapid.SliceOfN(rapid.Byte(), 0, 400))
	return rapid.SliceOfN(one, 1, 300).Draw(t, "values")
}

// byteDecoders are decoders of values in each encoding.
func byteDecoders[O Offset](t *rapid.T, values [][]byte) []byteDecoder[O] {
	distinct := map[string]uint32{}
	var entries [][]byte
	var indices []uint32
	for _, v := range values {
		if _, ok := distinct[string(v)]; !ok {
			distinct[string(v)] = uint32(len(entries))
			entries = append(entries, v)
		}
		indices = append(indices, distinct[string(v)])
	}
	var p, cut Bytes[O]
	var l LengthBytes[O]
	var f FrontBytes[O]
	x, y := indexed[O]{dict: new(Dictionary)}, indexed[O]{dict: new(Dictionary)}
	p.Reset(fenced(t, plain(nil, values)))
	cuts := rapid.SliceOfN(rapid.ByteRange(0, 60), 1, 9).Draw(t, "cuts")
	parts := cutUp(t, plain(nil, values), cuts)
	cut.Reset(parts[0], parts[1:]...)
	must(t, l.Reset(fenced(t, lengthed(nil, values))))
	must(t, f.Reset(fenced(t, fronted(nil, values))))
	must(t, x.dict.Reset(fenced(t, plain(nil, entries)), len(entries)))
	parts = cutUp(t, plain(nil, entries), cuts)
	must(t, y.dict.Reset(parts[0], len(entries), parts[1:]...))
	for _, d := range []*indexed[O]{&x, &y} {
		for i, e := range entries {
			if d.dict.Len() != len(entries) || !bytes.Equal(d.dict.Entry(i), e) {
				t.Fatalf("entry %d of %d is %q, not %q", i, d.dict.Len(), d.dict.Entry(i), e)
			}
		}
		must(t, d.runs.Reset(fenced(t, hybrid(nil, indices, 9)), 9))
	}
	return []byteDecoder[O]{&p, &cut, &l, &f, &x, &y}
}

// cutUp cuts b into pieces of as many bytes as each of cuts says, over and over, and then more and more. Some have none.
func cutUp(t world, b, cuts []byte) (pieces [][]byte) {
	pieces = [][]byte{nil}
	for i := 0; len(b) > 0; i++ {
		n := min(len(b), int(cuts[i%len(cuts)])+i*i/50)
		pieces = append(pieces, fenced(t, b[:n]))
		b = b[n:]
	}
	return pieces
}

func testBytes[O Offset](t *rapid.T) {
	values := drawBytes(t)
	steps := drawSteps(t, len(values))
	for _, d := range byteDecoders[O](t, values) {
		at := 0
		for _, s := range steps {
			some := values[at : at+s.n]
			at += s.n
			want := slices.Concat(some...)
			size, err := d.Measure(s.n)
			must(t, err)
			if size != int64(len(want)) {
				t.Fatalf("%T: %d bytes, not %d", d, size, len(want))
			}
			if s.skip {
				must(t, d.Skip(s.n))
				continue
			}
			before := rapid.IntRange(0, 40).Draw(t, "before")
			offsets, data := numbers[O](t, s.n+1), room(t, before+len(want))
			offsets[0] = O(before)
			if len(want) > 0 {
				d := clone(d)
				if err := d.Decode(offsets, data[:len(data)-1]); !errors.Is(err, errRoom) {
					t.Fatalf("%T: one byte too little: %v", d, err)
				}
			}
			must(t, d.Decode(offsets, data))
			if !bytes.Equal(data[before:], want) {
				t.Fatalf("%T: %q, not %q", d, data[before:], want)
			}
			end := before
			for i, v := range some {
				if end += len(v); int(offsets[i+1]) != end {
					t.Fatalf("%T: value %d ends at %d, not %d", d, i, offsets[i+1], end)
				}
			}
		}
		if err := d.Skip(600); !errors.Is(err, ErrMalformed) {
			t.Fatalf("%T: more values than there are: %v", d, err)
		}
	}
}

// clone is a copy, which goes its own way.
func clone[O Offset](d byteDecoder[O]) byteDecoder[O] {
	switch d := d.(type) {
	case *Bytes[O]:
		c := *d
		return &c
	case *LengthBytes[O]:
		c := *d
		return &c
	case *FrontBytes[O]:
		c := *d
		c.last = slices.Clone(c.last)
		return &c
	case *indexed[O]:
		c := *d
		return &c
	}
	panic("a decoder that is not known")
}

func TestBytesRoundTrip(t *testing.T) {
	t.Run("int32", rapid.MakeCheck(testBytes[int32]))
	t.Run("int64", rapid.MakeCheck(testBytes[int64]))
}

// Offsets are never wrapped: what they cannot count is an error of its own.
func TestBytesOffsets(t *testing.T) {
	values := [][]byte{[]byte("one"), []byte("two and a half")}
	rapid.Check(t, func(t *rapid.T) {
		for _, d := range byteDecoders[int32](t, values) {
			offsets := []int32{math.MaxInt32 - 10, 0, 0}
			if x, ok := d.(*indexed[int32]); ok { // it and PLAIN see only that there is no room
				d = &indexed[int32]{x.dict, x.runs}
			}
			if err := d.Decode(offsets, make([]byte, 100)); !errors.Is(err, ErrOffsets) && !errors.Is(err, errRoom) {
				t.Fatalf("%T: %v", d, err)
			}
		}
	})
	if err := fits(int32(math.MaxInt32-10), 11, nil); !errors.Is(err, ErrOffsets) {
		t.Errorf("one byte too many: %v", err)
	}
	if err := fits(int64(math.MaxInt32-10), 11, nil); !errors.Is(err, errRoom) {
		t.Errorf("one byte more than 32 bits count, with 64: %v", err)
	}
}

func TestBytesMalformed(t *testing.T) {
	lengths := func(values ...int32) []byte { return delta(nil, values, 128, 4) }
	var p Bytes[int32]
	var dict Dictionary
	var l LengthBytes[int32]
	var f FrontBytes[int32]
	measurePlain := func(b []byte, n int) error {
		p.Reset(fenced(t, b))
		_, err := p.Measure(n)
		if again := p.Decode(make([]int32, n+1), make([]byte, 100)); (err == nil) != (again == nil) {
			t.Errorf("%v when measuring, %v when decoding", err, again)
		}
		return err
	}
	measureLengths := func(b []byte, n int) error {
		if err := l.Reset(fenced(t, b)); err != nil {
			return err
		}
		_, err := l.Measure(n)
		return err
	}
	measureFront := func(b []byte, n int) error {
		if err := f.Reset(fenced(t, b)); err != nil {
			return err
		}
		_, err := f.Measure(n)
		return err
	}
	negative := binary.LittleEndian.AppendUint32(nil, math.MaxUint32)
	for name, err := range map[string]error{
		"no length":                     measurePlain([]byte{1, 0, 0}, 1),
		"a length and no bytes":         measurePlain([]byte{1, 0, 0, 0}, 1),
		"a length of 4294967295":        measurePlain(append(negative, make([]byte, 60)...), 1),
		"no second value":               measurePlain([]byte{1, 0, 0, 0, 1}, 2),
		"a dictionary of -1 entries":    dict.Reset(nil, -1),
		"a dictionary that is cut off":  dict.Reset(plain(nil, [][]byte{{1, 2, 3, 4, 5}})[:8], 1),
		"a dictionary of many entries":  dict.Reset(make([]byte, 11), 3),
		"entries without their lengths": dict.Reset([]byte{4, 0, 0, 0, 1, 2, 3, 4, 5}, 2),
		"no lengths":                    measureLengths(nil, 1),
		"lengths cut off":               measureLengths(lengths(1, 2, 5)[:8], 1),
		"a negative length":             measureLengths(append(lengths(-1, 4), 1, 2, 3, 4), 2),
		"lengths and no bytes":          measureLengths(append(lengths(3, 4), 1, 2, 3, 4), 2),
		"more than there are":           measureLengths(append(lengths(1), 1), 2),
		"no common lengths":             measureFront(nil, 1),
		"no other lengths":              measureFront(lengths(0, 0), 1),
		"common with what is not there": measureFront(slices.Concat(lengths(1), lengths(1), []byte("a")), 1),
		"more common than there is":     measureFront(slices.Concat(lengths(0, 3), lengths(2, 2), []byte("aabb")), 2),
		"negative common bytes":         measureFront(slices.Concat(lengths(0, -1), lengths(2, 2), []byte("aabb")), 2),
		"negative other bytes":          measureFront(slices.Concat(lengths(0, 1), lengths(2, -1), []byte("aabb")), 2),
		"not so many of both":           measureFront(slices.Concat(lengths(0, 0), lengths(2), []byte("aa")), 1),
		"other bytes that are missing":  measureFront(slices.Concat(lengths(0, 0), lengths(2, 2), []byte("aab")), 2),
		"more fronts than there are":    measureFront(slices.Concat(lengths(0), lengths(2), []byte("aa")), 2),
	} {
		if !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}

func TestFrontBytesFixed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.IntRange(1, 20).Draw(t, "width")
		letters := rapid.SampledFrom([]byte("ab"))
		values := rapid.SliceOfN(rapid.SliceOfN(letters, width, width), 1, 300).Draw(t, "values")
		var f FrontBytes[int32]
		must(t, f.Reset(fenced(t, fronted(nil, values))))
		for _, s := range drawSteps(t, len(values)) {
			if s.skip {
				must(t, f.Skip(s.n))
			} else {
				dst := room(t, s.n*width)
				must(t, f.DecodeFixed(dst, width))
				if want := slices.Concat(values[:s.n]...); !bytes.Equal(dst, want) {
					t.Fatalf("%q, not %q", dst, want)
				}
			}
			values = values[s.n:]
		}
	})
	var f FrontBytes[int32]
	must(t, f.Reset(fronted(nil, [][]byte{[]byte("four"), []byte("three")})))
	if err := f.DecodeFixed(make([]byte, 8), 4); !errors.Is(err, ErrMalformed) {
		t.Errorf("values of other widths: %v", err)
	}
}

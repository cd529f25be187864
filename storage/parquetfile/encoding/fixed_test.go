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

// decoder is what the decoders of values of a fixed width have in common.
type decoder interface {
	Decode(dst []byte) error
	Skip(n int) error
}

func TestFixedRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.SampledFrom([]int{1, 2, 3, 4, 7, 8, 12, 16, 33}).Draw(t, "width")
		n := rapid.IntRange(0, 200).Draw(t, "n")
		values := rapid.SliceOfN(rapid.Byte(), n*width, n*width).Draw(t, "values")
		var f Fixed
		var s Split
		must(t, f.Reset(fenced(t, values), width))
		must(t, s.Reset(fenced(t, split(nil, values, width)), width))
		at := 0
		for _, step := range drawSteps(t, n) {
			for _, d := range []decoder{&f, &s} {
				if step.skip {
					must(t, d.Skip(step.n))
					continue
				}
				dst := room(t, step.n*width)
				must(t, d.Decode(dst))
				if !bytes.Equal(dst, values[at*width:][:len(dst)]) {
					t.Fatalf("%T: %v from %d on, not %v", d, dst, at, values[at*width:][:len(dst)])
				}
			}
			at += step.n
		}
		for _, d := range []decoder{&f, &s} {
			if !errors.Is(d.Skip(1), ErrMalformed) || !errors.Is(d.Decode(make([]byte, width)), ErrMalformed) {
				t.Fatalf("%T has more values than there are", d)
			}
		}
	})
	var f Fixed
	var s Split
	if !errors.Is(f.Reset(nil, 0), ErrMalformed) || !errors.Is(s.Reset(nil, 0), ErrMalformed) || !errors.Is(s.Reset(make([]byte, 7), 4), ErrMalformed) {
		t.Error("widths that make no sense are taken")
	}
}

func TestDictionaryFixed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.SampledFrom([]int{1, 4, 8, 12, 16, 33}).Draw(t, "width")
		bits := rapid.IntRange(0, 12).Draw(t, "bits")
		entries := rapid.IntRange(1, 1<<bits).Draw(t, "entries")
		dict := make([]byte, entries*width)
		for i := range dict {
			dict[i] = byte(i*7 + i>>8)
		}
		b, indices := drawRuns(t, bits, uint32(entries-1))
		var h Hybrid
		must(t, h.ResetIndices(fenced(t, append([]byte{byte(bits)}, b...))))
		for _, s := range drawSteps(t, len(indices)) {
			if s.skip {
				must(t, h.Skip(s.n))
			} else {
				got, again := room(t, s.n*width), room(t, s.n*width)
				must(t, DecodeIndexed(&h, got, fenced(t, dict), width))
				must(t, Gather(again, fenced(t, dict), width, indices[:s.n]))
				for i, x := range indices[:s.n] {
					if want := dict[int(x)*width:][:width]; !bytes.Equal(got[i*width:][:width], want) || !bytes.Equal(again[i*width:][:width], want) {
						t.Fatalf("value %d is not entry %d", i, x)
					}
				}
			}
			indices = indices[s.n:]
		}
	})
}

func TestDictionaryBounds(t *testing.T) {
	for _, width := range []int{1, 4, 8, 12, 16, 33} {
		dict := make([]byte, 5*width+width/2) // half an entry is none
		for _, index := range []uint32{5, 6, 1 << 31, math.MaxUint32} {
			if err := Gather(make([]byte, 2*width), dict, width, []uint32{4, index}); !errors.Is(err, ErrMalformed) {
				t.Errorf("entry %d of 5: %v", index, err)
			}
			for _, b := range [][]byte{repeatedRun(nil, index, 2, 32), packedRun(nil, []uint32{4, index}, 32)} {
				var h Hybrid
				must(t, h.Reset(b, 32))
				if err := DecodeIndexed(&h, make([]byte, 2*width), dict, width); !errors.Is(err, ErrMalformed) {
					t.Errorf("entry %d of 5: %v", index, err)
				}
			}
		}
		var h Hybrid
		must(t, h.ResetIndices([]byte{0}))
		if err := DecodeIndexed(&h, make([]byte, width), nil, width); !errors.Is(err, ErrMalformed) {
			t.Errorf("an entry of an empty dictionary: %v", err)
		}
	}
}

// TestWideJoin compares the kernels with the plain loop.
func TestWideJoin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.SampledFrom([]int{2, 4, 8}).Draw(t, "width")
		n := rapid.IntRange(1, 100).Draw(t, "n")
		stride := n + rapid.IntRange(0, 20).Draw(t, "more")
		src := fenced(t, rapid.SliceOfN(rapid.Byte(), (width-1)*stride+n, (width-1)*stride+n).Draw(t, "bytes"))
		got, want := room(t, n*width), make([]byte, n*width)
		done := wideJoin(got, src, stride, width)
		join(want, src, stride, width)
		if done > n || !bytes.Equal(got[:done*width], want[:done*width]) {
			t.Fatalf("%v in %d values, want %v", got, done, want)
		}
	})
}

func testDelta[T int32 | int64](t *rapid.T) {
	bits := rapid.IntRange(1, 64).Draw(t, "bits")
	shift := 64 - bits
	numbers64 := rapid.Map(rapid.Int64(), func(x int64) T { return T(x >> shift) })
	var values []T
	for range rapid.IntRange(0, 4).Draw(t, "pieces") {
		if rapid.Bool().Draw(t, "even") { // no bits
			first, by := numbers64.Draw(t, "first"), T(rapid.IntRange(-3, 3).Draw(t, "by"))
			for i := range rapid.IntRange(1, 300).Draw(t, "n") {
				values = append(values, first+T(i)*by)
			}
		} else {
			values = append(values, rapid.SliceOfN(numbers64, 1, 100).Draw(t, "some")...)
		}
	}
	parts := rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "parts")
	size := max(128, 32*parts) * rapid.IntRange(1, 2).Draw(t, "times")
	b := append(delta(nil, values, size, parts), 1, 2, 3)
	var d Delta[T]
	must(t, d.Reset(fenced(t, b)))
	for _, s := range drawSteps(t, len(values)) {
		if d.Len() != len(values) {
			t.Fatalf("%d values are left, not %d", d.Len(), len(values))
		}
		if rest, err := d.Rest(); err != nil || !bytes.Equal(rest, []byte{1, 2, 3}) {
			t.Fatalf("behind the values are %v, %v", rest, err)
		}
		if s.skip {
			must(t, d.Skip(s.n))
		} else {
			got := numbers[T](t, s.n)
			must(t, d.Decode(got))
			if !slices.Equal(got, values[:s.n]) {
				t.Fatalf("got %v, want %v", got, values[:s.n])
			}
		}
		values = values[s.n:]
	}
	if rest, err := d.Rest(); err != nil || !bytes.Equal(rest, []byte{1, 2, 3}) {
		t.Fatalf("behind the values are %v, %v", rest, err)
	}
	if err := d.Skip(1); !errors.Is(err, ErrMalformed) {
		t.Fatalf("more values than there are: %v", err)
	}
}

func TestDeltaRoundTrip(t *testing.T) {
	t.Run("int32", rapid.MakeCheck(testDelta[int32]))
	t.Run("int64", rapid.MakeCheck(testDelta[int64]))
}

// deltaPage is a head and one block.
func deltaPage(size, parts, total uint64, first, low int64, rest ...byte) []byte {
	var b []byte
	for _, x := range []uint64{size, parts, total} {
		b = binary.AppendUvarint(b, x)
	}
	return append(binary.AppendVarint(binary.AppendVarint(b, first), low), rest...)
}

func TestDeltaMalformed(t *testing.T) {
	for name, b := range map[string][]byte{
		"nothing":                       nil,
		"blocks of nothing":             deltaPage(0, 4, 2, 0, 0, 0, 0, 0, 0),
		"blocks of 100":                 deltaPage(100, 1, 2, 0, 0, 0),
		"no parts":                      deltaPage(128, 0, 2, 0, 0),
		"parts of 16":                   deltaPage(128, 8, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
		"parts that do not divide":      deltaPage(128, 3, 2, 0, 0, 0, 0, 0),
		"blocks of 2^32":                deltaPage(1<<32, 1, 2, 0, 0, 0),
		"a number of 2^63":              deltaPage(128, 4, 1<<63, 0, 0, 0, 0, 0, 0),
		"a number without end":          append([]byte{0x80, 0x01, 4}, slices.Repeat([]byte{0x80}, 30)...),
		"a first value of 33 bits":      deltaPage(128, 4, 2, 1<<32, 0, 0, 0, 0, 0),
		"a least difference of 33 bits": deltaPage(128, 4, 2, 0, 1<<32, 0, 0, 0, 0),
		"no widths":                     deltaPage(128, 4, 2, 0, 0, 0, 0),
		"no block":                      deltaPage(128, 4, 2, 0, 0)[:5],
		"a width of 65":                 deltaPage(128, 4, 2, 0, 0, append([]byte{65, 0, 0, 0}, make([]byte, 300)...)...),
		"a width of 33 for int32":       deltaPage(128, 4, 2, 0, 0, append([]byte{33, 0, 0, 0}, make([]byte, 300)...)...),
		"no differences":                deltaPage(128, 4, 2, 0, 0, 8, 0, 0, 0),
		"not all differences":           deltaPage(128, 4, 4, 0, 0, 8, 0, 0, 0, 1, 2),
	} {
		var d Delta[int32]
		err := d.Reset(fenced(t, b))
		if err == nil {
			_, err = d.Rest()
			if again := d.Skip(d.Len()); (err == nil) != (again == nil) {
				t.Errorf("%s: %v when looking behind, %v when decoding", name, err, again)
			}
		}
		if !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}

// Writers may cut off the last part behind its last value.
func TestDeltaCutOff(t *testing.T) {
	var d Delta[int32]
	must(t, d.Reset(fenced(t, deltaPage(128, 4, 3, 5, 1, 8, 0, 0, 0, 1, 2))))
	got := make([]int32, 3)
	must(t, d.Decode(got))
	if !slices.Equal(got, []int32{5, 7, 10}) {
		t.Errorf("got %v", got)
	}
}

// The sums wrap around, as those of the writers do.
func TestDeltaWraps(t *testing.T) {
	values := []int64{math.MaxInt64, math.MinInt64, math.MaxInt64, 0, math.MinInt64, math.MinInt64, -1, 1}
	var d Delta[int64]
	must(t, d.Reset(delta(nil, values, 128, 4)))
	got := make([]int64, len(values))
	must(t, d.Decode(got))
	if !slices.Equal(got, values) {
		t.Errorf("got %v, want %v", got, values)
	}
}

func TestSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.SampledFrom([]int{1, 2, 4, 8, 12, 16, 24}).Draw(t, "width")
		n, at := rapid.IntRange(0, 300).Draw(t, "n"), rapid.IntRange(0, 70).Draw(t, "at")
		valid := rapid.SliceOfN(rapid.OneOf(rapid.Byte(), rapid.Just(byte(0xFF)), rapid.Just(byte(0))), (at+n+7)/8, (at+n+7)/8).Draw(t, "valid")
		buf, want := room(t, n*width), make([]byte, n*width)
		offsets, wantOffsets := numbers[int32](t, n+1), []int32{0}
		to := rapid.IntRange(0, 70).Draw(t, "to")
		values, wantBits := dirty(t, to, n), make([]bool, n)
		from := 0
		offsets[0] = 0
		for i := range n {
			if !bit(valid, at+i) {
				wantOffsets = append(wantOffsets, wantOffsets[i])
				continue
			}
			for k := range width {
				buf[from*width+k], want[i*width+k] = byte(i+k+1), byte(i+k+1)
			}
			wantBits[i] = i%3 == 0
			putWord(values, to+from, uint64(1-min(1, i%3)), 1)
			offsets[from+1] = offsets[from] + int32(i%5)
			wantOffsets = append(wantOffsets, wantOffsets[i]+int32(i%5))
			from++
		}
		Spread(buf, width, fenced(t, valid), at, n)
		if !bytes.Equal(buf, want) {
			t.Fatalf("values are %v, not %v", buf, want)
		}
		SpreadOffsets(offsets, fenced(t, valid), at, n)
		if !slices.Equal(offsets, wantOffsets) {
			t.Fatalf("offsets are %v, not %v", offsets, wantOffsets)
		}
		SpreadBits(values, to, fenced(t, valid), at, n)
		for i := range n {
			if bit(valid, at+i) && bit(values, to+i) != wantBits[i] {
				t.Fatalf("bit %d is not %v", i, wantBits[i])
			}
		}
		untouched(t, values, to, n)
	})
}

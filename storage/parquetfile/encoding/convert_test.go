package encoding

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/parquet"
	"pgregory.net/rapid"
)

// int96 is a timestamp as it is stored.
func int96(day uint32, nanos uint64) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, nanos), day)
}

func TestTimestamps(t *testing.T) {
	for name, c := range map[string]struct {
		b    []byte
		want int64
	}{
		"1970":              {int96(2440588, 0), 0},
		"a day and 5 ns on": {int96(2440589, 5), 86_400_000_000_005},
		"the last":          {int96(2440588+106751, 85_636_854_775_807), math.MaxInt64},
		"the first":         {int96(2440588-106752, 763_145_224_192), math.MinInt64},
	} {
		got := make([]int64, 1)
		if err := Timestamps(got, fenced(t, c.b)); err != nil || got[0] != c.want {
			t.Errorf("%s: %d, %v", name, got[0], err)
		}
	}
	for name, b := range map[string][]byte{
		"one after the last":   int96(2440588+106751, 85_636_854_775_808),
		"one before the first": int96(2440588-106752, 763_145_224_191),
		"a day after the last": int96(2440588+106752, 0),
		"year 11 million":      int96(math.MaxUint32, 0),
		"day 0":                int96(0, 0),
		"a day of 24 hours":    int96(2440588, nanosPerDay),
		"a negative time":      int96(2440588, math.MaxUint64),
	} {
		err := Timestamps(make([]int64, 2), append(int96(2440588, 0), b...))
		if !errors.Is(err, ErrRange) || !bytes.Contains([]byte(err.Error()), []byte("value 1 ")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTimestampsAlike compares them with those that arrow-go makes.
func TestTimestampsAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		day := rapid.OneOf(rapid.Uint32(), rapid.Uint32Range(2440588-106760, 2440588-106740), rapid.Uint32Range(2440588+106740, 2440588+106760)).Draw(t, "day")
		nanos := rapid.OneOf(rapid.Uint64Range(0, nanosPerDay), rapid.Uint64()).Draw(t, "nanos")
		got := make([]int64, 1)
		err := Timestamps(got, int96(day, nanos))
		want, other := parquet.Int96(int96(day, nanos)).ToTimestamp()
		if (err == nil) != (other == nil) || err == nil && got[0] != int64(want) {
			t.Fatalf("%d, %v, not %d, %v", got[0], err, want, other)
		}
	})
}

func TestNarrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := rapid.SampledFrom([]int{4, 8}).Draw(t, "from"), rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "to")
		values := rapid.SliceOfN(rapid.Int64(), 0, 50).Draw(t, "values")
		var src, want []byte
		for _, v := range values {
			b := binary.LittleEndian.AppendUint64(nil, uint64(v)) // the test is right on such machines only, as most are
			src, want = append(src, b[:from]...), append(want, b[:to]...)
		}
		src = fenced(t, src)
		got := room(t, len(want))
		Narrow(got, src, len(values))
		Narrow(src[:len(want)], src, len(values))
		if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 && (!bytes.Equal(got, want) || !bytes.Equal(src[:len(want)], want)) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
	dates := make([]int64, 2)
	Dates(dates, []int32{math.MinInt32, 3})
	if dates[0] != math.MinInt32*MillisPerDay || dates[1] != 3*MillisPerDay {
		t.Errorf("dates are %v", dates)
	}
}

// signed is the number that b, the highest byte first, says.
func signed(b []byte) *big.Int {
	x := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0]&0x80 != 0 {
		x.Sub(x, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return x
}

// stored is the number that b, the lowest word first, holds.
func stored(b []byte) *big.Int {
	c := slices.Clone(b)
	slices.Reverse(c)
	return signed(c)
}

func holds(x *big.Int, width int) bool {
	half := new(big.Int).Lsh(big.NewInt(1), uint(8*width-1))
	return x.Cmp(half) < 0 && x.Cmp(new(big.Int).Neg(half)) >= 0
}

func TestDecimals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.SampledFrom([]int{4, 8, 16, 32}).Draw(t, "width")
		from := rapid.IntRange(1, 40).Draw(t, "from")
		fill := rapid.SampledFrom([]byte{0, 0xFF}).Draw(t, "sign")
		n := rapid.IntRange(1, 9).Draw(t, "n")
		var src []byte
		var values []*big.Int
		fit := true
		for range n {
			v := bytes.Repeat([]byte{fill}, from)
			low := rapid.SliceOfN(rapid.Byte(), 0, from).Draw(t, "low")
			copy(v[from-len(low):], low)
			src, values = append(src, v...), append(values, signed(v))
			fit = fit && holds(signed(v), width)
		}
		got, again := room(t, n*width), room(t, n*width)
		offsets := make([]int32, n+1)
		for i := range offsets {
			offsets[i] = int32(i * from)
		}
		err := DecimalsOfFixed(got, width, fenced(t, src), from)
		other := DecimalsOfBytes(again, width, offsets, fenced(t, src))
		if !fit {
			if !errors.Is(err, ErrRange) || !errors.Is(other, ErrRange) {
				t.Fatalf("a number that is too large: %v, %v", err, other)
			}
			return
		}
		must(t, err)
		must(t, other)
		for i, v := range values {
			if one := got[i*width:][:width]; stored(one).Cmp(v) != 0 || !bytes.Equal(one, again[i*width:][:width]) {
				t.Fatalf("value %d is %v, not %v", i, stored(one), v)
			}
		}
	})
}

func testDecimalsOfInts[T int32 | int64](t *rapid.T) {
	width := rapid.SampledFrom([]int{4, 8, 16, 32}).Draw(t, "width")
	v := T(rapid.Int64().Draw(t, "v") >> rapid.IntRange(0, 63).Draw(t, "shift"))
	got := room(t, width)
	err := DecimalsOfInts(got, width, []T{v})
	if want := big.NewInt(int64(v)); !holds(want, width) {
		if !errors.Is(err, ErrRange) {
			t.Fatalf("%d in %d bytes: %v", v, width, err)
		}
	} else if err != nil || stored(got).Cmp(want) != 0 {
		t.Fatalf("%v, not %d; %v", stored(got), v, err)
	}
}

func TestDecimalsOfInts(t *testing.T) {
	t.Run("int32", rapid.MakeCheck(testDecimalsOfInts[int32]))
	t.Run("int64", rapid.MakeCheck(testDecimalsOfInts[int64]))
}

func TestDecimalOfNothing(t *testing.T) {
	got := bytes.Repeat([]byte{canary}, 32)
	must(t, DecimalsOfBytes(got, 16, []int64{0, 0, 1}, []byte{7}))
	if want := append(make([]byte, 16), append([]byte{7}, make([]byte, 15)...)...); !bytes.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if err := DecimalsOfFixed(nil, 16, nil, 0); !errors.Is(err, ErrMalformed) {
		t.Errorf("decimals of a fixed length of nothing: %v", err)
	}
}

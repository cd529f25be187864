package encoding

import (
	"errors"
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// world is what a test, a fuzz target and a property have in common.
type world interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// numbers are n numbers before fenced memory.
func numbers[T any](t world, n int) []T {
	t.Helper()
	var one T
	size := int(unsafe.Sizeof(one))
	b := room(t, n*size)
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// must fails the test if there is an error.
func must(t world, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// step is n values to decode, or to skip.
type step struct {
	n    int
	skip bool
}

func drawSteps(t *rapid.T, n int) (steps []step) {
	for n > 0 {
		k := min(n, rapid.IntRange(1, max(1, n)).Draw(t, "step"))
		steps = append(steps, step{k, rapid.IntRange(0, 3).Draw(t, "skip") == 0})
		n -= k
	}
	return steps
}

// drawRuns draws values below 2^width and the runs that hold them, of both kinds and any length.
func drawRuns(t *rapid.T, width int, most uint32) (b []byte, values []uint32) {
	for range rapid.IntRange(1, 6).Draw(t, "runs") {
		value := rapid.Uint32Range(0, most)
		if rapid.Bool().Draw(t, "packed") {
			some := rapid.SliceOfN(value, 1, 40).Draw(t, "values")
			for len(some)%8 != 0 {
				some = append(some, 0)
			}
			b, values = packedRun(b, some, width), append(values, some...)
		} else {
			n, v := rapid.IntRange(1, 300).Draw(t, "times"), value.Draw(t, "value")
			b, values = repeatedRun(b, v, n, width), append(values, slices.Repeat([]uint32{v}, n)...)
		}
	}
	return b, values
}

func TestHybridRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.IntRange(0, 32).Draw(t, "width")
		b, values := drawRuns(t, width, uint32(ones(width)))
		if rapid.Bool().Draw(t, "as writers do") {
			b = hybrid(nil, values, width)
		}
		var h Hybrid
		must(t, h.Reset(fenced(t, b), width))
		at := 0
		for _, s := range drawSteps(t, len(values)) {
			if s.skip {
				must(t, h.Skip(s.n))
			} else {
				got := numbers[uint32](t, s.n)
				must(t, h.Decode(got))
				if !slices.Equal(got, values[at:at+s.n]) {
					t.Fatalf("values from %d on are %v, not %v", at, got, values[at:at+s.n])
				}
			}
			at += s.n
		}
		if err := h.Skip(8); width > 0 && !errors.Is(err, ErrMalformed) {
			t.Fatalf("more values than there are: %v", err)
		}
	})
}

func TestHybridRun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.IntRange(0, 32).Draw(t, "width")
		b, values := drawRuns(t, width, min(2, uint32(ones(width))))
		var h Hybrid
		must(t, h.Reset(b, width))
		for len(values) > 0 {
			limit := rapid.IntRange(1, len(values)).Draw(t, "limit")
			value, n, err := h.Run(limit)
			must(t, err)
			if n < 1 || n > limit || slices.Max(values[:n]) != value || slices.Min(values[:n]) != value {
				t.Fatalf("%d times %d where %v come", n, value, values[:min(n, len(values))])
			}
			values = values[n:]
		}
	})
}

func TestHybridMalformed(t *testing.T) {
	for name, c := range map[string]struct {
		b     []byte
		width int
		n     int
	}{
		"no runs":                 {nil, 3, 1},
		"too wide":                {nil, 33, 0},
		"a length cut off":        {[]byte{0x80}, 3, 1},
		"a length without end":    {slices.Repeat([]byte{0x80}, 20), 3, 1},
		"a length of 33 bits":     {[]byte{0xFE, 0xFF, 0xFF, 0xFF, 0x1F, 1}, 3, 1},
		"a run of nothing":        {[]byte{0, 1}, 3, 1},
		"no groups":               {[]byte{1, 1}, 3, 1},
		"a run without its value": {[]byte{2}, 3, 1},
		"half a value":            {[]byte{2, 1}, 9, 1},
		"a value too wide":        {[]byte{2, 8}, 3, 1},
		"a packed run of nothing": {[]byte{3}, 3, 1},
		"a packed run cut off":    {[]byte{3, 0xFF}, 3, 3},
		"fewer values":            {[]byte{4, 1}, 3, 3},
	} {
		t.Run(name, func(t *testing.T) {
			var h Hybrid
			err := h.Reset(fenced(t, c.b), c.width)
			if err == nil {
				err = h.Decode(make([]uint32, c.n))
			}
			if !errors.Is(err, ErrMalformed) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// A last group that is cut off is read as far as it goes; of no bits there can be any number of values.
func TestHybridLenient(t *testing.T) {
	var h Hybrid
	must(t, h.Reset([]byte{3, 0xD1}, 3))
	got := make([]uint32, 2)
	must(t, h.Decode(got))
	if got[0] != 1 || got[1] != 2 {
		t.Errorf("got %v", got)
	}
	must(t, h.ResetIndices([]byte{0}))
	got = []uint32{1, 2, 3}
	must(t, h.Decode(got))
	if !slices.Equal(got, make([]uint32, 3)) {
		t.Errorf("got %v", got)
	}
	must(t, h.ResetIndices(nil))
	if err := h.Decode(got); !errors.Is(err, ErrMalformed) {
		t.Errorf("indices of an empty page: %v", err)
	}
}

// TestWideUnpack compares the kernels with the plain loops at every width, place and length.
func TestWideUnpack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.IntRange(1, 64).Draw(t, "width")
		at := rapid.IntRange(0, 70).Draw(t, "at")
		n := rapid.IntRange(0, 150).Draw(t, "n")
		b := fenced(t, rapid.SliceOfN(rapid.Byte(), (at+n*width+7)/8, (at+n*width+7)/8+rapid.IntRange(0, 40).Draw(t, "behind")).Draw(t, "bytes"))
		if width <= 32 {
			got, want := numbers[uint32](t, n), make([]uint32, n)
			unpack32(got, b, at, width)
			scalar32(want, b, at, width)
			if !slices.Equal(got, want) {
				t.Fatalf("got %v, want %v", got, want)
			}
			sumsAlike[int32](t, n, b, at, width)
		}
		sumsAlike[int64](t, n, b, at, width)
		slow := make([]uint64, n)
		scalar64(slow, b, at, width)
		for i, x := range slow {
			for bit := range width {
				place := at + i*width + bit
				if x>>bit&1 != uint64(b[place/8]>>(place%8)&1) {
					t.Fatalf("bit %d of value %d is wrong", bit, i)
				}
			}
		}
	})
}

func sumsAlike[T int32 | int64](t *rapid.T, n int, b []byte, at, width int) {
	low, first := T(rapid.Int64().Draw(t, "low")), T(rapid.Int64().Draw(t, "first"))
	got, want := numbers[T](t, n), make([]T, n)
	last := sums(got, b, at, width, low, first)
	if last != scalarSums(want, b, at, width, low, first) || !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

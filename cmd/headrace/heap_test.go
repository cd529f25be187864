package main

import (
	"math"
	"runtime/debug"
	"testing"
)

func TestHeapGrowsIntoItsShareAndNoFurther(t *testing.T) {
	const share = 64 << 20
	for _, test := range []struct {
		live int64
		want int
	}{
		{0, 400}, {1 << 20, 400}, {12 << 20, 400}, // a small heap stays well below its share
		{16 << 20, 300}, {20 << 20, 220}, {32 << 20, 100}, // up to the share
		{48 << 20, 100}, {1 << 40, 100}, // as Go does by itself
	} {
		if got := growth(share, test.live); got != test.want {
			t.Errorf("with %d bytes live the heap may grow by %d %%, want %d", test.live, got, test.want)
		}
	}
}

func TestHeapIsLimitedToItsShareAndWhatIsCharged(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	charged := limitHeap(64 << 20)
	for _, n := range []int64{0, 8 << 20} {
		charged(n)
		if got := debug.SetMemoryLimit(-1); got != 64<<20+n {
			t.Errorf("with %d bytes charged the limit is %d", n, got)
		}
	}
	t.Setenv("GOMEMLIMIT", "1GiB")
	debug.SetMemoryLimit(math.MaxInt64)
	limitHeap(64 << 20)(1)
	if got := debug.SetMemoryLimit(-1); got != math.MaxInt64 {
		t.Errorf("the environment was overruled: %d", got)
	}
}

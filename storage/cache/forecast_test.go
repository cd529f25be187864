package cache

import (
	"math"
	"math/rand/v2"
	"testing"
)

// foresee reads passes of n blocks, each in an order of its own or always the same, and returns the part that is there in the last ones.
func foresee(t *testing.T, policy string, n int, c float64, shuffle bool, size func(int) int64) float64 {
	t.Helper()
	f, err := NewForecast(policy, true, n, size)
	if err != nil {
		t.Fatal(err)
	}
	f.Give(int64(c * float64(f.Bytes())))
	r := rand.New(rand.NewPCG(3, 4))
	order := r.Perm(n)
	var read, hits int64
	for pass := range 8 {
		if shuffle {
			order = r.Perm(n)
		}
		for _, block := range order {
			bytes, hit := f.Read(block)
			if pass < 5 {
				continue
			}
			if read += bytes; hit {
				hits += bytes
			}
		}
	}
	return float64(hits) / float64(read)
}

// TestForecastsAreWhatTheFormulaeSay: of as many blocks as are followed, and of more.
func TestForecastsAreWhatTheFormulaeSay(t *testing.T) {
	even := func(int) int64 { return 1 << 22 }
	uneven := func(block int) int64 { return 1<<20 + int64(block%7)<<20 }
	for _, n := range []int{2000, 2*standIns + 3} {
		for _, c := range []float64{0, .1, .5, .9, 1} {
			for _, size := range []func(int) int64{even, uneven} {
				lru := 0.
				if c > 0 && c < 1 {
					lru = c + (1-c)*math.Log(1-c)
				} else if c == 1 {
					lru = 1
				}
				for _, p := range []struct {
					policy       string
					shuffle      bool
					want, within float64
				}{
					{Pinned, true, c, .001},
					{Pinned, false, c, .001},
					{Auto, true, c, .001},
					{LRU, true, lru, .015},
					{LRU, false, math.Floor(c), 0},
					{LFU, false, math.Floor(c), 0},
					{Adaptive, true, c, .17 * c},
					{Adaptive, false, c, .11 * c},
				} {
					if got := foresee(t, p.policy, n, c, p.shuffle, size); math.Abs(got-p.want) > p.within {
						t.Errorf("%d blocks, c = %.1f, %s, shuffled %v: %.4f, want %.4f", n, c, p.policy, p.shuffle, got, p.want)
					}
				}
			}
		}
	}
	if _, err := NewForecast("mru", true, 1, even); err == nil {
		t.Error("a policy that is not was taken")
	}
	if f, err := NewForecast(Auto, false, 0, even); err != nil || f.Policy() != Adaptive || f.Bytes() != 0 {
		t.Errorf("%v, %v", f, err)
	}
}

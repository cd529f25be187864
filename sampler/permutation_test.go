package sampler

import (
	"math"
	"math/bits"
	"testing"

	"pgregory.net/rapid"
)

func permutationOf(seed uint64, n int64) *Permutation {
	return newPermutation(newKey(seed, 0, []byte("test")), n)
}

// Every size takes every number once, at the sizes where such things break too: around powers of 2 and 4, squares, and
// where tables end.
func TestPermutationsAreBijections(t *testing.T) {
	sizes := []int64{1000}
	for _, k := range []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 20} {
		sizes = append(sizes, 1<<k-1, 1<<k, 1<<k+1)
	}
	for _, a := range []int64{257, 300, 511} {
		sizes = append(sizes, a*a-1, a*a, a*a+1, a*(a-1), a*(a-1)+1)
	}
	for _, n := range sizes {
		if n == 0 { // 2⁰−1
			continue
		}
		p := permutationOf(1, n)
		q := p.Inverse()
		all := make([]Ref, n)
		p.fill(0, all)
		seen := make([]bool, n)
		for i, r := range all {
			if r.Row < 0 || r.Row >= n || seen[r.Row] || p.At(int64(i)) != r.Row || q.At(r.Row) != int64(i) {
				t.Fatalf("%d items: %d goes to %d, At says %d, back to %d", n, i, r.Row, p.At(int64(i)), q.At(p.At(int64(i))))
			}
			seen[r.Row] = true
		}
	}
}

// At any size the inverse undoes, and runs of numbers are the same as one by one.
func TestPermutationsInvert(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(1, MaxRows).Draw(t, "n") >> rapid.IntRange(0, 39).Draw(t, "shift")
		n = max(n, 1)
		p := permutationOf(rapid.Uint64().Draw(t, "seed"), n)
		from := rapid.Int64Range(0, n-1).Draw(t, "i")
		dst := make([]Ref, min(n-from, rapid.Int64Range(0, 9).Draw(t, "count")))
		p.fill(from, dst)
		q := p.Inverse()
		for i, r := range dst {
			if at := from + int64(i); r.Row != p.At(at) || q.At(r.Row) != at || q.Inverse().At(at) != r.Row || r.Row >= n {
				t.Fatalf("%d of %d: %d, At %d, back %d", at, n, r.Row, p.At(at), q.At(r.Row))
			}
		}
	})
}

func TestRoot(t *testing.T) {
	for _, n := range []uint64{1, 2, 3, 4, 5, 65536, 65537, 66049, 66050, MaxRows - 1, MaxRows, 1<<62 + 1} {
		a := root(n)
		if hi, lo := bits.Mul64(a, a); hi == 0 && lo < n || (a-1)*(a-1) >= n {
			t.Errorf("root of %d: %d", n, a)
		}
	}
}

// A word that would favour some numbers is passed over. Word 0 is such a one for 3, as 3 does not divide 2⁶⁴.
func TestDrawsAreFair(t *testing.T) {
	start := ^uint64(gamma) + 1 // its first word is 0
	d := draws{start}
	if w := d.next(); w != 0 {
		t.Fatalf("first word %d", w)
	}
	second := draws{0}
	hi, _ := bits.Mul64(second.next(), 3)
	d = draws{start}
	if got := d.below(3); got != hi || d != second {
		t.Errorf("drew %d, want %d of the second word", got, hi)
	}
	d = draws{start}
	if got := d.below(4); got != 0 || d != (draws{0}) {
		t.Errorf("drew %d: no word favours one of 4", got)
	}
}

// chiSquare returns how far counts are from equal, in standard deviations of chi-square.
func chiSquare(counts []int, total int) float64 {
	want := float64(total) / float64(len(counts))
	var chi float64
	for _, c := range counts {
		chi += (float64(c) - want) * (float64(c) - want) / want
	}
	free := float64(len(counts) - 1)
	return (chi - free) / math.Sqrt(2*free)
}

// All orders of few items come equally often.
func TestFewItemsComeInEveryOrder(t *testing.T) {
	for n, orders := range map[int64]int{1: 1, 2: 2, 3: 6, 4: 24, 5: 120, 6: 720} {
		tries := max(200*orders, 20_000)
		counts := make([]int, orders)
		for seed := range uint64(tries) {
			p := permutationOf(seed, n)
			rank := 0
			for i := range n { // its place among all orders
				less := 0
				for j := i + 1; j < n; j++ {
					if p.At(j) < p.At(i) {
						less++
					}
				}
				rank = rank*int(n-i) + less
			}
			counts[rank]++
		}
		if z := chiSquare(counts, tries); n > 1 && math.Abs(z) > 4 {
			t.Errorf("%d items: chi-square is %.1f deviations off", n, z)
		}
	}
}

// Items that stay where they are come as often as at random, whatever tells the keys apart: their count has mean 1 and
// variance 1. Tables, rounds, and rounds on a size where their traces would show most.
func TestItemsThatStay(t *testing.T) {
	const keys = 3000
	for _, c := range []struct {
		name string
		make func(key uint64) *Permutation
	}{
		{"a table, by seed", func(k uint64) *Permutation { return permutationOf(k, 500) }},
		{"a table, by epoch", func(k uint64) *Permutation { return newPermutation(newKey(9, k, []byte("test")), 500) }},
		{"rounds, by seed", func(k uint64) *Permutation { return roundsOf(k, 500) }},
	} {
		var sum, square float64
		for k := range uint64(keys) {
			p, stay := c.make(k), 0.
			for i := range int64(500) {
				if p.At(i) == i {
					stay++
				}
			}
			sum += stay
			square += stay * stay
		}
		mean := sum / keys
		variance := square/keys - mean*mean
		// of a mean the deviation is √(1/keys), of a variance of such counts about √(3/keys)
		if math.Abs(mean-1) > 5*math.Sqrt(1./keys) || math.Abs(variance-1) > 5*math.Sqrt(3./keys) {
			t.Errorf("%s: mean %.3f, variance %.3f", c.name, mean, variance)
		}
	}
}

// Where an item goes, and how far neighbours come apart, is as at random: tables and rounds alike.
func TestItemsGoEverywhere(t *testing.T) {
	for _, n := range []int64{1000, 65_536, 65_537, 1 << 20, 1_000_003, 1 << 40} {
		const cells, keys, items = 64, 200, 64
		where, apart := make([]int, cells), make([]int, cells)
		for seed := range uint64(keys) {
			p := permutationOf(seed, n)
			for i := range int64(items) {
				a, b := p.At(i), p.At(i+1)
				where[scale(a, cells, n)]++
				apart[scale((b-a+n)%n, cells, n)]++
			}
		}
		if z := chiSquare(where, keys*items); math.Abs(z) > 4.5 {
			t.Errorf("%d items: places are %.1f deviations off", n, z)
		}
		if z := chiSquare(apart, keys*items); math.Abs(z) > 4.5 {
			t.Errorf("%d items: distances of neighbours are %.1f deviations off", n, z)
		}
	}
}

// The correlation of place and number varies as it does at random (1/(n−1)), and so does the count of neighbours that
// stay neighbours. Rounds are tried on small sizes, where their traces would show most.
func TestRoundsLeaveNoTraces(t *testing.T) {
	const n, keys = 1000, 1500
	var square, neighbours float64
	for seed := range uint64(keys) {
		p := roundsOf(seed, n)
		var products float64
		for i := range int64(n) {
			products += (float64(i) - (n-1)/2.) * (float64(p.At(i)) - (n-1)/2.)
			if i > 0 && (p.At(i)-p.At(i-1) == 1 || p.At(i)-p.At(i-1) == -1) {
				neighbours++
			}
		}
		rho := products * 12 / (n * (n*n - 1.))
		square += rho * rho
	}
	if ratio := square / keys * (n - 1); math.Abs(ratio-1) > 0.15 {
		t.Errorf("variance of the correlation is %.3f of what it should be", ratio)
	}
	if ratio := neighbours / keys / (2 * (n - 1.) / n); math.Abs(ratio-1) > 0.08 {
		t.Errorf("neighbours stay so %.3f as often as they should", ratio)
	}
}

// roundsOf makes a computed permutation of fewer items than those have.
func roundsOf(seed uint64, n uint64) *Permutation {
	d := newKey(seed, 0, []byte("test")).draws()
	p := &Permutation{n: n, a: root(n)}
	p.b = (n-1)/p.a + 1
	for i := range p.keys {
		p.keys[i] = d.next()
	}
	return p
}

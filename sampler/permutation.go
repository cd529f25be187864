package sampler

import "math/bits"

// tableItems is the largest permutation that is a table. Larger ones are computed, which small ones cannot be: too few
// of the orders of a few items are reachable by rounds.
const tableItems = 65_536

// rounds of the computed permutation. Fewer leave visible traces.
const rounds = 8

// Permutation is a keyed bijection of the numbers 0 to n−1. It is immutable and safe for use by many goroutines.
type Permutation struct {
	n       uint64
	table   []uint16       // up to tableItems
	a, b    uint64         // above: n ≤ a·b, both about √n
	keys    [rounds]uint64 // above
	inverse bool           // above: the rounds run backwards
}

// newPermutation makes the permutation of n items under a key. It takes O(n) time for tables, O(1) above.
func newPermutation(k key, n int64) *Permutation {
	d := k.draws()
	p := &Permutation{n: uint64(n)}
	if n <= tableItems {
		p.table = shuffled(d, int(n))
		return p
	}
	p.a = root(p.n)
	p.b = (p.n-1)/p.a + 1
	for i := range p.keys {
		p.keys[i] = d.next()
	}
	return p
}

// shuffled is the table 0 to n−1 after a Fisher–Yates shuffle from its end.
func shuffled(d draws, n int) []uint16 {
	table := make([]uint16, n)
	for i := range table {
		table[i] = uint16(i)
	}
	for i := n - 1; i > 0; i-- {
		j := d.below(uint64(i) + 1)
		table[i], table[j] = table[j], table[i]
	}
	return table
}

// root returns ⌈√n⌉.
func root(n uint64) uint64 {
	lo, hi := uint64(0), uint64(1)<<32-1
	for lo < hi {
		if mid := lo + (hi-lo)/2; mid*mid >= n {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// At returns where the permutation takes i, 0 ≤ i < n.
func (p *Permutation) At(i int64) int64 {
	if p.table != nil {
		return int64(p.table[i])
	}
	x := uint64(i)
	for {
		if p.inverse {
			x = p.backward(x)
		} else {
			x = p.forward(x/p.b, x%p.b)
		}
		if x < p.n {
			return int64(x)
		}
	}
}

// Inverse returns the permutation that undoes this one.
func (p *Permutation) Inverse() *Permutation {
	q := *p
	if p.table == nil {
		q.inverse = !p.inverse
		return &q
	}
	q.table = make([]uint16, len(p.table))
	for i, v := range p.table {
		q.table[v] = uint16(i)
	}
	return &q
}

// forward runs the rounds on the number l·b + r. Each one moves one half by a keyed hash of the other.
func (p *Permutation) forward(l, r uint64) uint64 {
	for i := 0; i < rounds; i += 2 {
		l = turn(l, p.keys[i], r, p.a)
		r = turn(r, p.keys[i+1], l, p.b)
	}
	return l*p.b + r
}

func (p *Permutation) backward(x uint64) uint64 {
	l, r := x/p.b, x%p.b
	for i := rounds - 2; i >= 0; i -= 2 {
		r = unturn(r, p.keys[i+1], l, p.b)
		l = unturn(l, p.keys[i], r, p.a)
	}
	return l*p.b + r
}

// turn moves x on by a hash of the other half, on a ring of size n. The smaller of x and x−n is the one that has not
// wrapped, which costs no branch.
func turn(x, k, other, n uint64) uint64 {
	by, _ := bits.Mul64(mix64(k, other), n)
	x += by
	return min(x, x-n)
}

// unturn moves x back.
func unturn(x, k, other, n uint64) uint64 {
	by, _ := bits.Mul64(mix64(k, other), n)
	if x < by {
		x += n
	}
	return x - by
}

// fill sets the rows of dst to where the permutation takes from, from+1, …
func (p *Permutation) fill(from int64, dst []Ref) {
	if p.table != nil {
		for i, v := range p.table[from : from+int64(len(dst))] {
			dst[i].Row = int64(v)
		}
		return
	}
	i := 0
	for ; i+4 <= len(dst); i += 4 {
		p.four(uint64(from)+uint64(i), (*[4]Ref)(dst[i:]))
	}
	for ; i < len(dst); i++ {
		dst[i].Row = p.At(from + int64(i))
	}
}

// four takes four numbers through the rounds side by side: each waits for its own last step, not for the others, which
// is more than twice as fast.
func (p *Permutation) four(x uint64, dst *[4]Ref) {
	a, b := p.a, p.b
	l0, l1, l2, l3 := x/b, (x+1)/b, (x+2)/b, (x+3)/b
	r0, r1, r2, r3 := x-l0*b, x+1-l1*b, x+2-l2*b, x+3-l3*b
	for i := 0; i < rounds; i += 2 {
		even, odd := p.keys[i], p.keys[i+1]
		l0, l1, l2, l3 = turn(l0, even, r0, a), turn(l1, even, r1, a), turn(l2, even, r2, a), turn(l3, even, r3, a)
		r0, r1, r2, r3 = turn(r0, odd, l0, b), turn(r1, odd, l1, b), turn(r2, odd, l2, b), turn(r3, odd, l3, b)
	}
	for i, y := range [4]uint64{l0*b + r0, l1*b + r1, l2*b + r2, l3*b + r3} {
		if y >= p.n { // seldom: a·b is hardly more than n
			y = uint64(p.At(int64(y)))
		}
		dst[i].Row = int64(y)
	}
}

// permutationBytes is how much memory a permutation of n items takes.
func permutationBytes(n int64) int64 {
	const fixed = 144
	if n > tableItems {
		return fixed
	}
	return fixed + 2*n
}

package sampler

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// gamma is the step between the inputs of neighbouring rows: 2⁶⁴ divided by the golden ratio, made odd.
const gamma = 0x9e3779b97f4a7c15

// Sum is a sum of row fingerprints modulo 2¹²⁸. The zero value is the sum of no rows.
type Sum struct{ Hi, Lo uint64 }

// Add returns s + t.
func (s Sum) Add(t Sum) Sum {
	lo, carry := bits.Add64(s.Lo, t.Lo, 0)
	hi, _ := bits.Add64(s.Hi, t.Hi, carry)
	return Sum{Hi: hi, Lo: lo}
}

// sub returns s − t.
func (s Sum) sub(t Sum) Sum {
	lo, borrow := bits.Sub64(s.Lo, t.Lo, 0)
	hi, _ := bits.Sub64(s.Hi, t.Hi, borrow)
	return Sum{Hi: hi, Lo: lo}
}

// String returns the number as 32 lower-case hex digits.
func (s Sum) String() string { return fmt.Sprintf("%016x%016x", s.Hi, s.Lo) }

// Summer makes the sums of one snapshot's rows.
type Summer struct{ key uint64 }

// NewSummer derives the snapshot's key from its identity in hex.
func NewSummer(snapshotID string) Summer {
	digest := sha256.Sum256([]byte("headrace sum 1\x00" + snapshotID))
	return Summer{key: binary.LittleEndian.Uint64(digest[:8])}
}

// AddRange returns sum plus the fingerprints of the n rows from first on, by their numbers in the snapshot.
func (s Summer) AddRange(sum Sum, first, n int64) Sum {
	x := s.key + uint64(first)*gamma
	hi, lo := sum.Hi, sum.Lo
	for ; n > 0; n-- {
		x += gamma
		var carry uint64
		lo, carry = bits.Add64(lo, finalise(x), 0)
		hi += carry
	}
	return Sum{Hi: hi, Lo: lo}
}

// finalise is the output function of SplitMix64.
func finalise(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

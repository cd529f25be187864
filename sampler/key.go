package sampler

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// key is what one permutation, or one draw, is made of.
type key [sha256.Size]byte

// newKey derives the key of one purpose. The purpose comes last and everything before it has a fixed length, so no two
// different inputs are the same bytes.
func newKey(seed, epoch uint64, purpose []byte) key {
	b := make([]byte, 0, 160)
	b = append(b, "headrace order\x00"...)
	b = binary.LittleEndian.AppendUint32(b, orderVersion)
	b = binary.LittleEndian.AppendUint64(b, seed)
	b = binary.LittleEndian.AppendUint64(b, epoch)
	return sha256.Sum256(append(b, purpose...))
}

// draws returns the words that the first eight bytes of the key stand for.
func (k key) draws() draws { return draws{binary.LittleEndian.Uint64(k[:8])} }

// others returns the words of the second eight bytes, for what must not depend on the first ones.
func (k key) others() draws { return draws{binary.LittleEndian.Uint64(k[8:16])} }

// draws is an endless row of 64-bit words: word i is mix64(k, i), k the state before the first.
type draws struct{ state uint64 }

func (d *draws) next() uint64 {
	d.state += gamma
	return finalise(d.state)
}

// below draws a number less than n (at least 1), every one equally likely: words that would favour some are passed over.
func (d *draws) below(n uint64) uint64 {
	hi, lo := bits.Mul64(d.next(), n)
	if lo < n {
		for unfair := -n % n; lo < unfair; {
			hi, lo = bits.Mul64(d.next(), n)
		}
	}
	return hi
}

// mix64 is word i of the state k.
func mix64(k, i uint64) uint64 { return finalise(k + (i+1)*gamma) }

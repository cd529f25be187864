package encoding

import (
	"encoding/binary"
	"math/bits"
)

// wordAt returns the 64 bits of b from bit at on; what is behind b counts as zeros.
func wordAt(b []byte, at int) uint64 {
	from, shift := at>>3, uint(at&7)
	if from+9 <= len(b) {
		return binary.LittleEndian.Uint64(b[from:])>>shift | uint64(b[from+8])<<(64-shift)
	}
	var last [16]byte
	if from < len(b) {
		copy(last[:9], b[from:])
	}
	return binary.LittleEndian.Uint64(last[:])>>shift | uint64(last[8])<<(64-shift)
}

// ones has the lowest n bits set, for n up to 64.
func ones(n int) uint64 { return 1<<uint(n) - 1 }

// putWord writes the lowest n bits of word, up to 64, to dst from bit at on. It leaves all others alone.
func putWord(dst []byte, at int, word uint64, n int) {
	for n > 0 {
		shift := at & 7
		k := min(8-shift, n)
		if shift == 0 && n == 64 {
			binary.LittleEndian.PutUint64(dst[at>>3:], word)
			return
		}
		mask := byte(ones(k) << shift)
		dst[at>>3] = dst[at>>3]&^mask | byte(word<<shift)&mask
		word >>= uint(k)
		at, n = at+k, n-k
	}
}

// fillBits sets n bits of dst from bit at on to ones or zeros. It leaves all others alone.
func fillBits(dst []byte, at, n int, set bool) {
	var word uint64
	if set {
		word = ^word
	}
	if head := min(-at&7, n); head > 0 {
		putWord(dst, at, word, head)
		at, n = at+head, n-head
	}
	whole := dst[at>>3:][:n>>3]
	for i := range whole {
		whole[i] = byte(word)
	}
	putWord(dst, at+n&^7, word, n&7)
}

// copyBits copies n bits of src from bit from on to dst from bit at on. It leaves all others alone.
func copyBits(dst []byte, at int, src []byte, from, n int) {
	if head := min(-at&7, n); head > 0 {
		putWord(dst, at, wordAt(src, from), head)
		at, from, n = at+head, from+head, n-head
	}
	for ; n >= 64; at, from, n = at+64, from+64, n-64 {
		binary.LittleEndian.PutUint64(dst[at>>3:], wordAt(src, from))
	}
	putWord(dst, at, wordAt(src, from), n)
}

// countBits counts the ones among n bits of b from bit at on.
func countBits(b []byte, at, n int) (set int) {
	for ; n >= 64; at, n = at+64, n-64 {
		set += bits.OnesCount64(wordAt(b, at))
	}
	return set + bits.OnesCount64(wordAt(b, at)&ones(n))
}

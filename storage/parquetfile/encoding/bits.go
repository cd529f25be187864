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

// bitWriter writes bits to b one behind the other, and leaves all others alone. Without b it writes nothing.
type bitWriter struct {
	b     []byte
	at    int    // the byte that the first of the bits at hand go to
	word  uint64 // the bits at hand
	count int    // of them
}

// writeBits starts at bit at of b.
func writeBits(b []byte, at int) bitWriter {
	w := bitWriter{b: b, at: at >> 3, count: at & 7}
	if b != nil && w.count > 0 {
		w.word = uint64(b[w.at]) & ones(w.count)
	}
	return w
}

// put writes the lowest n bits, up to 64, of word, which has no others.
func (w *bitWriter) put(word uint64, n int) {
	if w.b == nil {
		return
	}
	w.word |= word << w.count
	if w.count += n; w.count >= 64 {
		binary.LittleEndian.PutUint64(w.b[w.at:], w.word)
		w.at, w.count = w.at+8, w.count-64
		w.word = word >> (n - w.count)
	}
}

// fill writes n times the same bit.
func (w *bitWriter) fill(n int, set bool) {
	var word uint64
	if set {
		word = ^word
	}
	if n > 64 && w.b != nil {
		head := 64 - w.count
		w.put(word&ones(head), head)
		n -= head
		for ; n >= 64; n -= 64 {
			binary.LittleEndian.PutUint64(w.b[w.at:], word)
			w.at += 8
		}
	}
	w.put(word&ones(n), n)
}

// done writes what is still at hand.
func (w *bitWriter) done() {
	if w.b != nil {
		putWord(w.b, w.at*8, w.word, w.count)
	}
}

// squeeze moves the bits of word that are set in mask to the lowest places. word has no others.
func squeeze(word, mask uint64) (squeezed uint64) {
	if word == mask {
		return ones(bits.OnesCount64(mask))
	}
	for to := 0; mask != 0; to, mask = to+1, mask&(mask-1) {
		squeezed |= word >> bits.TrailingZeros64(mask) & 1 << to
	}
	return squeezed
}

// scatter moves the lowest bits of word to the places that are set in mask.
func scatter(word, mask uint64) (scattered uint64) {
	for ; mask != 0; word, mask = word>>1, mask&(mask-1) {
		scattered |= word & 1 << bits.TrailingZeros64(mask)
	}
	return scattered
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

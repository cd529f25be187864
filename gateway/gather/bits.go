package gather

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/headrace/headrace/storage/frame"
)

// bitmap is a run of bits, or of ones if mask is 0: bit i is bit (skip+i)&mask of the bytes at first.
type bitmap struct {
	first      unsafe.Pointer
	skip, mask int64
}

// allSet is what bitmaps of ones look at.
var allSet = [1]byte{0xFF}

func ones() bitmap { return bitmap{first: unsafe.Pointer(&allSet)} }

// bitsAt is the bitmap of bits [at, at+count) of the i-th buffer.
func bitsAt(buffers []*memory.Buffer, i int, at, count int64) (bitmap, error) {
	if count == 0 {
		return ones(), nil
	}
	if have := size(buffers, i); bitmapBytes(plus(at, count)) > have {
		return ones(), fmt.Errorf("%w: bitmap of %d bytes ends before bit %d", frame.ErrCorrupt, have, at+count)
	}
	return bitmap{unsafe.Pointer(unsafe.SliceData(buffers[i].Bytes())), at, -1}, nil
}

// bit returns bit i as 0 or 1.
func (b *bitmap) bit(i int64) byte {
	i = (b.skip + i) & b.mask
	return *(*byte)(unsafe.Add(b.first, i>>3)) >> (i & 7) & 1
}

// bytes returns the bytes with bits [from, from+n), and how many bits to skip in the first.
func (b *bitmap) bytes(from, n int64) (mem []byte, skip int) {
	at := b.skip + from
	return unsafe.Slice((*byte)(unsafe.Add(b.first, at/8)), bitmapBytes(at%8+n)), int(at % 8)
}

// moveBits copies bits; those behind the last are zero.
func moveBits(dst []byte, from []bitmap, s *selection) {
	if s.single() {
		bitsOfRows(dst, from, s.rows)
		return
	}
	w := bitWriter{dst: dst}
	for _, r := range s.asRuns() {
		if b := &from[r.slot]; b.mask == 0 {
			w.setBits(r.n)
		} else if r.n > 0 {
			mem, skip := b.bytes(r.from, r.n)
			w.copyBits(mem, skip, r.n)
		}
	}
	w.flush()
}

// bitsOfRows makes a bit of each row.
func bitsOfRows(dst []byte, from []bitmap, rows []Row) {
	for i := 0; len(rows) > 0; i++ {
		few := rows[:min(8, len(rows))]
		var b byte
		for j, r := range few {
			b |= from[r.Frame].bit(int64(r.Row)) << (j & 7)
		}
		dst[i] = b
		rows = rows[len(few):]
	}
}

// bitWriter packs bits. Runs are often of a few bits, so it gathers a word
// before it writes. There must be room for all.
type bitWriter struct {
	dst  []byte
	word uint64 // the bits that wait
	n    int    // how many: below wordBits
}

// wordBits is how many bits are moved at once: with a byte's skip, they come out of one 64-bit load.
const wordBits = 32

// push adds the first count bits of v, at most wordBits; the others are zero.
func (w *bitWriter) push(v uint64, count int) {
	w.word |= v << w.n
	if w.n += count; w.n >= wordBits {
		binary.LittleEndian.PutUint32(w.dst, uint32(w.word))
		w.dst, w.word, w.n = w.dst[wordBits/8:], w.word>>wordBits, w.n-wordBits
	}
}

// setBits adds n ones.
func (w *bitWriter) setBits(n int64) {
	for ; n > 0; n -= wordBits {
		count := int(min(n, wordBits))
		w.push(1<<count-1, count)
	}
}

// copyBits adds n bits of mem from bit skip on, which is in its first byte.
func (w *bitWriter) copyBits(mem []byte, skip int, n int64) {
	for ; n > 0; n -= wordBits {
		var v uint64
		if len(mem) >= 8 {
			v = binary.LittleEndian.Uint64(mem)
		} else {
			for i, b := range mem {
				v |= uint64(b) << (8 * i)
			}
		}
		count := int(min(n, wordBits))
		w.push(v>>skip&(1<<count-1), count)
		mem = mem[min(wordBits/8, len(mem)):]
	}
}

// flush writes what waits.
func (w *bitWriter) flush() {
	for i := range w.dst {
		w.dst[i] = byte(w.word >> (8 * i))
	}
}

package encoding

import (
	"encoding/binary"
	"math"
)

// Hybrid decodes the RLE encoding: runs of one repeated value and runs of values
// packed bit by bit. It holds levels, booleans and the indices of a dictionary.
//
// A last packed run that lacks bytes is read as far as it goes, as there are
// writers that do not fill up its last group of eight. Values of no bits are all
// zero, whatever the bytes are.
type Hybrid struct {
	rest   []byte // behind the run that it is in
	packed []byte // from the start of that run on, if it is packed
	bit    int    // of packed, where the next value begins
	value  uint32 // of that run, if it repeats one
	left   int    // values of that run still to come
	width  int    // bits of a value
}

// Reset starts with the runs in b, of values of 0 to 32 bits.
func (h *Hybrid) Reset(b []byte, width int) error {
	if width < 0 || width > 32 {
		return malformed("values of %d bits where 32 are the most", width)
	}
	*h = Hybrid{rest: b, width: width}
	if width == 0 {
		h.left = math.MaxInt
	}
	return nil
}

// ResetIndices starts with the body of a data page in RLE_DICTIONARY: the width, in one byte, and runs of indices.
func (h *Hybrid) ResetIndices(b []byte) error {
	if len(b) == 0 {
		return h.Reset(nil, 32) // a page without values needs no width: any value wanted is one too many
	}
	return h.Reset(b[1:], int(b[0]))
}

// next enters the next run.
func (h *Hybrid) next() error {
	if len(h.rest) == 0 {
		return malformed("runs end before the values that they should hold")
	}
	head, used := uint64(h.rest[0]), 1
	if head >= 0x80 {
		if head, used = binary.Uvarint(h.rest); used <= 0 || head > math.MaxUint32 {
			return malformed("a run whose length is not a number of 32 bits")
		}
	}
	if head < 2 {
		return malformed("a run of no values")
	}
	h.rest = h.rest[used:]
	if head&1 == 0 {
		return h.repeat(int(head >> 1))
	}
	h.packed, h.bit = h.rest, 0
	size := int(head>>1) * h.width // eight values are as many bytes as one has bits
	h.left = int(head>>1) * 8
	if size > len(h.rest) {
		size = len(h.rest)
		h.left = size * 8 / h.width
	}
	h.rest = h.rest[size:]
	if h.left == 0 {
		return malformed("a packed run without its values")
	}
	return nil
}

// repeat enters a run of n times one value.
func (h *Hybrid) repeat(n int) error {
	size := (h.width + 7) / 8
	if size > len(h.rest) {
		return malformed("a run without its value")
	}
	h.value = 0
	for i, b := range h.rest[:size] {
		h.value |= uint32(b) << (8 * i)
	}
	if uint64(h.value)>>h.width != 0 {
		return malformed("a run of %d, which has more than %d bits", h.value, h.width)
	}
	h.rest, h.packed, h.left = h.rest[size:], nil, n
	return nil
}

// pass goes on by n values of the run that it is in.
func (h *Hybrid) pass(n int) {
	h.left -= n
	if h.packed != nil {
		h.bit += n * h.width
	}
	if h.width == 0 {
		h.left = math.MaxInt
	}
}

// Decode fills dst with the next values.
func (h *Hybrid) Decode(dst []uint32) error {
	for len(dst) > 0 {
		if h.left == 0 {
			if err := h.next(); err != nil {
				return err
			}
		}
		n := min(h.left, len(dst))
		if h.packed == nil {
			for i := range dst[:n] {
				dst[i] = h.value
			}
		} else {
			unpack32(dst[:n], h.packed, h.bit, h.width)
		}
		h.pass(n)
		dst = dst[n:]
	}
	return nil
}

// Skip passes n values.
func (h *Hybrid) Skip(n int) error {
	for n > 0 {
		if h.left == 0 {
			if err := h.next(); err != nil {
				return err
			}
		}
		k := min(h.left, n)
		h.pass(k)
		n -= k
	}
	return nil
}

// Run passes the next value and as many of those behind it as are equal and
// follow in the same run, up to limit, which must be 1 or more.
func (h *Hybrid) Run(limit int) (value uint32, n int, err error) {
	if h.left == 0 {
		if err := h.next(); err != nil {
			return 0, 0, err
		}
	}
	limit = min(limit, h.left)
	if h.packed == nil {
		h.pass(limit)
		return h.value, limit, nil
	}
	mask := ones(h.width)
	value = uint32(wordAt(h.packed, h.bit) & mask)
	for n = 1; n < limit && uint32(wordAt(h.packed, h.bit+n*h.width)&mask) == value; n++ {
	}
	h.pass(n)
	return value, n, nil
}

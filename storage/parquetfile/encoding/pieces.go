package encoding

import (
	"encoding/binary"
	"math"
)

// pieces are byte arrays in PLAIN that lie in many places, one behind the other: a value, or its length, may begin in
// one and end in another.
type pieces struct {
	rest []byte   // of the piece that it is in
	more [][]byte // those behind it
	left int      // bytes in all of them
}

func (p *pieces) reset(first []byte, more [][]byte) {
	*p = pieces{rest: first, more: more, left: len(first)}
	for _, b := range more {
		p.left += len(b)
	}
}

// next passes as many bytes as lie together, up to n of those that are left, and returns them.
func (p *pieces) next(n int) []byte {
	for len(p.rest) == 0 {
		p.rest, p.more = p.more[0], p.more[1:]
	}
	b := p.rest[:min(n, len(p.rest))]
	p.rest, p.left = p.rest[len(b):], p.left-len(b)
	return b
}

// length reads the length of value i of n, which is no longer than what is left.
func (p *pieces) length(n, i int) (int, error) {
	if p.left < 4 {
		return 0, short("byte arrays", n, i)
	}
	var b [4]byte
	for at := 0; at < len(b); {
		at += copy(b[at:], p.next(len(b)-at))
	}
	length := int(binary.LittleEndian.Uint32(b[:]))
	if length > p.left {
		return 0, malformed("a byte array of %d bytes where %d are left", length, p.left)
	}
	return length, nil
}

// walk passes n values and returns the number of bytes in all of them.
func (p *pieces) walk(n int) (size int64, err error) {
	for i := range n {
		length, err := p.length(n, i)
		if err != nil {
			return 0, err
		}
		size += int64(length)
		for length > 0 {
			length -= len(p.next(length))
		}
	}
	return size, nil
}

// decode copies a value of so many bytes to data[to:], where it has room, and returns where it ends there.
func (p *pieces) decode(data []byte, to, length int) int {
	for end := to + length; to < end; {
		to += copy(data[to:], p.next(end-to))
	}
	return to
}

// decodePieces decodes the next len(offsets)-1 values of p.
func decodePieces[O Offset](p *pieces, offsets []O, data []byte) error {
	to, ends := int(offsets[0]), offsets[1:]
	for i := range ends {
		length, err := p.length(len(ends), i)
		if err == nil {
			err = fits(O(to), int64(length), data)
		}
		if err != nil {
			return err
		}
		to = p.decode(data, to, length)
		ends[i] = O(to)
	}
	return nil
}

// resetPieces is Reset of what lies in many places.
func (d *Dictionary) resetPieces(b []byte, n int, more [][]byte) error {
	if n < 0 || n > math.MaxInt32 {
		return malformed("a dictionary of %d entries", n)
	}
	if cap(d.entries) < n {
		d.entries = make([]uint64, n)
	}
	d.entries = d.entries[:n]
	d.b, d.pieces = b, more
	var p pieces
	p.reset(b, more)
	for i := range d.entries {
		piece := len(more) - len(p.more)
		d.entries[i] = uint64(piece)<<32 | uint64(len(d.from(piece).rest)-len(p.rest))
		if _, err := p.walk(1); err != nil {
			return err
		}
	}
	return nil
}

// from begins with a piece of a dictionary.
func (d *Dictionary) from(piece int) pieces {
	if piece == 0 {
		return pieces{rest: d.b, more: d.pieces, left: math.MaxInt}
	}
	return pieces{rest: d.pieces[piece-1], more: d.pieces[piece:], left: math.MaxInt}
}

// entry begins with an entry of a dictionary in pieces and returns its length.
func (d *Dictionary) entry(e uint64) (p pieces, length int) {
	p = d.from(int(e >> 32))
	p.rest = p.rest[uint32(e):]
	length, _ = p.length(1, 0) // it has been read before
	return p, length
}

// measurePieces is Measure where the dictionary lies in pieces.
func (d *Dictionary) measurePieces(indices []uint32) (size int64, err error) {
	for _, x := range indices {
		if int(x) >= len(d.entries) {
			return 0, noEntry(x, len(d.entries))
		}
		_, length := d.entry(d.entries[x])
		size += int64(length)
	}
	return size, nil
}

// gatherPieces is GatherBytes where the dictionary lies in pieces.
func gatherPieces[O Offset](d *Dictionary, indices []uint32, offsets []O, data []byte) error {
	to, ends := int(offsets[0]), offsets[1:len(indices)+1]
	for i, x := range indices {
		if int(x) >= len(d.entries) {
			return noEntry(x, len(d.entries))
		}
		p, length := d.entry(d.entries[x])
		if err := fits(O(to), int64(length), data); err != nil {
			return err
		}
		to = p.decode(data, to, length)
		ends[i] = O(to)
	}
	return nil
}

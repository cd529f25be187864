package encoding

import (
	"encoding/binary"
	"math"
)

// Decoders of byte arrays fill offsets and data the same way: offsets[0] is
// given, and says where in data the first value goes; offsets[i+1] becomes the
// end of value i. So n values need n+1 offsets, and as many bytes of data behind
// offsets[0] as Measure says. What lies in data behind the last value may be
// overwritten, so a column is filled from its front.

// chunk is how many bytes are copied at a time where that is more than a value
// has, but there is room: a copy of fixed size is two moves, one of the right size a call.
const chunk = 32

// moveChunk copies a chunk as four words. Assigning the array would be a call, as far as the compiler knows both may overlap.
func moveChunk(dst, src *[chunk]byte) {
	le := binary.LittleEndian
	a, b, c, d := le.Uint64(src[:]), le.Uint64(src[8:]), le.Uint64(src[16:]), le.Uint64(src[24:])
	le.PutUint64(dst[:], a)
	le.PutUint64(dst[8:], b)
	le.PutUint64(dst[16:], c)
	le.PutUint64(dst[24:], d)
}

// fits returns an error if values that begin at offset first and are size bytes long do not fit into data.
func fits[O Offset](first O, size int64, data []byte) error {
	end := int64(first) + size
	switch {
	case int64(O(end)) != end:
		return ErrOffsets
	case first < 0 || end > int64(len(data)):
		return errRoom
	}
	return nil
}

// lastOffset is the most that an offset into data can be.
func lastOffset[O Offset](data []byte) int {
	if most := int64(math.MaxInt32); int64(O(most+1)) != most+1 {
		return min(len(data), math.MaxInt32)
	}
	return len(data)
}

// Bytes decodes byte arrays in PLAIN: each with its length in four bytes before it.
type Bytes[O Offset] struct {
	rest   []byte
	pieces pieces // in place of rest, if there are any left
}

// Reset starts with the values in b and, where one piece of memory does not hold
// them all, in more, which stays in use.
func (p *Bytes[O]) Reset(b []byte, more ...[]byte) {
	*p = Bytes[O]{rest: b}
	if len(more) > 0 {
		p.rest = nil
		p.pieces.reset(b, more)
	}
}

// walk passes n values and returns the number of bytes in all of them.
func (p *Bytes[O]) walk(n int) (size int64, err error) {
	if p.pieces.left > 0 {
		return p.pieces.walk(n)
	}
	b, at := p.rest, 0
	for i := range n {
		if len(b)-at < 4 {
			return 0, short("byte arrays", n, i)
		}
		length := int(binary.LittleEndian.Uint32(b[at:]))
		at += 4
		if length > len(b)-at {
			return 0, malformed("a byte array of %d bytes where %d are left", length, len(b)-at)
		}
		at += length
	}
	p.rest = b[at:]
	return int64(at - 4*n), nil
}

// Measure returns the number of bytes in the next n values. It stays where it is.
func (p *Bytes[O]) Measure(n int) (int64, error) {
	ahead := *p
	return ahead.walk(n)
}

// Skip passes n values.
func (p *Bytes[O]) Skip(n int) error {
	_, err := p.walk(n)
	return err
}

// Decode decodes the next len(offsets)-1 values.
func (p *Bytes[O]) Decode(offsets []O, data []byte) error {
	if err := fits(offsets[0], 0, data); err != nil {
		return err
	}
	if p.pieces.left > 0 {
		return decodePieces(&p.pieces, offsets, data)
	}
	to, b, at := int(offsets[0]), p.rest, 0
	end := lastOffset[O](data)
	ends := offsets[1:]
	for i := range ends {
		if len(b)-at < 4 {
			return short("byte arrays", len(ends), i)
		}
		length := int(binary.LittleEndian.Uint32(b[at:]))
		at += 4
		switch {
		case length <= chunk && len(b)-at >= chunk && end-to >= chunk:
			moveChunk((*[chunk]byte)(data[to:]), (*[chunk]byte)(b[at:]))
		case length > len(b)-at:
			return malformed("a byte array of %d bytes where %d are left", length, len(b)-at)
		case length > end-to:
			return fits(O(to), int64(length), data)
		default:
			copy(data[to:], b[at:at+length])
		}
		at, to = at+length, to+length
		ends[i] = O(to)
	}
	p.rest = b[at:]
	return nil
}

// Dictionary is a dictionary of byte arrays.
//
// Its scratch is eight bytes for each entry.
type Dictionary struct {
	b       []byte
	entries []uint64 // where each begins in b, and in the lower half its length
	pieces  [][]byte // behind b, if there are any: then it is the piece that it begins in with its length, and where
}

// Reset reads n entries in PLAIN from b and, where one piece of memory does not
// hold them all, from more. Both stay in use.
func (d *Dictionary) Reset(b []byte, n int, more ...[]byte) error {
	if d.pieces = nil; len(more) > 0 {
		return d.resetPieces(b, n, more)
	}
	if int64(len(b)) > math.MaxUint32 {
		return malformed("a dictionary of %d bytes", len(b))
	}
	if n < 0 || n > len(b)/4 {
		return malformed("a dictionary of %d entries in %d bytes", n, len(b))
	}
	d.b = b
	if cap(d.entries) < n {
		d.entries = make([]uint64, n)
	}
	d.entries = d.entries[:n]
	at := 0
	for i := range n {
		if len(b)-at < 4 {
			return short("entries of a dictionary", n, i)
		}
		length := int(binary.LittleEndian.Uint32(b[at:]))
		at += 4
		if length > len(b)-at {
			return malformed("an entry of a dictionary of %d bytes where %d are left", length, len(b)-at)
		}
		d.entries[i] = uint64(at)<<32 | uint64(length)
		at += length
	}
	return nil
}

// Len is the number of entries.
func (d *Dictionary) Len() int { return len(d.entries) }

// Entry returns entry i.
func (d *Dictionary) Entry(i int) []byte {
	e := d.entries[i]
	if d.pieces != nil {
		p, length := d.entry(e)
		var b []byte
		for len(b) < length {
			b = append(b, p.next(length-len(b))...)
		}
		return b
	}
	return d.b[e>>32:][:uint32(e)]
}

// Measure returns the number of bytes in the entries that indices name.
func (d *Dictionary) Measure(indices []uint32) (size int64, err error) {
	if d.pieces != nil {
		return d.measurePieces(indices)
	}
	entries := d.entries
	for _, x := range indices {
		if int(x) >= len(entries) {
			return 0, noEntry(x, len(entries))
		}
		size += int64(uint32(entries[x]))
	}
	return size, nil
}

// GatherBytes decodes the entries that indices name; there are as many offsets and one more.
func GatherBytes[O Offset](d *Dictionary, indices []uint32, offsets []O, data []byte) error {
	if err := fits(offsets[0], 0, data); err != nil {
		return err
	}
	if d.pieces != nil {
		return gatherPieces(d, indices, offsets, data)
	}
	to, b, entries := int(offsets[0]), d.b, d.entries
	end := lastOffset[O](data)
	ends := offsets[1 : len(indices)+1]
	for i, x := range indices {
		if int(x) >= len(entries) {
			return noEntry(x, len(entries))
		}
		at, length := int(entries[x]>>32), int(uint32(entries[x]))
		switch {
		case length <= chunk && len(b)-at >= chunk && end-to >= chunk:
			moveChunk((*[chunk]byte)(data[to:]), (*[chunk]byte)(b[at:]))
		case length > end-to:
			return fits(O(to), int64(length), data)
		default:
			copy(data[to:], b[at:at+length])
		}
		to += length
		ends[i] = O(to)
	}
	return nil
}

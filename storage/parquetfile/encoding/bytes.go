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

// checkRoom returns ErrOffsets if size more bytes cannot be counted, and panics if data is too short for them.
func checkRoom[O Offset](first O, size int64, data []byte) error {
	if end := int64(first) + size; int64(O(end)) != end {
		return ErrOffsets
	} else if end > int64(len(data)) {
		panic("encoding: no room for the bytes of all values")
	}
	return nil
}

// Bytes decodes byte arrays in PLAIN: each with its length in four bytes before it.
type Bytes[O Offset] struct {
	rest []byte
}

// Reset starts with the values in b.
func (p *Bytes[O]) Reset(b []byte) { p.rest = b }

// walk passes n values and returns the number of bytes in all of them.
func (p *Bytes[O]) walk(n int) (size int64, err error) {
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
	n := len(offsets) - 1
	size, err := p.Measure(n)
	if err != nil {
		return err
	}
	if err := checkRoom(offsets[0], size, data); err != nil {
		return err
	}
	to, b := int(offsets[0]), p.rest
	for i := range n {
		length := int(binary.LittleEndian.Uint32(b))
		b = b[4:]
		copy(data[to:], b[:length])
		b = b[length:]
		to += length
		offsets[i+1] = O(to)
	}
	p.rest = b
	return nil
}

// Dictionary is a dictionary of byte arrays.
//
// Its scratch is eight bytes for each entry.
type Dictionary struct {
	b       []byte
	entries []uint64 // where each begins in b, and in the lower half its length
}

// Reset reads n entries in PLAIN from b, which stays in use.
func (d *Dictionary) Reset(b []byte, n int) error {
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
	return d.b[e>>32:][:uint32(e)]
}

// Measure returns the number of bytes in the entries that indices name.
func (d *Dictionary) Measure(indices []uint32) (size int64, err error) {
	if err := checkIndices(indices, len(d.entries)); err != nil {
		return 0, err
	}
	for _, x := range indices {
		size += int64(uint32(d.entries[x]))
	}
	return size, nil
}

// GatherBytes decodes the entries that indices name; there are as many offsets and one more.
func GatherBytes[O Offset](d *Dictionary, indices []uint32, offsets []O, data []byte) error {
	size, err := d.Measure(indices)
	if err != nil {
		return err
	}
	if err := checkRoom(offsets[0], size, data); err != nil {
		return err
	}
	offsets = offsets[:len(indices)+1]
	to := int(offsets[0])
	for i, x := range indices {
		to += copy(data[to:], d.Entry(int(x)))
		offsets[i+1] = O(to)
	}
	return nil
}

package encoding

import "encoding/binary"

// Booleans decodes booleans, in PLAIN or RLE, to bits.
type Booleans struct {
	plain []byte
	bit   int
	runs  Hybrid
	rle   bool
}

// Reset starts with the booleans in b, in PLAIN: one bit each.
func (d *Booleans) Reset(b []byte) { *d = Booleans{plain: b} }

// ResetRLE starts with the booleans in b, in RLE: runs, with their length in four bytes before them.
func (d *Booleans) ResetRLE(b []byte) error {
	*d = Booleans{rle: true}
	if len(b) < 4 {
		return malformed("booleans in %d bytes, too short for their length", len(b))
	}
	size := binary.LittleEndian.Uint32(b)
	if int64(size) > int64(len(b)-4) {
		return malformed("booleans of %d bytes where %d are left", size, len(b)-4)
	}
	return d.runs.Reset(b[4:4+size:4+size], 1)
}

// Decode writes the next n booleans to dst from bit at on. It leaves all other bits alone.
func (d *Booleans) Decode(dst []byte, at, n int) error {
	if !d.rle {
		if have := len(d.plain)*8 - d.bit; n > have {
			return short("booleans", n, have)
		}
		copyBits(dst, at, d.plain, d.bit, n)
		d.bit += n
		return nil
	}
	h := &d.runs
	w := writeBits(dst, at)
	for n > 0 {
		if h.left == 0 {
			if err := h.next(); err != nil {
				return err
			}
		}
		k := min(h.left, n)
		n -= k
		if h.packed == nil {
			w.fill(k, h.value == 1)
			h.pass(k)
			continue
		}
		for k > 0 {
			some := min(k, 64)
			w.put(wordAt(h.packed, h.bit)&ones(some), some)
			h.pass(some)
			k -= some
		}
	}
	w.done()
	return nil
}

// Skip passes n booleans.
func (d *Booleans) Skip(n int) error {
	if d.rle {
		return d.runs.Skip(n)
	}
	if have := len(d.plain)*8 - d.bit; n > have {
		return short("booleans", n, have)
	}
	d.bit += n
	return nil
}

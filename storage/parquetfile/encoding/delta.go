package encoding

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// Delta decodes DELTA_BINARY_PACKED: a first value and the differences from each
// value to the next, packed in blocks with a width for each part of them.
type Delta[T int32 | int64] struct {
	rest    []byte // behind the part that it is in
	widths  []byte // of the parts of the block still to come
	part    []byte // the part that it is in
	bit     int    // of part, where the next difference begins
	width   int    // of its differences, in bits
	left    int    // differences of the part still to come
	perPart int
	parts   int // in a block
	total   int // values in all
	at      int // values so far
	low     T   // the least difference of the block
	last    T   // the value before
}

// Reset starts with the values in b. There may be other things behind them: see Rest.
func (d *Delta[T]) Reset(b []byte) error {
	var head [3]uint64
	for i := range head {
		x, used := binary.Uvarint(b)
		if used <= 0 || x > math.MaxInt32 {
			return malformed("a header of differences that is cut off or out of range")
		}
		head[i], b = x, b[used:]
	}
	size, parts, total := int(head[0]), int(head[1]), int(head[2])
	switch {
	case size == 0 || size%128 != 0:
		return malformed("blocks of %d differences, which is no multiple of 128", size)
	case parts == 0 || size%parts != 0 || size/parts%32 != 0:
		return malformed("blocks of %d differences in %d parts, which are no multiples of 32", size, parts)
	}
	first, used := binary.Varint(b)
	if used <= 0 || int64(T(first)) != first {
		return malformed("a first value that is cut off or out of range")
	}
	*d = Delta[T]{rest: b[used:], perPart: size / parts, parts: parts, total: total, last: T(first)}
	return nil
}

// Len is how many values are still to come.
func (d *Delta[T]) Len() int { return d.total - d.at }

// block enters the next block.
func (d *Delta[T]) block() error {
	low, used := binary.Varint(d.rest)
	if used <= 0 || int64(T(low)) != low {
		return malformed("a least difference that is cut off or out of range")
	}
	d.rest = d.rest[used:]
	if len(d.rest) < d.parts {
		return malformed("a block of differences without the widths of its parts")
	}
	d.low, d.widths, d.rest = T(low), d.rest[:d.parts], d.rest[d.parts:]
	return nil
}

// enter enters the next part.
func (d *Delta[T]) enter() error {
	if len(d.widths) == 0 {
		if err := d.block(); err != nil {
			return err
		}
	}
	d.width, d.widths = int(d.widths[0]), d.widths[1:]
	if d.width > 8*int(unsafe.Sizeof(d.low)) {
		return malformed("differences of %d bits", d.width)
	}
	// The last part need not be whole: writers may leave out what no value needs.
	size := d.perPart * d.width / 8
	if need := (min(d.perPart, d.total-d.at)*d.width + 7) / 8; need > len(d.rest) {
		return malformed("a part of differences of %d bytes where %d are left", need, len(d.rest))
	}
	size = min(size, len(d.rest))
	d.part, d.bit, d.left, d.rest = d.rest, 0, d.perPart, d.rest[size:]
	return nil
}

// Decode fills dst with the next values.
func (d *Delta[T]) Decode(dst []T) error {
	if len(dst) > d.Len() {
		return short("values", len(dst), d.Len())
	}
	if len(dst) > 0 && d.at == 0 {
		dst[0] = d.last
		d.at, dst = 1, dst[1:]
	}
	for len(dst) > 0 {
		if d.left == 0 {
			if err := d.enter(); err != nil {
				return err
			}
		}
		n := min(d.left, len(dst))
		d.last = sums(dst[:n], d.part, d.bit, d.width, d.low, d.last)
		d.bit += n * d.width
		d.left, d.at, dst = d.left-n, d.at+n, dst[n:]
	}
	return nil
}

// Skip passes n values.
func (d *Delta[T]) Skip(n int) error {
	if n > d.Len() {
		return short("values", n, d.Len())
	}
	var dst [batch]T
	for n > 0 {
		k := min(n, batch)
		if err := d.Decode(dst[:k]); err != nil {
			return err
		}
		n -= k
	}
	return nil
}

// Rest returns what is behind the values, those that are still to come included.
// A last block lacks nothing then.
func (d *Delta[T]) Rest() ([]byte, error) {
	end := *d
	if end.at == 0 && end.total > 0 {
		end.at = 1
	}
	end.at = min(end.at+end.left, end.total)
	for end.at < end.total {
		if err := end.enter(); err != nil {
			return nil, err
		}
		end.at = min(end.at+end.perPart, end.total)
	}
	return end.rest, nil
}

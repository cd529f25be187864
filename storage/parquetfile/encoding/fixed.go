package encoding

import "unsafe"

// Fixed decodes values of a fixed width in PLAIN: they lie one behind the other.
type Fixed struct {
	rest  []byte
	width int
}

// Reset starts with the values in b, of width bytes each.
func (f *Fixed) Reset(b []byte, width int) error {
	if width < 1 {
		return malformed("values of %d bytes", width)
	}
	*f = Fixed{rest: b, width: width}
	return nil
}

// Decode fills dst, the length of which is a multiple of the width.
func (f *Fixed) Decode(dst []byte) error {
	if len(dst) > len(f.rest) {
		return short("values", len(dst)/f.width, len(f.rest)/f.width)
	}
	copy(dst, f.rest)
	f.rest = f.rest[len(dst):]
	return nil
}

// Skip passes n values.
func (f *Fixed) Skip(n int) error {
	if n > len(f.rest)/f.width {
		return short("values", n, len(f.rest)/f.width)
	}
	f.rest = f.rest[n*f.width:]
	return nil
}

// Gather fills dst with the entries of a dictionary, values of width bytes each, that indices name.
func Gather(dst, dict []byte, width int, indices []uint32) error {
	switch width {
	case 4:
		return gather(arrays[[4]byte](dst), arrays[[4]byte](dict), indices)
	case 8:
		return gather(arrays[[8]byte](dst), arrays[[8]byte](dict), indices)
	case 12:
		return gather(arrays[[12]byte](dst), arrays[[12]byte](dict), indices)
	case 16:
		return gather(arrays[[16]byte](dst), arrays[[16]byte](dict), indices)
	}
	entries := len(dict) / width
	dst = dst[:len(indices)*width]
	for i, x := range indices {
		if int(x) >= entries {
			return noEntry(x, entries)
		}
		copy(dst[i*width:][:width], dict[int(x)*width:])
	}
	return nil
}

func gather[T array](dst, dict []T, indices []uint32) error {
	dst = dst[:len(indices)]
	for i, x := range indices {
		if int(x) >= len(dict) {
			return noEntry(x, len(dict))
		}
		dst[i] = dict[x]
	}
	return nil
}

// noEntry says that a dictionary is too short for an index.
func noEntry(index uint32, entries int) error {
	return malformed("index %d in a dictionary of %d entries", index, entries)
}

// DecodeIndexed fills dst, the length of which is a multiple of the width, with
// the entries of a dictionary that the next indices name.
func DecodeIndexed(h *Hybrid, dst, dict []byte, width int) error {
	var indices [batch]uint32
	for n := len(dst) / width; n > 0; {
		if h.left == 0 {
			if err := h.next(); err != nil {
				return err
			}
		}
		k := min(n, h.left)
		if h.packed != nil {
			k = min(k, batch)
			unpack32(indices[:k], h.packed, h.bit, h.width)
			if err := Gather(dst[:k*width], dict, width, indices[:k]); err != nil {
				return err
			}
		} else if err := repeatEntry(dst[:k*width], dict, width, h.value); err != nil {
			return err
		}
		h.pass(k)
		n, dst = n-k, dst[k*width:]
	}
	return nil
}

// repeatEntry fills dst with one entry of a dictionary, by doubling what is there.
func repeatEntry(dst, dict []byte, width int, index uint32) error {
	if entries := len(dict) / width; int(index) >= entries {
		return noEntry(index, entries)
	}
	done := copy(dst, dict[int(index)*width:][:width])
	for done < len(dst) {
		done += copy(dst[done:], dst[:done])
	}
	return nil
}

// array is a value of so many bytes. It is copied as a word of that size is, but may lie anywhere.
type array interface {
	[1]byte | [2]byte | [4]byte | [8]byte | [12]byte | [16]byte
}

// arrays makes b values of one size; a rest that is too short for one is left out.
func arrays[T array](b []byte) []T {
	var one T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/len(one))
}

// Split decodes BYTE_STREAM_SPLIT: all first bytes of the values, then all second ones, and so on.
type Split struct {
	b     []byte
	width int
	n, at int // values in all and so far
}

// Reset starts with the values in b, of width bytes each.
func (s *Split) Reset(b []byte, width int) error {
	if width < 1 || len(b)%width != 0 {
		return malformed("%d bytes are no whole number of values of %d bytes", len(b), width)
	}
	*s = Split{b: b, width: width, n: len(b) / width}
	return nil
}

// Decode fills dst, the length of which is a multiple of the width.
func (s *Split) Decode(dst []byte) error {
	n := len(dst) / s.width
	if n > s.n-s.at {
		return short("values", n, s.n-s.at)
	}
	if n > 0 {
		done := wideJoin(dst, s.b[s.at:], s.n, s.width)
		join(dst[done*s.width:], s.b[s.at+done:], s.n, s.width)
	}
	s.at += n
	return nil
}

// join puts values of width bytes together: byte k of value i is src[k*stride+i].
func join(dst, src []byte, stride, width int) {
	for k := range width {
		to := k
		for _, x := range src[k*stride:][:len(dst)/width] {
			dst[to] = x
			to += width
		}
	}
}

// Skip passes n values.
func (s *Split) Skip(n int) error {
	if n > s.n-s.at {
		return short("values", n, s.n-s.at)
	}
	s.at += n
	return nil
}

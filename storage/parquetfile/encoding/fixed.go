package encoding

import "encoding/binary"

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
	if err := checkIndices(indices, len(dict)/width); err != nil {
		return err
	}
	dst = dst[:len(indices)*width]
	switch width {
	case 4:
		for i, x := range indices {
			binary.NativeEndian.PutUint32(dst[i*4:], binary.NativeEndian.Uint32(dict[x*4:]))
		}
	case 8:
		for i, x := range indices {
			binary.NativeEndian.PutUint64(dst[i*8:], binary.NativeEndian.Uint64(dict[x*8:]))
		}
	default:
		for i, x := range indices {
			copy(dst[i*width:][:width], dict[int(x)*width:])
		}
	}
	return nil
}

// checkIndices returns an error unless all indices are less than n.
func checkIndices(indices []uint32, n int) error {
	var most uint32
	for _, x := range indices {
		most = max(most, x)
	}
	if len(indices) > 0 && int64(most) >= int64(n) {
		return malformed("index %d in a dictionary of %d entries", most, n)
	}
	return nil
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
	for k := range s.width {
		from := s.b[k*s.n+s.at:][:n]
		for i, x := range from {
			dst[i*s.width+k] = x
		}
	}
	s.at += n
	return nil
}

// Skip passes n values.
func (s *Split) Skip(n int) error {
	if n > s.n-s.at {
		return short("values", n, s.n-s.at)
	}
	s.at += n
	return nil
}

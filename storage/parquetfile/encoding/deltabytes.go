package encoding

import "math"

// LengthBytes decodes DELTA_LENGTH_BYTE_ARRAY: the lengths of all values in
// DELTA_BINARY_PACKED, then their bytes.
type LengthBytes[O Offset] struct {
	lengths Delta[int32]
	rest    []byte
}

// Reset starts with the values in b.
func (l *LengthBytes[O]) Reset(b []byte) (err error) {
	if err := l.lengths.Reset(b); err != nil {
		return err
	}
	l.rest, err = l.lengths.Rest()
	return err
}

// Len is how many values are still to come.
func (l *LengthBytes[O]) Len() int { return l.lengths.Len() }

// Measure returns the number of bytes in the next n values. It stays where it is.
func (l *LengthBytes[O]) Measure(n int) (int64, error) {
	lengths := l.lengths
	return l.measure(&lengths, n)
}

func (l *LengthBytes[O]) measure(lengths *Delta[int32], n int) (size int64, err error) {
	if n > lengths.Len() {
		return 0, short("byte arrays", n, lengths.Len())
	}
	var some [batch]int32
	for n > 0 {
		k := min(n, batch)
		if err := lengths.Decode(some[:k]); err != nil {
			return 0, err
		}
		for _, length := range some[:k] {
			if length < 0 {
				return 0, malformed("a byte array of %d bytes", length)
			}
			size += int64(length)
		}
		n -= k
	}
	if size > int64(len(l.rest)) {
		return 0, malformed("byte arrays of %d bytes where %d are left", size, len(l.rest))
	}
	return size, nil
}

// Skip passes n values.
func (l *LengthBytes[O]) Skip(n int) error {
	size, err := l.measure(&l.lengths, n)
	if err != nil {
		return err
	}
	l.rest = l.rest[size:]
	return nil
}

// Decode decodes the next len(offsets)-1 values.
func (l *LengthBytes[O]) Decode(offsets []O, data []byte) error {
	size, err := l.Measure(len(offsets) - 1)
	if err != nil {
		return err
	}
	if err := checkRoom(offsets[0], size, data); err != nil {
		return err
	}
	copy(data[offsets[0]:], l.rest[:size])
	l.rest = l.rest[size:]
	var some [batch]int32
	to := offsets[0]
	for offsets = offsets[1:]; len(offsets) > 0; {
		k := min(len(offsets), batch)
		if err := l.lengths.Decode(some[:k]); err != nil {
			return err
		}
		for i, length := range some[:k] {
			to += O(length)
			offsets[i] = to
		}
		offsets = offsets[k:]
	}
	return nil
}

// FrontBytes decodes DELTA_BYTE_ARRAY: of each value, how many bytes it begins
// with are those of the value before it, and then the other ones in
// DELTA_LENGTH_BYTE_ARRAY.
//
// Its scratch is as long as the longest value at which a call ended.
type FrontBytes[O Offset] struct {
	prefixes, suffixes Delta[int32]
	rest               []byte
	last               []byte
}

// Reset starts with the values in b.
func (f *FrontBytes[O]) Reset(b []byte) (err error) {
	if err := f.prefixes.Reset(b); err != nil {
		return err
	}
	if b, err = f.prefixes.Rest(); err != nil {
		return err
	}
	if err := f.suffixes.Reset(b); err != nil {
		return err
	}
	if f.prefixes.Len() != f.suffixes.Len() {
		return malformed("%d lengths of common bytes for %d byte arrays", f.prefixes.Len(), f.suffixes.Len())
	}
	f.last = f.last[:0]
	f.rest, err = f.suffixes.Rest()
	return err
}

// Len is how many values are still to come.
func (f *FrontBytes[O]) Len() int { return f.prefixes.Len() }

// lengths are those of the next values.
type lengths struct {
	prefixes, suffixes [batch]int32
}

// next decodes the lengths of the next n values, up to a batch. before is the
// length of the value before them, and becomes that of the last. It returns how
// many bytes they have, and how many of those are not of the value before.
func (l *lengths) next(prefixes, suffixes *Delta[int32], n int, before *int64) (size, own int64, err error) {
	if err := prefixes.Decode(l.prefixes[:n]); err != nil {
		return 0, 0, err
	}
	if err := suffixes.Decode(l.suffixes[:n]); err != nil {
		return 0, 0, err
	}
	for i, prefix := range l.prefixes[:n] {
		suffix := l.suffixes[i]
		if prefix < 0 || int64(prefix) > *before || suffix < 0 {
			return 0, 0, malformed("a byte array of %d and %d bytes, after one of %d", prefix, suffix, *before)
		}
		*before = int64(prefix) + int64(suffix)
		if *before > math.MaxInt32 {
			return 0, 0, malformed("a byte array of %d bytes", *before)
		}
		size += *before
		own += int64(suffix)
	}
	return size, own, nil
}

// Measure returns the number of bytes in the next n values. It stays where it is.
func (f *FrontBytes[O]) Measure(n int) (int64, error) {
	if n > f.Len() {
		return 0, short("byte arrays", n, f.Len())
	}
	var l lengths
	var size, own int64
	prefixes, suffixes, before := f.prefixes, f.suffixes, int64(len(f.last))
	for n > 0 {
		k := min(n, batch)
		s, o, err := l.next(&prefixes, &suffixes, k, &before)
		if err != nil {
			return 0, err
		}
		size, own, n = size+s, own+o, n-k
	}
	if own > int64(len(f.rest)) {
		return 0, malformed("byte arrays of %d bytes where %d are left", own, len(f.rest))
	}
	return size, nil
}

// Decode decodes the next len(offsets)-1 values.
func (f *FrontBytes[O]) Decode(offsets []O, data []byte) error {
	size, err := f.Measure(len(offsets) - 1)
	if err != nil {
		return err
	}
	if err := checkRoom(offsets[0], size, data); err != nil {
		return err
	}
	to := int(offsets[0])
	before := f.last
	err = f.each(len(offsets)-1, func(i, prefix, suffix int) {
		value := data[to:][:prefix+suffix]
		copy(value, before[:prefix])
		copy(value[prefix:], f.rest[:suffix])
		f.rest = f.rest[suffix:]
		to += len(value)
		offsets[i+1] = O(to)
		before = value
	})
	f.last = append(f.last[:0], before...)
	return err
}

// DecodeFixed decodes the next values, which must be of width bytes each, to dst, the length of which is a multiple of the width.
func (f *FrontBytes[O]) DecodeFixed(dst []byte, width int) error {
	n := len(dst) / width
	if _, err := f.Measure(n); err != nil {
		return err
	}
	before := f.last
	var wrong error
	err := f.each(n, func(i, prefix, suffix int) {
		if wrong != nil || prefix+suffix != width {
			if wrong == nil {
				wrong = malformed("a value of %d bytes where all have %d", prefix+suffix, width)
			}
			return
		}
		value := dst[i*width:][:width]
		copy(value, before[:prefix])
		copy(value[prefix:], f.rest[:suffix])
		f.rest = f.rest[suffix:]
		before = value
	})
	if wrong != nil {
		return wrong
	}
	f.last = append(f.last[:0], before...)
	return err
}

// Skip passes n values.
func (f *FrontBytes[O]) Skip(n int) error {
	if _, err := f.Measure(n); err != nil {
		return err
	}
	return f.each(n, func(_, prefix, suffix int) {
		f.last = append(f.last[:prefix], f.rest[:suffix]...)
		f.rest = f.rest[suffix:]
	})
}

// each passes n values that have been measured.
func (f *FrontBytes[O]) each(n int, value func(i, prefix, suffix int)) error {
	var l lengths
	before := int64(len(f.last))
	for i := 0; i < n; i += batch {
		k := min(n-i, batch)
		if _, _, err := l.next(&f.prefixes, &f.suffixes, k, &before); err != nil {
			return err
		}
		for j, prefix := range l.prefixes[:k] {
			value(i+j, int(prefix), int(l.suffixes[j]))
		}
	}
	return nil
}

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
	if err := fits(offsets[0], size, data); err != nil {
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
// Its scratch is as long as the longest value at which a call ended. A copy
// shares it: only one of the two may go on.
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
	ends := offsets[1:]
	size, err := f.Measure(len(ends))
	if err != nil {
		return err
	}
	if err := fits(offsets[0], size, data); err != nil {
		return err
	}
	var l lengths
	before, to := f.last, int(offsets[0])
	for measured := int64(len(before)); len(ends) > 0; {
		k := min(len(ends), batch)
		if _, _, err := l.next(&f.prefixes, &f.suffixes, k, &measured); err != nil {
			return err
		}
		for i := range ends[:k] {
			value := data[to:][:int(l.prefixes[i])+int(l.suffixes[i])]
			f.join(value, before, int(l.prefixes[i]))
			to += len(value)
			ends[i], before = O(to), value
		}
		ends = ends[k:]
	}
	f.last = append(f.last[:0], before...)
	return nil
}

// DecodeFixed decodes the next values, which must be of width bytes each, to dst, the length of which is a multiple of the width.
func (f *FrontBytes[O]) DecodeFixed(dst []byte, width int) error {
	if _, err := f.Measure(len(dst) / width); err != nil {
		return err
	}
	var l lengths
	before := f.last
	for measured := int64(len(before)); len(dst) >= width; {
		k := min(len(dst)/width, batch)
		if _, _, err := l.next(&f.prefixes, &f.suffixes, k, &measured); err != nil {
			return err
		}
		for i, prefix := range l.prefixes[:k] {
			if size := int(prefix) + int(l.suffixes[i]); size != width {
				return malformed("a value of %d bytes where all have %d", size, width)
			}
			value := dst[i*width:][:width]
			f.join(value, before, int(prefix))
			before = value
		}
		dst = dst[k*width:]
	}
	f.last = append(f.last[:0], before...)
	return nil
}

// join makes value of the first bytes of the value before it and of those that come next.
func (f *FrontBytes[O]) join(value, before []byte, prefix int) {
	copy(value, before[:prefix])
	f.rest = f.rest[copy(value[prefix:], f.rest):]
}

// Skip passes n values.
func (f *FrontBytes[O]) Skip(n int) error {
	if _, err := f.Measure(n); err != nil {
		return err
	}
	var l lengths
	for measured := int64(len(f.last)); n > 0; {
		k := min(n, batch)
		if _, _, err := l.next(&f.prefixes, &f.suffixes, k, &measured); err != nil {
			return err
		}
		for i, prefix := range l.prefixes[:k] {
			suffix := int(l.suffixes[i])
			f.last = append(f.last[:prefix], f.rest[:suffix]...)
			f.rest = f.rest[suffix:]
		}
		n -= k
	}
	return nil
}

package encoding

// Spread moves values to where they belong among nulls. buf begins with the
// values of width bytes each that are there, one behind the other; it is made
// n values, of which those whose bit in valid, from bit at on, is not set are null and become
// zeros.
func Spread(buf []byte, width int, valid []byte, at, n int) {
	from := countBits(valid, at, n)
	for i := n - 1; i >= 0 && from <= i; i-- {
		slot := buf[i*width:][:width]
		if valid[(at+i)>>3]>>((at+i)&7)&1 == 0 {
			clear(slot)
			continue
		}
		from--
		copy(slot, buf[from*width:])
	}
}

// SpreadOffsets does the same to the offsets of values: offsets begins with those
// of the values that are there, one more than these are, and is made n+1, where
// nulls have no length.
func SpreadOffsets[O Offset](offsets []O, valid []byte, at, n int) {
	from := countBits(valid, at, n)
	for i := n; i > from; i-- {
		offsets[i] = offsets[from]
		from -= int(valid[(at+i-1)>>3] >> ((at + i - 1) & 7) & 1)
	}
}

// SpreadBits does the same to the bits of buf from bit to on.
func SpreadBits(buf []byte, to int, valid []byte, at, n int) {
	from := countBits(valid, at, n)
	for i := n - 1; i >= 0 && from <= i; i-- {
		bit := uint64(0)
		if valid[(at+i)>>3]>>((at+i)&7)&1 == 1 {
			from--
			bit = wordAt(buf, to+from) & 1
		}
		putWord(buf, to+i, bit, 1)
	}
}

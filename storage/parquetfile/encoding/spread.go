package encoding

import "math/bits"

// Spread moves values to where they belong among nulls. buf begins with the
// values of width bytes each that are there, one behind the other; it is made
// n values, of which those whose bit in valid, from bit at on, is not set are
// null and become zeros.
func Spread(buf []byte, width int, valid []byte, at, n int) {
	buf = buf[:n*width]
	switch width {
	case 1:
		spread(arrays[[1]byte](buf), valid, at)
	case 2:
		spread(arrays[[2]byte](buf), valid, at)
	case 4:
		spread(arrays[[4]byte](buf), valid, at)
	case 8:
		spread(arrays[[8]byte](buf), valid, at)
	case 12:
		spread(arrays[[12]byte](buf), valid, at)
	case 16:
		spread(arrays[[16]byte](buf), valid, at)
	default:
		spreadWide(buf, width, valid, at, n)
	}
}

// spread goes from the back to the front, so that nothing is overwritten before it has been moved.
func spread[T array](values []T, valid []byte, at int) {
	from := countBits(valid, at, len(values))
	for end := len(values); from < end; {
		k := min(end, 64)
		end -= k
		word := wordAt(valid, at+end) & ones(k)
		slots, set := values[end:end+k], bits.OnesCount64(word)
		if set == k {
			from -= k
			copy(slots, values[from:from+k])
			continue
		}
		for i, next := k-1, word<<(64-k); i >= 0; i-- {
			from -= int(next >> 63) // a null gets whatever value there is
			slots[i] = values[from]
			next <<= 1
		}
		var zero T
		for nulls := ^word & ones(k); nulls != 0; nulls &= nulls - 1 {
			slots[bits.TrailingZeros64(nulls)] = zero
		}
	}
}

// spreadWide does it run by run.
func spreadWide(buf []byte, width int, valid []byte, at, n int) {
	from := countBits(valid, at, n)
	for end := n; from < end; {
		k := min(end, 64)
		word := wordAt(valid, at+end-k) << (64 - k) // the last slot's bit is the highest
		run := min(bits.LeadingZeros64(word), k)
		if run > 0 {
			clear(buf[(end-run)*width : end*width])
		} else {
			run = min(bits.LeadingZeros64(^word), k)
			from -= run
			copy(buf[(end-run)*width:end*width], buf[from*width:])
		}
		end -= run
	}
}

// SpreadOffsets does the same to the offsets of values: offsets begins with those
// of the values that are there, one more than these are, and is made n+1, where
// nulls have no length.
func SpreadOffsets[O Offset](offsets []O, valid []byte, at, n int) {
	offsets = offsets[:n+1]
	from := countBits(valid, at, n)
	for end := n; from < end; {
		k := min(end, 64)
		end -= k
		word := wordAt(valid, at+end) << (64 - k)
		slots := offsets[end+1 : end+1+k]
		for i := k - 1; i >= 0; i-- {
			slots[i] = offsets[from]
			from -= int(word >> 63)
			word <<= 1
		}
	}
}

// SpreadBits does the same to the bits of buf from bit to on.
func SpreadBits(buf []byte, to int, valid []byte, at, n int) {
	from := countBits(valid, at, n)
	for end := n; from < end; {
		k := min(end, 64)
		end -= k
		word := wordAt(valid, at+end) & ones(k)
		from -= bits.OnesCount64(word)
		putWord(buf, to+end, scatter(wordAt(buf, to+from), word), k)
	}
}

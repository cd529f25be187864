package encoding

import "encoding/binary"

// unpack32 fills dst with values of 1 to 32 bits from bit at of b on. There must be so many.
func unpack32(dst []uint32, b []byte, at, width int) {
	if wide32[width] {
		if head := toByte(at, width, len(dst)); head < len(dst) {
			scalar32(dst[:head], b, at, width)
			at, dst = at+head*width, dst[head:]
			done := wideUnpack32(dst, b[at>>3:], width)
			at, dst = at+done*width, dst[done:]
		}
	}
	scalar32(dst, b, at, width)
}

// toByte is how many values it takes from bit at on until one begins with a byte, or n if it takes more.
func toByte(at, width, n int) int {
	for i := range min(n, 8) {
		if (at+i*width)&7 == 0 {
			return i
		}
	}
	return n
}

// scalar32 is unpack32, value by value.
func scalar32(dst []uint32, b []byte, at, width int) {
	mask := ones(width)
	i := 0
	for ; i < len(dst) && at>>3+8 <= len(b); i, at = i+1, at+width {
		dst[i] = uint32(binary.LittleEndian.Uint64(b[at>>3:]) >> uint(at&7) & mask)
	}
	for ; i < len(dst); i, at = i+1, at+width {
		dst[i] = uint32(wordAt(b, at) & mask)
	}
}

// scalar64 fills dst with values of 0 to 64 bits from bit at of b on. There must be so many.
func scalar64(dst []uint64, b []byte, at, width int) {
	mask := ones(width)
	i := 0
	if width <= 57 { // a value and the up to seven bits before it lie in one word
		for ; i < len(dst) && at>>3+8 <= len(b); i, at = i+1, at+width {
			dst[i] = binary.LittleEndian.Uint64(b[at>>3:]) >> uint(at&7) & mask
		}
	}
	for ; i < len(dst); i, at = i+1, at+width {
		dst[i] = wordAt(b, at) & mask
	}
}

// sums fills dst with what last becomes when one by one the differences of 0 to
// 64 bits from bit at of b on, and low with each, are added to it. There must be
// so many. It returns the last.
func sums[T int32 | int64](dst []T, b []byte, at, width int, low, last T) T {
	if width == 0 {
		for i := range dst {
			last += low
			dst[i] = last
		}
		return last
	}
	if at&7 != 0 {
		head := toByte(at, width, len(dst))
		last = scalarSums(dst[:head], b, at, width, low, last)
		at, dst = at+head*width, dst[head:]
	}
	if len(dst) >= 8 {
		var done int
		done, last = wideSums(dst, b[at>>3:], width, low, last)
		at, dst = at+done*width, dst[done:]
	}
	if len(dst) > 0 {
		last = scalarSums(dst, b, at, width, low, last)
	}
	return last
}

// wideSums fills dst as far as it can, and tells how far, and the last sum.
func wideSums[T int32 | int64](dst []T, b []byte, width int, low, last T) (int, T) {
	switch dst := any(dst).(type) {
	case []int32:
		done, sum := wideSums32(dst, b, width, int32(low), int32(last))
		return done, T(sum)
	case []int64:
		done, sum := wideSums64(dst, b, width, int64(low), int64(last))
		return done, T(sum)
	}
	return 0, last
}

// scalarSums is sums, value by value.
func scalarSums[T int32 | int64](dst []T, b []byte, at, width int, low, last T) T {
	var some [64]uint64
	for len(dst) > 0 {
		n := min(len(dst), len(some))
		scalar64(some[:n], b, at, width)
		for i, x := range some[:n] {
			last += T(x) + low
			dst[i] = last
		}
		at, dst = at+n*width, dst[n:]
	}
	return last
}

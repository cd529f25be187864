package encoding

import (
	"encoding/binary"
	"fmt"
	"math"
)

const (
	unixEpoch   = 2440588 // its Julian day
	nanosPerDay = 24 * 60 * 60 * 1_000_000_000
	// MillisPerDay is how many milliseconds of a date64 are a day of a date32.
	MillisPerDay = 24 * 60 * 60 * 1000
)

// Timestamps converts INT96 values, of 12 bytes each, to nanoseconds since 1970.
// One that these cannot count, or that is no time of a day, is an error that wraps ErrRange
// and names its place in src.
func Timestamps(dst []int64, src []byte) error {
	for i := range dst {
		v := src[i*12:][:12]
		nanos := binary.LittleEndian.Uint64(v)
		days := int64(binary.LittleEndian.Uint32(v[8:])) - unixEpoch
		if nanos >= nanosPerDay {
			return fmt.Errorf("%w: the INT96 timestamp of value %d is %d ns into its day", ErrRange, i, nanos)
		}
		// Counted from the day that is nearer to 1970, neither product nor sum wraps before it should.
		if days < 0 {
			days, nanos = days+1, nanos-nanosPerDay
		}
		day, rest := days*nanosPerDay, int64(nanos)
		if days > math.MaxInt64/nanosPerDay || days < math.MinInt64/nanosPerDay ||
			rest > 0 && day > math.MaxInt64-rest || rest < 0 && day < math.MinInt64-rest {
			return fmt.Errorf("%w: the INT96 timestamp of value %d is %d days from 1970, more than nanoseconds can count", ErrRange, i, days)
		}
		dst[i] = day + rest
	}
	return nil
}

// Narrow keeps of each of n numbers of 4 or 8 bytes the lowest ones, so many as dst has for each. dst may be src.
func Narrow(dst, src []byte, n int) {
	if n == 0 {
		return
	}
	switch from, to := len(src)/n, len(dst)/n; {
	case from == 4 && to == 1:
		numbers, dst := arrays[[4]byte](src), dst[:n]
		for i := range dst {
			dst[i] = byte(binary.NativeEndian.Uint32(numbers[i][:]))
		}
	case from == 4 && to == 2:
		numbers, narrow := arrays[[4]byte](src), arrays[[2]byte](dst)[:n]
		for i := range narrow {
			binary.NativeEndian.PutUint16(narrow[i][:], uint16(binary.NativeEndian.Uint32(numbers[i][:])))
		}
	default:
		low := 0
		if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
			low = from - to
		}
		for i := range n {
			copy(dst[i*to:][:to], src[i*from+low:])
		}
	}
}

// Dates converts days to the milliseconds of a date64.
func Dates(dst []int64, src []int32) {
	for i, day := range src {
		dst[i] = int64(day) * MillisPerDay
	}
}

// DecimalsOfInts converts the unscaled values of decimals to numbers of width bytes, 4, 8, 16 or 32 each.
func DecimalsOfInts[T int32 | int64](dst []byte, width int, src []T) error {
	for i, x := range src {
		if err := putDecimal(dst[i*width:][:width], uint64(int64(x)), uint64(int64(x)>>63), i); err != nil {
			return err
		}
	}
	return nil
}

// DecimalsOfFixed converts decimals of from bytes each, the highest first, to numbers of width bytes, 4, 8, 16 or 32 each.
func DecimalsOfFixed(dst []byte, width int, src []byte, from int) error {
	if from < 1 {
		return malformed("decimals of %d bytes", from)
	}
	i := 0
	if width == 16 && from <= 16 {
		i = wideDecimals(arrays[[16]byte](dst), src, from)
	}
	for ; i < len(dst)/width; i++ {
		if err := decimal(dst[i*width:][:width], src[i*from:][:from], i); err != nil {
			return err
		}
	}
	return nil
}

// wideDecimals converts as many as have eight bytes of src behind their start,
// and tells how many. What of those bytes is not theirs is shifted out, and the sign in.
func wideDecimals(dst [][16]byte, src []byte, from int) int {
	i := 0
	for ; i < len(dst) && len(src) >= max(8, from); i++ {
		high := int64(binary.BigEndian.Uint64(src))
		low := uint64(high >> (64 - 8*min(from, 8)))
		if from > 8 {
			low = binary.BigEndian.Uint64(src[from-8:])
			high >>= 128 - 8*from
		} else {
			high >>= 63
		}
		binary.NativeEndian.PutUint64(dst[i][:8], low)
		binary.NativeEndian.PutUint64(dst[i][8:], uint64(high))
		src = src[from:]
	}
	return i
}

// DecimalsOfBytes converts decimals in byte arrays, the highest byte first, to numbers of width bytes, 4, 8, 16 or 32 each.
// One of no bytes is zero.
func DecimalsOfBytes[O Offset](dst []byte, width int, offsets []O, data []byte) error {
	for i := range len(offsets) - 1 {
		if err := decimal(dst[i*width:][:width], data[offsets[i]:offsets[i+1]], i); err != nil {
			return err
		}
	}
	return nil
}

// decimal writes big, the highest byte first, to dst, the lowest word first. No bytes at all are zero.
func decimal(dst, big []byte, row int) error {
	if len(big) == 0 {
		clear(dst)
		return nil
	}
	sign := uint64(int64(int8(big[0])) >> 63)
	for full := len(big); len(big) > max(8, len(dst)); big = big[1:] { // bytes that only go on with the sign say nothing
		if big[0] != byte(sign) || (big[1]^big[0])&0x80 != 0 {
			return fmt.Errorf("%w: the decimal of value %d has %d bytes, more than fit into %d", ErrRange, row, full, len(dst))
		}
	}
	if len(dst) <= 8 {
		return putDecimal(dst, lastWord(big, sign), sign, row)
	}
	for at := 0; at < len(dst); at += 8 {
		binary.NativeEndian.PutUint64(dst[at:], lastWord(big, sign))
		big = big[:max(0, len(big)-8)]
	}
	return nil
}

// lastWord is the last eight bytes of big, or as many as there are behind bytes of sign.
func lastWord(big []byte, sign uint64) uint64 {
	if len(big) >= 8 {
		return binary.BigEndian.Uint64(big[len(big)-8:])
	}
	word := sign
	for _, b := range big {
		word = word<<8 | uint64(b)
	}
	return word
}

// putDecimal writes a number of one word to dst.
func putDecimal(dst []byte, word, sign uint64, row int) error {
	if len(dst) == 4 {
		if int64(int32(word)) != int64(word) {
			return fmt.Errorf("%w: the decimal of value %d does not fit into 4 bytes", ErrRange, row)
		}
		binary.NativeEndian.PutUint32(dst, uint32(word))
		return nil
	}
	binary.NativeEndian.PutUint64(dst, word)
	for at := 8; at < len(dst); at += 8 {
		binary.NativeEndian.PutUint64(dst[at:], sign)
	}
	return nil
}

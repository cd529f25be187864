package encoding

import "encoding/binary"

// unpack32 fills dst with values of 1 to 32 bits from bit at of b on. There must be so many.
func unpack32(dst []uint32, b []byte, at, width int) {
	mask := ones(width)
	i := 0
	for ; i < len(dst) && at>>3+8 <= len(b); i, at = i+1, at+width {
		dst[i] = uint32(binary.LittleEndian.Uint64(b[at>>3:]) >> uint(at&7) & mask)
	}
	for ; i < len(dst); i, at = i+1, at+width {
		dst[i] = uint32(wordAt(b, at) & mask)
	}
}

// unpack64 fills dst with values of 1 to 64 bits from bit at of b on. There must be so many.
func unpack64(dst []uint64, b []byte, at, width int) {
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

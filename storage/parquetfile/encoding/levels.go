package encoding

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// maxLevel is the highest level that is decoded: of so deep a nesting nobody makes tables.
const maxLevel = 255

// Levels decodes the definition levels, or the repetition levels, of one page.
type Levels struct {
	runs Hybrid
	most uint32
}

// Reset starts with the levels in b, from 0 to most, as they lie in a data page of version 2, whose header tells their length.
func (l *Levels) Reset(b []byte, most int) error {
	if most < 1 || most > maxLevel {
		return fmt.Errorf("%w: levels up to %d, where 1 to %d are read", ErrUnsupported, most, maxLevel)
	}
	l.most = uint32(most)
	return l.runs.Reset(b, bits.Len(uint(most)))
}

// ResetPrefixed starts with the levels at the front of b, a data page of version
// 1, where their length comes before them. It returns what is behind them.
// Levels in any other encoding than RLE are refused.
func (l *Levels) ResetPrefixed(b []byte, most int, e Encoding) (rest []byte, err error) {
	if e != RLE {
		return nil, fmt.Errorf("%w: levels in %s; write the file anew with any writer of this decade", ErrUnsupported, e)
	}
	if len(b) < 4 {
		return nil, malformed("a page of %d bytes, too short for the length of its levels", len(b))
	}
	size := binary.LittleEndian.Uint32(b)
	if int64(size) > int64(len(b)-4) {
		return nil, malformed("levels of %d bytes in a page where %d are left", size, len(b)-4)
	}
	return b[4+size:], l.Reset(b[4:4+size:4+size], most)
}

// run enters the next run if need be, and tells how many of its levels, up to n, come next.
func (l *Levels) run(n int) (int, error) {
	if l.runs.left == 0 {
		if err := l.runs.next(); err != nil {
			return 0, err
		}
		if l.runs.packed == nil && l.runs.value > l.most {
			return 0, l.tooHigh(l.runs.value)
		}
	}
	return min(n, l.runs.left), nil
}

func (l *Levels) tooHigh(level uint32) error {
	return malformed("a level of %d where %d is the most", level, l.most)
}

// mask tells in its bits which of the next n levels, up to 64 and all of one
// run, are least or higher. It does not pass them.
func (l *Levels) mask(n int, least int) (uint64, error) {
	h := &l.runs
	switch {
	case h.packed == nil && h.value >= uint32(least), least == 0:
		return ones(n), nil
	case h.packed == nil:
		return 0, nil
	case h.width == 1:
		return wordAt(h.packed, h.bit) & ones(n), nil
	case h.width == 2:
		low, high := wordAt(h.packed, h.bit), wordAt(h.packed, h.bit+64)
		if l.most < 3 && (pairs(low, 3)|pairs(high, 3)<<32)&ones(n) != 0 {
			return 0, l.tooHigh(3)
		}
		return (pairs(low, least) | pairs(high, least)<<32) & ones(n), nil
	}
	var levels [64]uint32
	unpack32(levels[:n], h.packed, h.bit, h.width)
	var word uint64
	for i, level := range levels[:n] {
		if level > l.most {
			return 0, l.tooHigh(level)
		}
		_, less := bits.Sub32(level, uint32(least), 0)
		word |= uint64(1-less) << i
	}
	return word, nil
}

// pairs tells in its bits which of 32 numbers of two bits are least, 1 to 3, or higher.
func pairs(x uint64, least int) uint64 {
	switch least {
	case 1:
		x |= x >> 1
	case 2:
		x >>= 1
	default:
		x &= x >> 1
	}
	x &= 0x5555555555555555
	x = (x | x>>1) & 0x3333333333333333
	x = (x | x>>2) & 0x0F0F0F0F0F0F0F0F
	x = (x | x>>4) & 0x00FF00FF00FF00FF
	x = (x | x>>8) & 0x0000FFFF0000FFFF
	return (x | x>>16) & 0x00000000FFFFFFFF
}

// Validity passes the next n levels, writes to dst, from bit at on, which of them
// are least or higher, and counts those. A nil dst is not written to.
func (l *Levels) Validity(dst []byte, at, n int, least int) (set int, err error) {
	if dst != nil && at+n > len(dst)*8 {
		return 0, errRoom
	}
	w := writeBits(dst, at)
	for n > 0 {
		k, err := l.run(n)
		if err != nil {
			return 0, err
		}
		n -= k
		if l.runs.packed == nil {
			is := l.runs.value >= uint32(least)
			if is {
				set += k
			}
			w.fill(k, is)
			l.runs.pass(k)
			continue
		}
		for k > 0 {
			some := min(k, 64)
			word, err := l.mask(some, least)
			if err != nil {
				return 0, err
			}
			w.put(word, some)
			set += bits.OnesCount64(word)
			l.runs.pass(some)
			k -= some
		}
	}
	w.done()
	return set, nil
}

// All tells whether the next n levels are all the highest. If so it passes them,
// else it stays.
func (l *Levels) All(n int) (bool, error) {
	mark := *l
	for n > 0 {
		k, err := l.run(n)
		if err != nil {
			return false, err
		}
		full := l.runs.value == l.most
		if l.runs.packed != nil {
			k = min(k, 64)
			word, err := l.mask(k, int(l.most))
			if err != nil {
				return false, err
			}
			full = word == ones(k)
		}
		if !full {
			*l = mark
			return false, nil
		}
		l.runs.pass(k)
		n -= k
	}
	return true, nil
}

// Regular tells whether the next n levels, up to 1, are the repetition levels of
// lists of size elements each: 0, then size-1 times 1, again and again. phase is
// how many elements of a list came before, less than size. If so it passes them,
// else it stays.
func (l *Levels) Regular(n, size, phase int) (bool, error) {
	if l.most != 1 {
		return false, fmt.Errorf("%w: repetition levels up to %d, where lists of one level have 1", ErrUnsupported, l.most)
	}
	mark := *l
	for n > 0 {
		k, err := l.run(n)
		if err != nil {
			return false, err
		}
		var fits bool
		if l.runs.packed == nil {
			k, fits = repeatFits(int(l.runs.value), k, size, phase)
		} else {
			k = min(k, 64)
			word, err := l.mask(k, 1)
			if err != nil {
				return false, err
			}
			fits = word == patternAt(size, phase)&ones(k)
		}
		if !fits {
			*l = mark
			return false, nil
		}
		l.runs.pass(k)
		phase = (phase + k) % size
		n -= k
	}
	return true, nil
}

// repeatFits tells how many of n equal levels can come at once after phase elements of a list, and whether they may.
func repeatFits(level, n, size, phase int) (int, bool) {
	switch {
	case level > 1:
		return 0, false
	case level == 0 && size == 1:
		return n, true
	case level == 0:
		return 1, phase == 0
	default:
		return min(n, size-phase), phase > 0
	}
}

// patternAt has the bits of 64 repetition levels of regular lists, from an element with phase others before it on.
func patternAt(size, phase int) uint64 {
	first := 0 // where the next list begins
	if phase > 0 {
		first = size - phase
	}
	if first >= 64 {
		return ^uint64(0)
	}
	zeros := uint64(1)
	for step := size; step < 64; step *= 2 {
		zeros |= zeros << step
	}
	return ^(zeros << first)
}

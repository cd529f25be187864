package frame

import (
	"unicode/utf8"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// textTables is laid out as scanText reads it.
type textTables struct {
	high, low, next [16]byte // the rules that a pair breaks by three of its half-bytes
	nibble          byte     // the lower half of a byte
	third, fourth   byte     // taken away, what begins a letter of three or four bytes keeps its top bit
	top             byte     // the top bit
}

// scanText reads blocks of 32 bytes from p on, then last. bad is not 0 if they
// are not UTF-8, high not 0 if they are not ASCII. All letters must end in last.
//
//go:noescape
func scanText(p *byte, blocks int, last *[32]byte, t *textTables) (bad, high uint32)

// rules say which two bytes may not follow on each other, as sets of the first
// one's high and low half and of the second one's high half. There is one bit
// for each in a byte, and three look-ups find which rules 32 pairs break: the
// method of J. Keiser and D. Lemire, "Validating UTF-8 in less than one
// instruction per byte".
var rules = [8]struct{ high, low, next uint16 }{
	{0xF000, 0xFFFF, 0xF0FF}, // the first begins a letter, the second does not go on with it
	{0x00FF, 0xFFFF, 0x0F00}, // the first is ASCII, the second goes on with a letter
	{0x1000, 0x0003, 0x0F00}, // C0, C1: what one byte can say
	{0x4000, 0x0001, 0x0300}, // E0 80 to E0 9F: what two bytes can say
	{0x4000, 0x2000, 0x0C00}, // ED A0 to ED BF: surrogates
	{0x8000, 0xFFF0, 0x0E00}, // F4 90 and on: behind the last letter
	{0x8000, 0xFFE1, 0x0100}, // F0 80 to F0 8F: what three bytes can say; F5 80 and on
	{0x0F00, 0xFFFF, 0x0F00}, // both go on with a letter: the last rule, which has exceptions
}

var tables = func() (t textTables) {
	for bit, r := range rules {
		for i := range 16 {
			t.high[i] |= byte(r.high>>i&1) << bit
			t.low[i] |= byte(r.low>>i&1) << bit
			t.next[i] |= byte(r.next>>i&1) << bit
		}
	}
	t.nibble, t.third, t.fourth, t.top = 0x0F, 0xE0-0x80, 0xF0-0x80, 0x80
	return t
}()

// validText tells whether b is UTF-8, and whether it is ASCII.
func validText(b []byte) (valid, ascii bool) {
	if !cpu.X86.HasAVX2 {
		return utf8.Valid(b), false
	}
	var last [32]byte // its zeros end what the bytes before have begun
	whole := len(b) / len(last)
	copy(last[:], b[whole*len(last):])
	bad, high := scanText(unsafe.SliceData(b), whole, &last, &tables)
	return bad == 0, high == 0
}

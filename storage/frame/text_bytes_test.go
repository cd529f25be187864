package frame

import (
	"bytes"
	"testing"
	"unicode/utf8"
)

// checkValidText compares validText with the standard library's.
func checkValidText(t testing.TB, b []byte) {
	t.Helper()
	high := bytes.ContainsFunc(b, func(r rune) bool { return r >= utf8.RuneSelf })
	if valid, ascii := validText(b); valid != utf8.Valid(b) || ascii && high {
		t.Fatalf("%q: valid %v, ASCII %v", b, valid, ascii)
	}
}

// Every sequence of bytes that a letter could be, and those beside it, across
// the borders of blocks, read one by one and in pairs, and at the end.
func TestValidTextOfAllLetters(t *testing.T) {
	b := bytes.Repeat([]byte("a"), 128)
	try := func(at int, letter ...byte) {
		for at := at; at < 96; at += 32 {
			copy(b[at:], letter)
			checkValidText(t, b)
			checkValidText(t, b[:at+len(letter)])
			for i := range letter {
				b[at+i] = 'a'
			}
		}
	}
	edges := []byte{0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2, 0xE0, 0xF0, 0xFF}
	for one := range 256 {
		for two := range 256 {
			try(31, byte(one), byte(two))
			for _, three := range edges {
				try(30, byte(one), byte(two), three)
				if one >= 0xEF {
					for _, four := range edges {
						try(29, byte(one), byte(two), three, four)
					}
				}
			}
		}
	}
}

func TestValidTextOfAllLengths(t *testing.T) {
	text := bytes.Repeat([]byte("größe €5 𝄞 水"), 10)
	for from := range 40 {
		for to := from; to <= len(text); to++ {
			checkValidText(t, text[from:to])
		}
	}
	checkValidText(t, nil)
}

func FuzzText(f *testing.F) {
	f.Add([]byte("größe €5 𝄞 水, and some more that is plain text"))
	f.Add([]byte("abcdefghijklmnopqrstuvwxyz0123\xE2\x82\xAC"))
	f.Add([]byte("abcdefghijklmnopqrstuvwxyz01234\xF4\x90\x80\x80"))
	f.Fuzz(func(t *testing.T, b []byte) { checkValidText(t, b) })
}

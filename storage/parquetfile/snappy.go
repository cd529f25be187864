package parquetfile

import (
	"bufio"
	"encoding/binary"
	"io"
)

// element is what a Snappy block consists of: bytes of the plain text, which are
// behind its head, or word of how many to copy from how far back.
type element struct {
	head            int // bytes
	literal, copied int // bytes of plain text; one of them is 0
	back            int
}

// parseElement parses the head of the element that b begins with. It has no bytes if b has too few.
func parseElement(b []byte) (e element) {
	if len(b) == 0 {
		return e
	}
	tag, high := b[0]&3, int(b[0]>>2)
	more := [...]int{0, 1, 2, 4}[tag]
	if tag == 0 && high >= 60 {
		more = high - 59
	}
	if more >= len(b) {
		return e
	}
	var le [8]byte
	copy(le[:], b[1:1+more])
	n := int(binary.LittleEndian.Uint64(le[:]))
	switch e.head = 1 + more; {
	case tag == 0 && more > 0:
		e.literal = n + 1
	case tag == 0:
		e.literal = high + 1
	case tag == 1:
		e.copied, e.back = high&7+4, n|high>>3<<8
	default:
		e.copied, e.back = high+1, n
	}
	return e
}

// text is what a Snappy block decompresses to, in pieces: what the block has as it
// is stays where it is, if it is long, and only the rest is written somewhere.
type text struct {
	pieces [][]byte // up to its capacity
	made   []byte   // what was written, up to its capacity
	grows  bool     // the last piece is the end of made
	n      int      // bytes in all pieces
}

const (
	// apart is how long a literal has to be to stay where it is.
	apart = 4 << 10
	// front is how many bytes lie in one piece at the front, at least: levels are read from there.
	front = 1 << 10
)

// decode makes pieces of src. It is not to be called for anything but blocks of n
// bytes that consist of few and long elements: about all others, right ones or
// wrong ones, it says no.
func (t *text) decode(src []byte, n int) bool {
	size, used := binary.Uvarint(src)
	if used <= 0 || size != uint64(n) {
		return false
	}
	for left := cap(t.pieces) + n/512; left > 0 && used < len(src); left-- {
		src = src[used:]
		e := parseElement(src)
		if e.head == 0 || e.literal > len(src)-e.head || e.literal+e.copied > n-t.n {
			return false
		}
		used = e.head + e.literal
		if e.literal > 0 && !t.literal(src[e.head:used:used]) || e.copied > 0 && !t.copy(e.copied, e.back) {
			return false
		}
	}
	return used == len(src) && t.n == n
}

// literal adds bytes that the block has.
func (t *text) literal(b []byte) bool {
	short := len(b)
	switch {
	case len(b) >= apart && t.grows && t.n < front:
		short = front - t.n
	case len(b) >= apart:
		short = 0
	}
	if short > 0 {
		if !t.grow(short) {
			return false
		}
		copy(t.made[len(t.made)-short:], b)
	}
	return short == len(b) || t.add(b[short:])
}

// add adds a piece.
func (t *text) add(b []byte) bool {
	if len(t.pieces) == cap(t.pieces) {
		return false
	}
	t.pieces, t.grows = append(t.pieces, b), false
	t.n += len(b)
	return true
}

// grow adds n bytes, to be filled in, to the last piece or in one that it begins.
func (t *text) grow(n int) bool {
	at := len(t.made)
	if n > cap(t.made)-at {
		return false
	}
	t.made = t.made[:at+n]
	if t.grows {
		last := &t.pieces[len(t.pieces)-1]
		*last = (*last)[:len(*last)+n]
		t.n += n
		return true
	}
	t.grows = t.add(t.made[at:])
	return t.grows
}

// copy adds n bytes that are the same as those so far back, within few pieces: those who write Snappy cut the text into
// parts of 64 KiB.
func (t *text) copy(n, back int) bool {
	if back < 1 || back > min(t.n, 64<<10) || !t.grow(n) {
		return false
	}
	i, at := len(t.pieces)-1, back+n // to the end of piece i
	for ; at > len(t.pieces[i]); i-- {
		at -= len(t.pieces[i])
	}
	at = len(t.pieces[i]) - at
	for dst := t.made[len(t.made)-n:]; len(dst) > 0; {
		done := copy(dst[:min(len(dst), back)], t.pieces[i][at:])
		if dst, at = dst[done:], at+done; at == len(t.pieces[i]) {
			i, at = i+1, 0
		}
	}
	return true
}

// unsnappy decompresses a Snappy block from its front: the decoders that there
// are want the whole.
type unsnappy struct {
	r       *bufio.Reader
	out     []byte // all so far, to copy from
	literal int    // bytes still to come of the literal that it is in
	copied  int    // and of the copy
	back    int    // how far back the copy reads
}

// Read fills p, or fails.
func (u *unsnappy) Read(p []byte) (int, error) {
	from := len(u.out)
	for to := from + len(p); len(u.out) < to; {
		switch left := to - len(u.out); {
		case u.literal > 0:
			n := min(u.literal, left)
			u.literal -= n
			u.out = append(u.out, make([]byte, n)...)
			if _, err := io.ReadFull(u.r, u.out[len(u.out)-n:]); err != nil {
				return 0, err
			}
		case u.copied > 0:
			if u.back < 1 || u.back > len(u.out) {
				return 0, errLevels
			}
			u.out = append(u.out, u.out[len(u.out)-u.back])
			u.copied--
		default:
			if err := u.element(); err != nil {
				return 0, err
			}
		}
	}
	return copy(p, u.out[from:]), nil
}

// element reads the head of the next literal or copy.
func (u *unsnappy) element() error {
	const most = 5 // bytes of a head
	head, err := u.r.Peek(most)
	e := parseElement(head)
	if e.head == 0 {
		return err
	}
	u.literal, u.copied, u.back = e.literal, e.copied, e.back
	_, err = u.r.Discard(e.head)
	return err
}

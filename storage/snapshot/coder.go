package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrManifest means bytes that are no manifest, or no part of one: damaged, cut
// short, or forged.
var ErrManifest = errors.New("damaged manifest")

// Encoder writes the canonical form of facts: numbers as varints, texts and
// bytes behind their length.
type Encoder struct{ b []byte }

// Bytes returns what was written.
func (e *Encoder) Bytes() []byte { return e.b }

// Number writes a number that is not negative.
func (e *Encoder) Number(n int64) { e.b = binary.AppendUvarint(e.b, uint64(n)) }

// Signed writes any number.
func (e *Encoder) Signed(n int64) { e.b = binary.AppendVarint(e.b, n) }

// Text writes a text or bytes.
func (e *Encoder) Text(s string) {
	e.Number(int64(len(s)))
	e.b = append(e.b, s...)
}

// raw writes bytes whose number is known to who reads them.
func (e *Encoder) raw(b []byte) { e.b = append(e.b, b...) }

// Decoder reads what an Encoder wrote. Its first error sticks; from then on
// everything it returns is zero.
type Decoder struct {
	b   []byte
	err error
}

// NewDecoder returns a decoder of b, which it does not change.
func NewDecoder(b []byte) *Decoder { return &Decoder{b: b} }

// Err returns the first error, which wraps ErrManifest.
func (d *Decoder) Err() error { return d.err }

// End returns the first error; bytes that are left are one.
func (d *Decoder) End() error {
	if len(d.b) > 0 {
		d.Fail("%d bytes too many", len(d.b))
	}
	return d.err
}

// Fail makes an error stick.
func (d *Decoder) Fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: "+format, append([]any{ErrManifest}, args...)...)
	}
	d.b = nil
}

// Number reads a number from 0 to most.
func (d *Decoder) Number(most int64) int64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > uint64(most) || n > 1 && d.b[n-1] == 0 { // one form for each number
		d.Fail("a number that is cut short, too large or too long")
		return 0
	}
	d.b = d.b[n:]
	return int64(v)
}

// Signed reads any number.
func (d *Decoder) Signed() int64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Varint(d.b)
	if n <= 0 || n > 1 && d.b[n-1] == 0 {
		d.Fail("a number that is cut short or too long")
		return 0
	}
	d.b = d.b[n:]
	return v
}

// Count reads how many things follow that take at least least bytes each, so
// that memory for them can be taken at once.
func (d *Decoder) Count(least int) int {
	return int(d.Number(int64(len(d.b) / max(least, 1))))
}

// Text reads a text.
func (d *Decoder) Text() string { return string(d.bytes()) }

// bytes reads bytes behind their length, without a copy.
func (d *Decoder) bytes() []byte { return d.raw(d.Count(1)) }

func (d *Decoder) raw(n int) []byte {
	if d.err != nil || n > len(d.b) {
		d.Fail("it is cut short")
		return nil
	}
	b := d.b[:n:n]
	d.b = d.b[n:]
	return b
}

// sum reads a hash.
func (d *Decoder) sum() (out [32]byte) {
	copy(out[:], d.raw(len(out)))
	return out
}

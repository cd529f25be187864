package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// decoder reads JSON by its grammar and nothing looser: the standard decoder folds the case of keys, takes the last of
// two equal ones and mends bad UTF-8, so two readers could see two requests in one text. It descends only where the
// request's own shape does, so nesting needs no limit of its own.
type decoder struct {
	text []byte
	at   int
}

// FieldError is what is wrong with the text of a request. It comes wrapped in ErrRequest.
type FieldError struct {
	Field string // whose value is wrong; "" if it is the text around the values
	What  string
	at    int // byte of the text
}

// Error tells the place where no field's name does: a request is seldom written by hand.
func (e *FieldError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("%s (at byte %d)", e.What, e.at)
	}
	return e.Field + ": " + e.What
}

// within says which field's value an error is about.
func within(field string, err error) error {
	if wrong := (*FieldError)(nil); errors.As(err, &wrong) && wrong.Field == "" {
		wrong.Field = field
		return wrong
	}
	return fmt.Errorf("%s: %w", field, err)
}

// fail makes the error for what stands at the decoder's place; parse wraps it in ErrRequest.
func (d *decoder) fail(format string, args ...any) error {
	return &FieldError{What: fmt.Sprintf(format, args...), at: d.at}
}

// wants makes the error for a value of another kind than the one asked for.
func (d *decoder) wants(what string) error { return d.fail("must be %s, not %s", what, d.found()) }

// peek returns the next byte that is not white space, 0 at the end.
func (d *decoder) peek() byte {
	for ; d.at < len(d.text); d.at++ {
		switch c := d.text[d.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// take consumes c if it comes next.
func (d *decoder) take(c byte) bool {
	if d.peek() != c || d.at == len(d.text) {
		return false
	}
	d.at++
	return true
}

// found names what comes next, for people.
func (d *decoder) found() string {
	switch c := d.peek(); {
	case d.at == len(d.text):
		return "the end"
	case c == '{':
		return "an object"
	case c == '[':
		return "an array"
	case c == '"':
		return "a string"
	case c == '-' || '0' <= c && c <= '9':
		return "a number"
	case c == 't' || c == 'f':
		return "true or false"
	case c == 'n':
		return "null"
	default:
		return strconv.QuoteRuneToASCII(rune(c))
	}
}

// end refuses anything after the value.
func (d *decoder) end() error {
	if d.peek(); d.at < len(d.text) {
		return d.fail("nothing may follow the request, but %s does", d.found())
	}
	return nil
}

// word consumes a literal.
func (d *decoder) word(w string) bool {
	d.peek()
	rest := d.text[d.at:]
	if !strings.HasPrefix(string(rest[:min(len(rest), len(w))]), w) {
		return false
	}
	d.at += len(w)
	return true
}

func (d *decoder) null() bool { return d.word("null") }

func (d *decoder) boolean() (bool, error) {
	switch {
	case d.word("true"):
		return true, nil
	case d.word("false"):
		return false, nil
	}
	return false, d.wants("true or false")
}

// object calls member for each key in turn, its value next; equal keys are refused before the second value is read.
func (d *decoder) object(member func(key string) error) error {
	if !d.take('{') {
		return d.wants("an object")
	}
	if d.take('}') {
		return nil
	}
	seen := make(map[string]bool)
	for {
		key, err := d.str()
		if err != nil {
			return err
		}
		if seen[key] {
			return d.fail("field %s is there twice", clip(key))
		}
		seen[key] = true
		if !d.take(':') {
			return d.fail("a colon must follow the field %s, not %s", clip(key), d.found())
		}
		if err := member(key); err != nil {
			return err
		}
		if d.take('}') {
			return nil
		}
		if !d.take(',') {
			return d.fail("a comma or } must follow the value of %s, not %s", clip(key), d.found())
		}
	}
}

// array calls item before each element.
func (d *decoder) array(what string, item func() error) error {
	if !d.take('[') {
		return d.wants(what)
	}
	if d.take(']') {
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		if d.take(']') {
			return nil
		}
		if !d.take(',') {
			return d.fail("a comma or ] must follow an element, not %s", d.found())
		}
	}
}

// digits consumes an integer's text. Fractions and exponents are no integers here, even 1.0 and 1e3.
func (d *decoder) digits() (string, error) {
	const what = "an integer"
	if c := d.peek(); c != '-' && (c < '0' || c > '9') {
		return "", d.wants(what)
	}
	from := d.at
	for d.at < len(d.text) && strings.IndexByte("+-0123456789.eE", d.text[d.at]) >= 0 {
		d.at++
	}
	text := string(d.text[from:d.at])
	number := strings.TrimPrefix(text, "-")
	if strings.Trim(number, "0123456789") != "" || number == "" || number[0] == '0' && text != "0" {
		return "", d.fail("must be an integer in plain digits, not %s", clip(text))
	}
	return text, nil
}

// integer reads a number in [low, high].
func (d *decoder) integer(low, high int64) (int64, error) {
	text, err := d.digits()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < low || n > high {
		return 0, d.fail("must lie in %d to %d, not %s", low, high, clip(text))
	}
	return n, nil
}

// natural reads a number of 64 bits.
func (d *decoder) natural() (uint64, error) {
	text, err := d.digits()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, d.fail("must lie in 0 to 18446744073709551615, not %s", clip(text))
	}
	return n, nil
}

// str reads a string that is good UTF-8 without NUL, escapes included.
func (d *decoder) str() (string, error) {
	if !d.take('"') {
		return "", d.wants("a string")
	}
	var out []byte
	for d.at < len(d.text) {
		c := d.text[d.at]
		switch {
		case c == '"':
			if !utf8.Valid(out) {
				return "", d.fail("a string is not UTF-8")
			}
			d.at++
			return string(out), nil
		case c < ' ':
			return "", d.fail("a string holds a bare control character")
		case c != '\\':
			out = append(out, c)
			d.at++
		default:
			r, err := d.escape()
			if err != nil {
				return "", err
			}
			out = utf8.AppendRune(out, r)
		}
	}
	return "", d.fail("a string does not end")
}

// escape reads one escaped character. Half a surrogate pair is no character, and NUL is in no name.
func (d *decoder) escape() (rune, error) {
	if d.at+1 >= len(d.text) {
		return 0, d.fail("a string does not end")
	}
	c := d.text[d.at+1]
	if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 {
		d.at += 2
		return rune("\"\\/\b\f\n\r\t"[i]), nil
	}
	r, ok := d.unit()
	if ok && utf16.IsSurrogate(r) {
		low, _ := d.unit()
		r = utf16.DecodeRune(r, low)
		ok = r != utf8.RuneError
	}
	switch {
	case !ok:
		return 0, d.fail("a string holds a bad escape")
	case r == 0:
		return 0, d.fail("a string holds a NUL")
	}
	return r, nil
}

// unit reads \uXXXX.
func (d *decoder) unit() (rune, bool) {
	if d.at+6 > len(d.text) || d.text[d.at] != '\\' || d.text[d.at+1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(d.text[d.at+2:d.at+6]), 16, 16)
	if err != nil {
		return 0, false
	}
	d.at += 6
	return rune(n), true
}

// clip quotes foreign text for an error, short and in ASCII.
func clip(s string) string {
	const most = 60
	if len(s) > most {
		return strconv.QuoteToASCII(s[:most]) + "…"
	}
	return strconv.QuoteToASCII(s)
}

// appendString writes s as JSON in its one canonical form: only what must be escaped is.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		c := s[i]
		switch short := strings.IndexByte("\"\\\b\f\n\r\t", c); {
		case short >= 0:
			b = append(b, '\\', `"\bfnrt`[short])
		case c < ' ':
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

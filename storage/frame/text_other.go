//go:build !amd64

package frame

import "unicode/utf8"

// validText tells whether b is UTF-8; that it is ASCII is only known elsewhere.
func validText(b []byte) (valid, ascii bool) { return utf8.Valid(b), false }

// Package wire holds the words on the wire: request, ticket, cursor, metadata; with golden files.
//
// Nothing here opens, asks or decides anything. What a gateway once put on the wire must be understood for ever, so
// every form is frozen by a file under testdata, and every parser is strict: one text has one meaning or none.
package wire

import "errors"

// ErrRequest says that a request, ticket, cursor or name is malformed or contradicts itself. The text names the field
// and what to do, and is short enough for a status.
var ErrRequest = errors.New("bad request")

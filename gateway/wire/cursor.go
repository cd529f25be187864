package wire

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxEpoch bounds epochs, so that metadata stay short: the last one that a request may reach.
const MaxEpoch = 1<<31 - 1

// Cursor is a place in a plan, between two steps.
type Cursor struct {
	Plan  string // first 32 hex digits of the plan's hash
	Epoch int64
	Rows  int64 // rows of the epoch given out to all ranks
}

// String returns the cursor's one text, hr1:<plan>:<epoch>:<rows>.
func (c Cursor) String() string { return fmt.Sprintf("hr1:%s:%d:%d", c.Plan, c.Epoch, c.Rows) }

// ParseCursor reads exactly what String writes.
func ParseCursor(s string) (Cursor, error) {
	part := strings.Split(s, ":")
	if len(part) != 4 {
		return Cursor{}, errCursor
	}
	epoch, err1 := strconv.ParseInt(part[2], 10, 64)
	rows, err2 := strconv.ParseInt(part[3], 10, 64)
	c := Cursor{Plan: part[1], Epoch: epoch, Rows: rows}
	sound := err1 == nil && err2 == nil && epoch >= 0 && epoch <= MaxEpoch && rows >= 0 && isHex(c.Plan, 32)
	if !sound || c.String() != s {
		return Cursor{}, errCursor
	}
	return c, nil
}

const cursorForm = "must be hr1:<32 hex digits>:<epoch>:<rows>, as a batch's metadata gives it"

var errCursor = fmt.Errorf("%w: a cursor %s", ErrRequest, cursorForm)

// isHex tells whether s is n lower-case hex digits.
func isHex(s string, n int) bool {
	return len(s) == n && strings.Trim(s, "0123456789abcdef") == ""
}

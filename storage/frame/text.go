package frame

import (
	"errors"
	"fmt"
	"sort"
	"unicode/utf8"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
)

// errText is what the bytes of a string column are when they are no text.
// Passed on, they would fail in some client much later, far from their cause.
var errText = fmt.Errorf("%w: not UTF-8", ErrCorrupt)

// RowError says which row of a column is wrong. Rows count from the first that
// was asked for; Column is the path of names down to the array that has the
// fault, empty from Plain, which does not know it; Row is that of the column at
// the path's top.
type RowError struct {
	Column string
	Row    int64
	Err    error
}

func (e *RowError) Error() string {
	return fmt.Sprintf("column %q: row %d: %v", e.Column, e.Row, e.Err)
}

func (e *RowError) Unwrap() error { return e.Err }

// Behind makes the row of an error that Assemble, Frame or Plain returned, if it names
// one, count from rows rows earlier: for those who asked for a part of what the
// reader of the error knows. It has to come before the error becomes part of another.
func Behind(err error, rows int64) error {
	var at *RowError
	if errors.As(err, &at) {
		at.Row += rows
	}
	return err
}

// text tells whether the node holds strings, which are UTF-8.
func (n *node) text() bool {
	switch n.typ.ID() {
	case arrow.STRING, arrow.LARGE_STRING, arrow.STRING_VIEW:
		return true
	}
	return false
}

// checkRows checks the values of the node's rows, which lie in own, its buffers
// behind the validity: first numbers, that begin with the first row, then bytes.
func (n *node) checkRows(own [][]byte, null func(row int64) bool) error {
	switch {
	case !n.text() || n.rows == 0:
		return nil
	case n.lay.kind == view:
		return n.checkViews(own[0], own[1], null)
	}
	return n.checkText(own[0], own[1], null)
}

// lift makes an error about a row of a child one about the node's row. from is
// what is the child's first row for the node.
func (n *node) lift(err error, child int, from int64, own [][]byte) error {
	var at *RowError
	if errors.As(err, &at) {
		at.Row = n.above(child, from+at.Row, own)
	}
	return err
}

// checkText checks the rows' values in data, between offsets that have been
// checked. null is asked about rows that look wrong only.
func (n *node) checkText(offsets, data []byte, null func(row int64) bool) error {
	var row int64
	if n.lay.width == 8 {
		row = badText(offsetsOf[int64](offsets, n.rows+1), data, null)
	} else {
		row = badText(offsetsOf[int32](offsets, n.rows+1), data, null)
	}
	if row >= 0 {
		return &RowError{n.name, row, errText}
	}
	return nil
}

func offsetsOf[T int32 | int64](mem []byte, n int64) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), n)
}

// badText returns the first row that is not UTF-8, -1 if all are: all bytes
// must be, in one go, and no value may begin in the middle of a letter.
func badText[T int32 | int64](offsets []T, data []byte, null func(row int64) bool) int64 {
	first, last := offsets[0], offsets[len(offsets)-1]
	if valid, ascii := validText(data[first:last]); valid && (ascii || apart(offsets, data[:last])) {
		return -1
	}
	for i := range int64(len(offsets) - 1) {
		if !utf8.Valid(data[offsets[i]:offsets[i+1]]) && !null(i) {
			return i
		}
	}
	return -1
}

// apart tells whether no offset points behind the first byte of a letter.
func apart[T int32 | int64](offsets []T, data []byte) bool {
	for _, at := range offsets {
		if int(at) < len(data) && !utf8.RuneStart(data[at]) {
			return false
		}
	}
	return true
}

// checkViews checks the rows' values, in views or, if longer, in data.
func (n *node) checkViews(views, data []byte, null func(row int64) bool) error {
	for row := range n.rows {
		v := views[row*n.lay.width:][:n.lay.width]
		value := v[4:]
		if size := number(v, 0, 4); size <= inline {
			value = value[:size]
		} else {
			at := number(v, 3, 4)
			value = data[at : at+size]
		}
		if !utf8.Valid(value) && !null(row) {
			return &RowError{n.name, row, errText}
		}
	}
	return nil
}

// above returns the row of n that row r of its child is in.
func (n *node) above(child int, r int64, own [][]byte) int64 {
	w := n.lay.width
	first := func(has func(row int64) bool) int64 {
		for row := range n.rows {
			if has(row) {
				return row
			}
		}
		return 0 // a row that nothing shows
	}
	switch n.lay.kind {
	case list:
		return int64(sort.Search(int(n.rows), func(i int) bool { return number(own[0], int64(i)+1, w) > r }))
	case fixedList:
		return r / w
	case listView:
		return first(func(row int64) bool {
			at, size := number(own[0], row, w), number(own[1], row, w)
			return at <= r && r < at+size
		})
	case dense:
		ids := n.typ.(arrow.UnionType).ChildIDs()
		return first(func(row int64) bool { return ids[own[0][row]] == child && number(own[1], row, w) == r })
	case runs:
		if r > 0 {
			return n.ends[r-1]
		}
		return 0
	}
	return r // children have the rows of their parent
}

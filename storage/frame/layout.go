package frame

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
)

// kind is how arrow lays the rows of a type out in buffers.
type kind int

const (
	empty     kind = iota // null: no buffers
	bit                   // bool: validity, bits
	fixed                 // validity, values of one width
	binary                // validity, offsets, bytes
	view                  // validity, views, buffers of bytes...
	list                  // validity, offsets; one child
	fixedList             // validity; one child with width rows for each
	listView              // validity, offsets, sizes; one child
	record                // struct: validity; children with the same rows
	sparse                // union: type ids; children with the same rows
	dense                 // union: type ids, offsets; children with rows of their own
	runs                  // run-end encoded: children run ends and values
)

// layout is a kind with its measure: bytes of a value or of an offset, or rows of a list.
type layout struct {
	kind  kind
	width int64
}

// layoutOf finds the layout of t; ErrUnsupported names a type that has none here.
func layoutOf(t arrow.DataType) (layout, error) {
	switch t := t.(type) {
	case *arrow.NullType:
		return layout{empty, 0}, nil
	case *arrow.BooleanType:
		return layout{bit, 0}, nil
	case *arrow.StringType, *arrow.BinaryType:
		return layout{binary, 4}, nil
	case *arrow.LargeStringType, *arrow.LargeBinaryType:
		return layout{binary, 8}, nil
	case *arrow.StringViewType, *arrow.BinaryViewType:
		return layout{view, 16}, nil
	case *arrow.DictionaryType:
		return layout{}, fmt.Errorf("%w: %s", ErrUnsupported, t)
	case arrow.NestedType:
		return nestedLayout(t)
	case arrow.FixedWidthDataType:
		if bits := t.BitWidth(); bits >= 0 && bits%8 == 0 {
			return layout{fixed, int64(bits / 8)}, nil
		}
	}
	return layout{}, fmt.Errorf("%w: %v", ErrUnsupported, t)
}

func nestedLayout(t arrow.NestedType) (layout, error) {
	switch t := t.(type) {
	case *arrow.ListType, *arrow.MapType:
		return layout{list, 4}, nil
	case *arrow.LargeListType:
		return layout{list, 8}, nil
	case *arrow.ListViewType:
		return layout{listView, 4}, nil
	case *arrow.LargeListViewType:
		return layout{listView, 8}, nil
	case *arrow.FixedSizeListType:
		if t.Len() >= 0 {
			return layout{fixedList, int64(t.Len())}, nil
		}
	case *arrow.StructType:
		return layout{record, 0}, nil
	case *arrow.SparseUnionType:
		return layout{sparse, 0}, nil
	case *arrow.DenseUnionType:
		return layout{dense, 4}, nil
	case *arrow.RunEndEncodedType:
		if w, ok := t.RunEnds().(arrow.FixedWidthDataType); ok {
			return layout{runs, int64(w.BitWidth() / 8)}, nil
		}
	}
	return layout{}, fmt.Errorf("%w: %v", ErrUnsupported, t)
}

// sameID tells whether a column's type t is laid out by the same rules as want.
func sameID(t, want arrow.DataType) bool { return t != nil && storage(t).ID() == want.ID() }

// validity tells whether rows of this layout have a bitmap of their own.
func (l layout) validity() bool {
	return l.kind != empty && l.kind != sparse && l.kind != dense && l.kind != runs
}

// fieldsOf lists the children of t.
func fieldsOf(t arrow.DataType) []arrow.Field {
	if n, ok := t.(arrow.NestedType); ok {
		return n.Fields()
	}
	return nil
}

// times and plus saturate: a length that does not fit is larger than any
// buffer, and so refused where it is used.
func times(a, b int64) int64 {
	if a > 0 && b > largest/a {
		return largest
	}
	return a * b
}

func plus(a, b int64) int64 {
	if a > largest-b {
		return largest
	}
	return a + b
}

const largest = int64(1)<<62 - 1

// padded rounds a length in bytes up to where the next buffer may begin.
func padded(n int64) int64 { return plus(n, align-1) &^ (align - 1) }

// bitmapBytes is the length of a bitmap of n bits.
func bitmapBytes(n int64) int64 { return n/8 + min(n%8, 1) }

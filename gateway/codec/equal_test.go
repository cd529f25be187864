package codec

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// equal compares batches by their logical values. arrow-go's own comparison calls maps below lists different after any
// round trip, because it compares how their inner fields are declared too.
func equal(a, b arrow.RecordBatch) bool {
	if array.RecordEqual(a, b) {
		return true
	}
	if a.NumCols() != b.NumCols() || a.NumRows() != b.NumRows() {
		return false
	}
	for i := range a.Columns() {
		if a.Column(i).DataType().ID() != b.Column(i).DataType().ID() || !equalArrays(a.Column(i), b.Column(i)) {
			return false
		}
	}
	return true
}

func equalArrays(a, b arrow.Array) bool { return a.Len() == b.Len() && equalRows(a, 0, b, 0, a.Len()) }

func equalRows(a arrow.Array, i int, b arrow.Array, j, n int) bool {
	for k := range n {
		if !equalRow(a, i+k, b, j+k) {
			return false
		}
	}
	return true
}

func equalRow(a arrow.Array, i int, b arrow.Array, j int) bool {
	if a.IsNull(i) || b.IsNull(j) {
		return a.IsNull(i) == b.IsNull(j)
	}
	switch a := a.(type) {
	case array.ListLike: // maps too
		from, to := a.ValueOffsets(i)
		b := b.(array.ListLike)
		from2, to2 := b.ValueOffsets(j)
		return to-from == to2-from2 && equalRows(a.ListValues(), int(from), b.ListValues(), int(from2), int(to-from))
	case *array.Struct:
		for f := range a.NumField() {
			if !equalRow(a.Field(f), i, b.(*array.Struct).Field(f), j) {
				return false
			}
		}
		return true
	case *array.SparseUnion:
		b := b.(*array.SparseUnion)
		return a.TypeCode(i) == b.TypeCode(j) && equalRow(a.Field(a.ChildID(i)), i, b.Field(b.ChildID(j)), j)
	case *array.DenseUnion:
		b := b.(*array.DenseUnion)
		return a.TypeCode(i) == b.TypeCode(j) &&
			equalRow(a.Field(a.ChildID(i)), int(a.ValueOffset(i)), b.Field(b.ChildID(j)), int(b.ValueOffset(j)))
	case *array.RunEndEncoded:
		b := b.(*array.RunEndEncoded)
		return equalRow(a.Values(), a.GetPhysicalIndex(i), b.Values(), b.GetPhysicalIndex(j))
	}
	return a.ValueStr(i) == b.ValueStr(j)
}

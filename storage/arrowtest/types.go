// Package arrowtest makes random Arrow types and arrays, for tests of whatever reads them.
package arrowtest

import (
	"fmt"
	"math/rand"

	"github.com/apache/arrow-go/v18/arrow"
)

// Flat are the types without children, each layout and width at least once.
var Flat = []arrow.DataType{
	arrow.Null, arrow.FixedWidthTypes.Boolean,
	arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64,
	arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Uint16, arrow.PrimitiveTypes.Uint32, arrow.PrimitiveTypes.Uint64,
	arrow.FixedWidthTypes.Float16, arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64,
	arrow.BinaryTypes.String, arrow.BinaryTypes.Binary, arrow.BinaryTypes.LargeString, arrow.BinaryTypes.LargeBinary,
	arrow.BinaryTypes.StringView, arrow.BinaryTypes.BinaryView,
	&arrow.FixedSizeBinaryType{ByteWidth: 3}, &arrow.FixedSizeBinaryType{ByteWidth: 0}, &arrow.FixedSizeBinaryType{ByteWidth: 70},
	arrow.FixedWidthTypes.Date32, arrow.FixedWidthTypes.Date64, arrow.FixedWidthTypes.Time32ms, arrow.FixedWidthTypes.Time64ns,
	arrow.FixedWidthTypes.Timestamp_us, arrow.FixedWidthTypes.Duration_s,
	arrow.FixedWidthTypes.MonthInterval, arrow.FixedWidthTypes.DayTimeInterval, arrow.FixedWidthTypes.MonthDayNanoInterval,
	&arrow.Decimal32Type{Precision: 5, Scale: 2}, &arrow.Decimal64Type{Precision: 9, Scale: 2},
	&arrow.Decimal128Type{Precision: 20, Scale: 2}, &arrow.Decimal256Type{Precision: 50, Scale: 2},
}

// Nestings is how many ways [Nest] knows, the last five of them rare in data sets.
const (
	Nestings = common + 5
	common   = 7
)

// Type draws a type with at most depth levels of children.
func Type(r *rand.Rand, depth int) arrow.DataType {
	if depth == 0 || r.Intn(3) == 0 {
		return Flat[r.Intn(len(Flat))]
	}
	ways := common
	if r.Intn(4) == 0 {
		ways = Nestings
	}
	return Nest(r, r.Intn(ways), depth-1)
}

// Nest wraps random types of at most depth levels in the way-th nested one.
func Nest(r *rand.Rand, way, depth int) arrow.DataType {
	child := func() arrow.DataType { return Type(r, depth) }
	fields := func() (f []arrow.Field) {
		for i := range 1 + r.Intn(3) {
			f = append(f, arrow.Field{Name: fmt.Sprint("f", i), Type: child(), Nullable: true})
		}
		return f
	}
	codes := []arrow.UnionTypeCode{5, 0, 127}
	switch way {
	case 0:
		return arrow.ListOf(child())
	case 1:
		return arrow.LargeListOf(child())
	case 2:
		return arrow.FixedSizeListOf(int32(1+r.Intn(4)), child())
	case 3:
		return arrow.FixedSizeListOf(int32(1+r.Intn(3)), arrow.FixedSizeListOf(int32(1+r.Intn(3)), child()))
	case 4:
		return arrow.StructOf(fields()...)
	case 5:
		return arrow.MapOf(arrow.PrimitiveTypes.Int32, child())
	case 6:
		return arrow.ListOf(arrow.StructOf(fields()...))
	case 7:
		return arrow.ListViewOf(child())
	case 8:
		return arrow.LargeListViewOf(child())
	case 9:
		f := fields()
		return arrow.SparseUnionOf(f, codes[:len(f)])
	case 10:
		f := fields()
		return arrow.DenseUnionOf(f, codes[:len(f)])
	default:
		ends := []arrow.DataType{arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64}
		return arrow.RunEndEncodedOf(ends[r.Intn(3)], Flat[1+r.Intn(len(Flat)-1)])
	}
}

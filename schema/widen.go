package schema

import (
	"github.com/apache/arrow-go/v18/arrow"
)

// number describes a numeric type: the bits that whole numbers keep exactly.
type number struct {
	float    bool
	unsigned bool
	bits     int // of integers all, of floats those of the fraction
}

var numbers = map[arrow.Type]number{
	arrow.INT8: {bits: 8}, arrow.INT16: {bits: 16}, arrow.INT32: {bits: 32}, arrow.INT64: {bits: 64},
	arrow.UINT8: {unsigned: true, bits: 8}, arrow.UINT16: {unsigned: true, bits: 16},
	arrow.UINT32: {unsigned: true, bits: 32}, arrow.UINT64: {unsigned: true, bits: 64},
	arrow.FLOAT16: {float: true, bits: 11}, arrow.FLOAT32: {float: true, bits: 24}, arrow.FLOAT64: {float: true, bits: 53},
}

// ladder has the numeric types, the narrower ones first.
var ladder = []arrow.DataType{
	arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Uint16, arrow.PrimitiveTypes.Int16,
	arrow.PrimitiveTypes.Uint32, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Uint64, arrow.PrimitiveTypes.Int64,
	arrow.FixedWidthTypes.Float16, arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64,
}

// holds tells whether every value of type b is one of type a.
func (a number) holds(b number) bool {
	switch {
	case a.float && b.float:
		return a.bits >= b.bits
	case b.float:
		return false
	case a.float: // the sign of an integer is not one of a fraction's bits
		return a.bits >= b.bits
	case a.unsigned:
		return b.unsigned && a.bits >= b.bits
	case b.unsigned:
		return a.bits > b.bits
	}
	return a.bits >= b.bits
}

// widest returns the narrowest number type that holds all values of both, for
// what is fitted a if it does; nil if there is none, or if they are no numbers.
// Integers and floats have no narrowest type in common that would not depend
// on the order in which three of them are joined.
func widest(a, b arrow.DataType, how manner) arrow.DataType {
	x, ok := numbers[a.ID()]
	y, also := numbers[b.ID()]
	switch {
	case !ok || !also:
		return nil
	case how == fitted && x.holds(y):
		return a
	case x.float != y.float:
		return nil
	}
	for _, t := range ladder {
		if n := numbers[t.ID()]; n.float == x.float && n.holds(x) && n.holds(y) {
			return t
		}
	}
	return nil
}

// alike tells whether an array of a is one of b as it stands: the same types at
// every depth, whatever their nullability and metadata, and names only where
// they matter.
func alike(a, b arrow.Field) bool {
	return sameTypes(a.Type, b.Type)
}

func sameTypes(a, b arrow.DataType) bool {
	kids, others := children(a), children(b)
	if !sameShape(a, b) || len(kids) != len(others) {
		return false
	}
	for i := range kids {
		if namesMatter(a) && kids[i].Name != others[i].Name || !sameTypes(kids[i].Type, others[i].Type) {
			return false
		}
	}
	return true
}

// typeText is a field's type for people: the extension that it claims, if any.
func typeText(f arrow.Field) string {
	if e := extension(f.Metadata); e != "" {
		return e
	}
	return f.Type.String()
}

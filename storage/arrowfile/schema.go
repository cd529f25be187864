package arrowfile

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
)

const (
	maxDepth  = 64      // levels of nesting
	maxFields = 1 << 16 // fields of one schema, all levels together
)

// schemaReader turns the flatbuffer form of a schema into arrow's. It builds
// the types itself: the library's reader trusts offsets and counts, panics on
// what it does not know, interprets extension types by a process-wide registry,
// and does not tell which dictionary belongs to which field.
type schemaReader struct {
	fields int
	ids    []int64
}

// readSchema returns the schema in t with extension types left as storage plus
// metadata, and the ids of its dictionaries: one for each dictionary-encoded
// field, each before those of the fields below it.
func readSchema(t table) (*arrow.Schema, []int64, error) {
	if !t.present() {
		return nil, nil, corruptf("there is no schema")
	}
	if t.i16(0, 0) != 0 {
		return nil, nil, unsupportedf("big-endian data")
	}
	var r schemaReader
	fields, err := r.list(t.tables(1), nil)
	if err != nil {
		return nil, nil, err
	}
	md := metadata(t, 2)
	if t.f.err != nil {
		return nil, nil, t.f.err
	}
	return arrow.NewSchema(fields, &md), r.ids, nil
}

func metadata(t table, slot int) arrow.Metadata {
	pairs := t.tables(slot)
	keys, values := make([]string, len(pairs)), make([]string, len(pairs))
	for i, kv := range pairs {
		keys[i], values[i] = kv.string(0), kv.string(1)
	}
	return arrow.NewMetadata(keys, values)
}

// list reads the fields below those that path names.
func (r *schemaReader) list(ts []table, path []string) ([]arrow.Field, error) {
	fields := make([]arrow.Field, len(ts))
	for i, t := range ts {
		var err error
		if fields[i], err = r.field(t, path); err != nil {
			return nil, err
		}
	}
	return fields, nil
}

func (r *schemaReader) field(t table, path []string) (arrow.Field, error) {
	f := arrow.Field{Name: t.string(0), Nullable: t.bool(1), Metadata: metadata(t, 6)}
	path = append(path[:len(path):len(path)], f.Name)
	if r.fields++; r.fields > maxFields {
		return f, unsupportedf("a schema of more than %d fields", maxFields)
	}
	if len(path) > maxDepth {
		return f, unsupportedf("types nested deeper than %d levels", maxDepth)
	}
	if !utf8.ValidString(f.Name) {
		return f, corruptf("the field name %.40q is not UTF-8", f.Name)
	}
	encoding := t.table(4)
	if encoding.present() {
		r.ids = append(r.ids, encoding.i64(0))
	}
	children, err := r.list(t.tables(5), path)
	if err != nil {
		return f, err
	}
	f.Type, err = fieldType(t.u8(2), t.table(3), children)
	if err == nil && encoding.present() {
		f.Type, err = encoded(encoding, f.Type)
	}
	if t.f.err != nil { // what came of it means nothing
		err = t.f.err
	}
	if err != nil {
		return f, fmt.Errorf("column %.100q: %w", strings.Join(path, "."), err)
	}
	return f, nil
}

// encoded returns the type of a field that is stored as indices into a
// dictionary of values.
func encoded(t table, values arrow.DataType) (arrow.DataType, error) {
	index := arrow.PrimitiveTypes.Int32
	if it := t.table(1); it.present() {
		var err error
		if index, err = intType(it); err != nil {
			return nil, err
		}
	}
	if t.i16(3, 0) != 0 {
		return nil, unsupportedf("dictionaries that are not dense arrays")
	}
	return &arrow.DictionaryType{IndexType: index, ValueType: values, Ordered: t.bool(2)}, nil
}

// The numbers of the union of types in the format's schema definition.
const (
	typeNull = iota + 1
	typeInt
	typeFloat
	typeBinary
	typeUtf8
	typeBool
	typeDecimal
	typeDate
	typeTime
	typeTimestamp
	typeInterval
	typeList
	typeStruct
	typeUnion
	typeFixedSizeBinary
	typeFixedSizeList
	typeMap
	typeDuration
	typeLargeBinary
	typeLargeUtf8
	typeLargeList
	typeRunEndEncoded
	typeBinaryView
	typeUtf8View
	typeListView
	typeLargeListView
)

var plainTypes = map[uint8]arrow.DataType{
	typeNull:        arrow.Null,
	typeBool:        arrow.FixedWidthTypes.Boolean,
	typeBinary:      arrow.BinaryTypes.Binary,
	typeUtf8:        arrow.BinaryTypes.String,
	typeLargeBinary: arrow.BinaryTypes.LargeBinary,
	typeLargeUtf8:   arrow.BinaryTypes.LargeString,
	typeBinaryView:  arrow.BinaryTypes.BinaryView,
	typeUtf8View:    arrow.BinaryTypes.StringView,
}

func fieldType(kind uint8, t table, children []arrow.Field) (arrow.DataType, error) {
	if !t.present() {
		return nil, corruptf("a field has no type")
	}
	if dt, ok := plainTypes[kind]; ok {
		return dt, nil
	}
	switch kind {
	case typeInt:
		return intType(t)
	case typeFloat:
		return choose("floating point precision", t.i16(0, 0), arrow.FixedWidthTypes.Float16, arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64)
	case typeDecimal:
		return decimalType(t)
	case typeDate:
		return choose("unit of dates", t.i16(0, 1), arrow.FixedWidthTypes.Date32, arrow.FixedWidthTypes.Date64)
	case typeTime:
		return timeType(t)
	case typeTimestamp:
		unit, err := timeUnit(t.i16(0, 0))
		return &arrow.TimestampType{Unit: unit, TimeZone: t.string(1)}, err
	case typeDuration:
		unit, err := timeUnit(t.i16(0, 1))
		return &arrow.DurationType{Unit: unit}, err
	case typeInterval:
		return choose("unit of intervals", t.i16(0, 0), arrow.FixedWidthTypes.MonthInterval, arrow.FixedWidthTypes.DayTimeInterval, arrow.FixedWidthTypes.MonthDayNanoInterval)
	case typeFixedSizeBinary:
		width := t.i32(0, 0)
		if width < 0 {
			return nil, corruptf("a negative byte width")
		}
		return &arrow.FixedSizeBinaryType{ByteWidth: int(width)}, nil
	}
	return nestedType(kind, t, children)
}

// choose returns the type that a small enumeration names.
func choose(what string, i int16, from ...arrow.DataType) (arrow.DataType, error) {
	if i < 0 || int(i) >= len(from) {
		return nil, unsupportedf("%s number %d", what, i)
	}
	return from[i], nil
}

func intType(t table) (arrow.DataType, error) {
	p := &arrow.PrimitiveTypes
	signed := map[int32]arrow.DataType{8: p.Int8, 16: p.Int16, 32: p.Int32, 64: p.Int64}
	unsigned := map[int32]arrow.DataType{8: p.Uint8, 16: p.Uint16, 32: p.Uint32, 64: p.Uint64}
	from := unsigned
	if t.bool(1) {
		from = signed
	}
	bits := t.i32(0, 0)
	if dt := from[bits]; dt != nil {
		return dt, nil
	}
	return nil, unsupportedf("integers of %d bits", bits)
}

func decimalType(t table) (arrow.DataType, error) {
	precision, scale, bits := t.i32(0, 0), t.i32(1, 0), t.i32(2, 128)
	most := map[int32]int32{32: 9, 64: 18, 128: 38, 256: 76}[bits]
	if most == 0 {
		return nil, unsupportedf("decimals of %d bits", bits)
	}
	if precision < 1 || precision > most {
		return nil, corruptf("a decimal of %d bits with precision %d", bits, precision)
	}
	switch bits {
	case 32:
		return &arrow.Decimal32Type{Precision: precision, Scale: scale}, nil
	case 64:
		return &arrow.Decimal64Type{Precision: precision, Scale: scale}, nil
	case 128:
		return &arrow.Decimal128Type{Precision: precision, Scale: scale}, nil
	}
	return &arrow.Decimal256Type{Precision: precision, Scale: scale}, nil
}

func timeUnit(i int16) (arrow.TimeUnit, error) {
	units := []arrow.TimeUnit{arrow.Second, arrow.Millisecond, arrow.Microsecond, arrow.Nanosecond}
	if i < 0 || int(i) >= len(units) {
		return 0, unsupportedf("time unit number %d", i)
	}
	return units[i], nil
}

func timeType(t table) (arrow.DataType, error) {
	unit, err := timeUnit(t.i16(0, 1))
	if err != nil {
		return nil, err
	}
	bits := t.i32(1, 32)
	switch {
	case bits == 32 && unit <= arrow.Millisecond:
		return &arrow.Time32Type{Unit: unit}, nil
	case bits == 64 && unit >= arrow.Microsecond:
		return &arrow.Time64Type{Unit: unit}, nil
	}
	return nil, corruptf("a time of %d bits counted in %v", bits, unit)
}

func nestedType(kind uint8, t table, kids []arrow.Field) (arrow.DataType, error) {
	switch kind {
	case typeStruct:
		return arrow.StructOf(kids...), nil
	case typeUnion:
		return unionType(t, kids)
	case typeRunEndEncoded:
		return runEndType(kids)
	case typeList, typeLargeList, typeListView, typeLargeListView, typeFixedSizeList, typeMap:
		if len(kids) != 1 {
			return nil, corruptf("a list with %d children", len(kids))
		}
	}
	switch kind {
	case typeList:
		return arrow.ListOfField(kids[0]), nil
	case typeLargeList:
		return arrow.LargeListOfField(kids[0]), nil
	case typeListView:
		return arrow.ListViewOfField(kids[0]), nil
	case typeLargeListView:
		return arrow.LargeListViewOfField(kids[0]), nil
	case typeFixedSizeList:
		return fixedListType(t.i32(0, 0), kids[0])
	case typeMap:
		return mapType(t.bool(0), kids[0])
	}
	return nil, unsupportedf("type number %d", kind)
}

func fixedListType(n int32, elem arrow.Field) (arrow.DataType, error) {
	if n < 0 {
		return nil, corruptf("a negative list size")
	}
	if n == 0 {
		return nil, unsupportedf("fixed-size lists of size 0")
	}
	return arrow.FixedSizeListOfField(n, elem), nil
}

func mapType(sorted bool, entries arrow.Field) (arrow.DataType, error) {
	pair, ok := entries.Type.(*arrow.StructType)
	if !ok || pair.NumFields() != 2 || entries.Nullable || pair.Field(0).Nullable {
		return nil, corruptf("a map whose entries are not non-null pairs with non-null keys")
	}
	m := arrow.MapOfFields(pair.Field(0), pair.Field(1))
	m.KeysSorted = sorted
	return m, nil
}

func unionType(t table, kids []arrow.Field) (arrow.DataType, error) {
	mode := arrow.SparseMode
	switch t.i16(0, 0) {
	case 0:
	case 1:
		mode = arrow.DenseMode
	default:
		return nil, unsupportedf("union mode number %d", t.i16(0, 0))
	}
	codes := make([]arrow.UnionTypeCode, len(kids))
	ids, n := t.vector(1, 4)
	if n != 0 && n != len(kids) || len(kids) > 128 {
		return nil, corruptf("a union with %d children and %d type codes", len(kids), n)
	}
	seen := make(map[int32]bool, n)
	for i := range codes {
		code := int32(i)
		if n > 0 {
			code = int32(le32(ids[4*i:]))
		}
		if code < 0 || code > 127 || seen[code] {
			return nil, corruptf("a union with type code %d", code)
		}
		seen[code] = true
		codes[i] = arrow.UnionTypeCode(code)
	}
	return arrow.UnionOf(mode, kids, codes), nil
}

func runEndType(kids []arrow.Field) (arrow.DataType, error) {
	if len(kids) != 2 {
		return nil, corruptf("a run-end encoded type with %d children", len(kids))
	}
	switch kids[0].Type.ID() {
	case arrow.INT16, arrow.INT32, arrow.INT64:
	default:
		return nil, corruptf("run ends of type %v", kids[0].Type)
	}
	r := arrow.RunEndEncodedOf(kids[0].Type, kids[1].Type)
	r.ValueNullable = kids[1].Nullable
	return r, nil
}

package arrowfile

import "github.com/apache/arrow-go/v18/arrow"

// childTypes returns the types that t is built from as arrays have children:
// a map has one, its entries.
func childTypes(t arrow.DataType) []arrow.DataType {
	switch t := t.(type) {
	case *arrow.RunEndEncodedType:
		return []arrow.DataType{t.RunEnds(), t.Encoded()}
	case *arrow.StructType:
		return types(t.Fields())
	case arrow.UnionType:
		return types(t.Fields())
	case arrow.ListLikeType:
		return []arrow.DataType{t.Elem()}
	}
	return nil
}

// withChildren returns a type like t over children of other types, as many as
// childTypes(t) returns.
func withChildren(t arrow.DataType, kids []arrow.DataType) arrow.DataType {
	switch t := t.(type) {
	case *arrow.StructType:
		return arrow.StructOf(retyped(t.Fields(), kids)...)
	case *arrow.MapType:
		pair := kids[0].(*arrow.StructType)
		m := arrow.MapOfFields(pair.Field(0), pair.Field(1))
		m.KeysSorted = t.KeysSorted
		return m
	case arrow.UnionType:
		return arrow.UnionOf(t.Mode(), retyped(t.Fields(), kids), t.TypeCodes())
	case *arrow.RunEndEncodedType:
		r := arrow.RunEndEncodedOf(kids[0], kids[1])
		r.ValueNullable = t.ValueNullable
		return r
	case arrow.ListLikeType:
		return listOf(t, retyped([]arrow.Field{t.ElemField()}, kids)[0])
	}
	return t
}

func listOf(t arrow.ListLikeType, elem arrow.Field) arrow.DataType {
	switch t := t.(type) {
	case *arrow.LargeListType:
		return arrow.LargeListOfField(elem)
	case *arrow.ListViewType:
		return arrow.ListViewOfField(elem)
	case *arrow.LargeListViewType:
		return arrow.LargeListViewOfField(elem)
	case *arrow.FixedSizeListType:
		return arrow.FixedSizeListOfField(t.Len(), elem)
	}
	return arrow.ListOfField(elem)
}

func retyped(fields []arrow.Field, types []arrow.DataType) []arrow.Field {
	out := make([]arrow.Field, len(fields))
	for i, f := range fields {
		f.Type = types[i]
		out[i] = f
	}
	return out
}

// types returns the types of fields.
func types(fields []arrow.Field) []arrow.DataType {
	out := make([]arrow.DataType, len(fields))
	for i, f := range fields {
		out[i] = f.Type
	}
	return out
}

// dictionaries returns the dictionary types in t in pre-order, t first: the
// order in which a schema lists their ids.
func dictionaries(t arrow.DataType) []*arrow.DictionaryType {
	if d, ok := t.(*arrow.DictionaryType); ok {
		return append([]*arrow.DictionaryType{d}, dictionaries(d.ValueType)...)
	}
	var out []*arrow.DictionaryType
	for _, kid := range childTypes(t) {
		out = append(out, dictionaries(kid)...)
	}
	return out
}

package parquetfile

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// fieldIDKey is the field metadata key for the number that Parquet gives a field.
const fieldIDKey = "PARQUET:field_id"

// serve returns the schema that the file is served with and makes m, arrow-go's
// reading of the Parquet schema alone, decode to it: the same shape in memory,
// leaf by leaf. The stored schema decides where it knows more, if it fits.
//
// Dictionary types are served as their values: strings decode to strings,
// whatever the pages hold. Extension types are their storage with the two
// metadata keys. Views are plain strings, binaries and lists, 32 and 64 bit
// decimals are decimal128, and, as Parquet has no such thing, date64 is date32,
// seconds are milliseconds: just what the bytes are.
func (f *footer) serve(m *pqarrow.SchemaManifest) (*arrow.Schema, error) {
	fields := make([]arrow.Field, len(m.Fields))
	for i := range m.Fields {
		var origin arrow.Field
		if f.origin != nil && f.origin.NumFields() == len(m.Fields) {
			origin = f.origin.Field(i)
		}
		var err error
		if fields[i], err = f.field(&m.Fields[i], origin); err != nil {
			return nil, err
		}
	}
	kv := f.meta.KeyValueMetadata()
	md := arrow.NewMetadata(kv.Keys(), kv.Values())
	return arrow.NewSchema(fields, &md), nil
}

// field serves one node. origin is the stored field for it, its type nil if
// there is none.
func (f *footer) field(node *pqarrow.SchemaField, origin arrow.Field) (arrow.Field, error) {
	for origin.Type != nil && origin.Type.ID() == arrow.DICTIONARY {
		origin.Type = origin.Type.(*arrow.DictionaryType).ValueType
	}
	out := arrow.Field{Name: node.Field.Name, Nullable: node.Field.Nullable}
	base, implied := f.base(node)
	decode, err := f.types(node, base, origin.Type, &out)
	if err != nil {
		return out, fmt.Errorf("field %q: %w", node.Field.Name, err)
	}
	out.Metadata = fieldMetadata(node.Field.Metadata, implied, origin, out.Type)
	node.Field = &arrow.Field{Name: out.Name, Type: decode, Nullable: out.Nullable}
	return out, nil
}

// base returns what the Parquet schema alone makes of a node: the type it is
// stored as and, for some logical types, an extension type.
func (f *footer) base(node *pqarrow.SchemaField) (arrow.DataType, arrow.Metadata) {
	base, name, params := node.Field.Type, "", ""
	if ext, ok := base.(arrow.ExtensionType); ok {
		base, name, params = ext.StorageType(), ext.ExtensionName(), ext.Serialize()
	}
	if node.IsLeaf() {
		if _, ok := f.meta.Schema.Column(node.ColIndex).LogicalType().(schema.JSONLogicalType); ok {
			base, name = arrow.BinaryTypes.String, "arrow.json"
		}
	}
	if name == "" {
		return base, arrow.Metadata{}
	}
	return base, arrow.NewMetadata([]string{ipc.ExtensionTypeKeyName, ipc.ExtensionMetadataKeyName}, []string{name, params})
}

// types sets out.Type to what the node is served as and returns what arrow-go
// is to decode it to.
func (f *footer) types(node *pqarrow.SchemaField, base, origin arrow.DataType, out *arrow.Field) (arrow.DataType, error) {
	if node.IsLeaf() {
		decode, served := leafTypes(base, origin, f.meta.Schema.Column(node.ColIndex).PhysicalType())
		out.Type = served
		return decode, nil
	}
	kids := node.Children
	if len(kids) == 1 && len(kids[0].Children) == 2 && base.ID() == arrow.MAP {
		kids = kids[0].Children // skip the entries
	}
	origins := originChildren(base, origin, len(kids))
	served, decode := make([]arrow.Field, len(kids)), make([]arrow.Field, len(kids))
	for i := range kids {
		var err error
		if served[i], err = f.field(&kids[i], origins[i]); err != nil {
			return nil, err
		}
		decode[i] = *kids[i].Field
	}
	if base.ID() == arrow.MAP {
		node.Children[0].Field = &arrow.Field{Name: node.Children[0].Field.Name, Type: arrow.StructOf(decode...)}
	}
	kind := nested(base, origin)
	out.Type = rebuild(kind, served)
	return rebuild(kind, decode), nil
}

// leafTypes returns what arrow-go decodes a leaf to and what it is served as:
// two types of one layout.
func leafTypes(base, origin arrow.DataType, physical parquet.Type) (decode, served arrow.DataType) {
	if physical == parquet.Types.Int96 {
		// These count in UTC or in nothing; only the stored schema knows.
		base = &arrow.TimestampType{Unit: arrow.Nanosecond}
	}
	switch o := origin.(type) {
	case *arrow.TimestampType:
		if b, ok := base.(*arrow.TimestampType); ok && b.TimeZone == "UTC" && o.TimeZone != "" {
			base = &arrow.TimestampType{Unit: b.Unit, TimeZone: o.TimeZone}
		}
	case *arrow.DurationType:
		if base.ID() == arrow.INT64 {
			return base, o
		}
	case *arrow.LargeStringType:
		if base.ID() == arrow.STRING {
			base = o
		}
	case *arrow.LargeBinaryType:
		if base.ID() == arrow.BINARY {
			base = o
		}
	case *arrow.Decimal256Type:
		if b, ok := base.(*arrow.Decimal128Type); ok && b.Precision == o.Precision && b.Scale == o.Scale {
			base = o
		}
	}
	return base, base
}

// originChildren returns the n stored fields below a node, without types where
// the stored type does not fit the node's.
func originChildren(base, origin arrow.DataType, n int) []arrow.Field {
	none := make([]arrow.Field, n)
	switch o := origin.(type) {
	case *arrow.StructType:
		if base.ID() == arrow.STRUCT && o.NumFields() == n {
			return o.Fields()
		}
	case *arrow.MapType:
		if base.ID() == arrow.MAP {
			return []arrow.Field{o.KeyField(), o.ItemField()}
		}
	case arrow.ListLikeType:
		if base.ID() == arrow.LIST {
			return []arrow.Field{o.ElemField()}
		}
	}
	return none
}

// nested returns the type that a node is served as, over no children in
// particular: what Parquet calls a list may have been another kind of list.
func nested(base, origin arrow.DataType) arrow.DataType {
	none := arrow.Field{Type: arrow.Null}
	switch o := origin.(type) {
	case *arrow.FixedSizeListType:
		if base.ID() == arrow.LIST {
			return o
		}
	case *arrow.LargeListType, *arrow.LargeListViewType:
		if base.ID() == arrow.LIST {
			return arrow.LargeListOfField(none)
		}
	case *arrow.MapType:
		if base.ID() == arrow.MAP {
			return o
		}
	}
	return base
}

// rebuild returns a nested type like t over other children.
func rebuild(t arrow.DataType, kids []arrow.Field) arrow.DataType {
	switch t := t.(type) {
	case *arrow.StructType:
		return arrow.StructOf(kids...)
	case *arrow.MapType:
		m := arrow.MapOfFields(kids[0], kids[1])
		m.KeysSorted = t.KeysSorted
		return m
	case *arrow.FixedSizeListType:
		return arrow.FixedSizeListOfField(t.Len(), kids[0])
	case *arrow.LargeListType:
		return arrow.LargeListOfField(kids[0])
	}
	return arrow.ListOfField(kids[0])
}

// fieldMetadata joins what the stored schema, the Parquet schema and its
// logical type say about a field. A stored extension type whose storage is not
// what we serve is left out: no client could make sense of it.
func fieldMetadata(node, implied arrow.Metadata, origin arrow.Field, served arrow.DataType) arrow.Metadata {
	fits := origin.Type != nil && sameLayout(origin.Type, served)
	var keys, values []string
	put := func(k, v string) {
		for _, have := range keys {
			if have == k {
				return
			}
		}
		keys, values = append(keys, k), append(values, v)
	}
	for i, k := range origin.Metadata.Keys() {
		if fits || !strings.HasPrefix(k, "ARROW:extension:") {
			put(k, origin.Metadata.Values()[i])
		}
	}
	for i, k := range implied.Keys() {
		put(k, implied.Values()[i])
	}
	if id, ok := node.GetValue(fieldIDKey); ok && !strings.HasPrefix(id, "-") {
		put(fieldIDKey, id)
	}
	if len(keys) == 0 {
		return arrow.Metadata{}
	}
	return arrow.NewMetadata(keys, values)
}

// children returns the fields below a type; a map has two.
func children(t arrow.DataType) []arrow.Field {
	switch t := t.(type) {
	case *arrow.MapType:
		return []arrow.Field{t.KeyField(), t.ItemField()}
	case *arrow.StructType:
		return t.Fields()
	case arrow.ListLikeType:
		return []arrow.Field{t.ElemField()}
	}
	return nil
}

// sameLayout compares two types but for nullability, metadata and the names
// inside lists and maps. Dictionaries count as their values.
func sameLayout(a, b arrow.DataType) bool {
	if d, ok := a.(*arrow.DictionaryType); ok {
		return sameLayout(d.ValueType, b)
	}
	kids, others := children(a), children(b)
	if a.ID() != b.ID() || len(kids) != len(others) {
		return false
	}
	if l, ok := a.(*arrow.FixedSizeListType); ok && l.Len() != b.(*arrow.FixedSizeListType).Len() {
		return false
	}
	if len(kids) == 0 && a.ID() != arrow.STRUCT {
		return arrow.TypeEqual(a, b)
	}
	for i := range kids {
		if a.ID() == arrow.STRUCT && kids[i].Name != others[i].Name || !sameLayout(kids[i].Type, others[i].Type) {
			return false
		}
	}
	return true
}

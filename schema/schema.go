// Package schema holds the rules of Arrow schemas: projection, comparison, the contract between shards; it opens nothing.
package schema

import (
	"errors"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

var (
	// ErrDuplicate means that a name occurs twice where it must be unique.
	ErrDuplicate = errors.New("duplicate name")
	// ErrMismatch means that two shards of one dataset disagree about a field.
	ErrMismatch = errors.New("schema mismatch")
	// ErrUnknownColumn means that a path names no field.
	ErrUnknownColumn = errors.New("unknown column")
)

// Plain returns s as it is served: dictionary-encoded fields have their value
// type, extension types their storage type with the extension's name and
// metadata kept as field metadata, at every nesting depth. Byte order is the
// machine's; names, nullability and all other metadata stay.
func Plain(s *arrow.Schema) *arrow.Schema {
	md := s.Metadata()
	return arrow.NewSchema(plainFields(s.Fields()), &md)
}

func plainFields(fields []arrow.Field) []arrow.Field {
	out := make([]arrow.Field, len(fields))
	for i, f := range fields {
		out[i] = plainField(f)
	}
	return out
}

func plainField(f arrow.Field) arrow.Field {
	switch t := f.Type.(type) {
	case *arrow.DictionaryType:
		f.Type = t.ValueType
		return plainField(f)
	case arrow.ExtensionType:
		f.Metadata = withExtension(f.Metadata, t.ExtensionName(), t.Serialize())
		f.Type = t.StorageType()
		return plainField(f)
	}
	f.Type = rebuild(f.Type, plainFields(children(f.Type)))
	return f
}

// withExtension returns md with the two keys that mark an extension type. An
// outer extension wins over one that its storage claims.
func withExtension(md arrow.Metadata, name, serialized string) arrow.Metadata {
	if _, ok := md.GetValue(ipc.ExtensionTypeKeyName); ok {
		return md
	}
	keys := append([]string{}, md.Keys()...)
	values := append([]string{}, md.Values()...)
	return arrow.NewMetadata(
		append(keys, ipc.ExtensionTypeKeyName, ipc.ExtensionMetadataKeyName),
		append(values, name, serialized))
}

// Check refuses schemas in which a name occurs twice among the columns or
// among the children of one struct, with ErrDuplicate.
func Check(s *arrow.Schema) error { return checkFields(s.Fields(), nil, true) }

func checkFields(fields []arrow.Field, path []string, unique bool) error {
	seen := make(map[string]bool, len(fields))
	for _, f := range fields {
		at := append(path[:len(path):len(path)], f.Name)
		if unique && seen[f.Name] {
			return fmt.Errorf("%w: column %s", ErrDuplicate, quotePath(at))
		}
		seen[f.Name] = true
		_, isStruct := f.Type.(*arrow.StructType)
		if err := checkFields(children(f.Type), at, isStruct); err != nil {
			return err
		}
	}
	return nil
}

func quotePath(path []string) string { return fmt.Sprintf("%q", strings.Join(path, ".")) }

// children returns the fields that a type is built from, nil for a leaf. A
// map has two, its key and its item.
func children(t arrow.DataType) []arrow.Field {
	switch t := t.(type) {
	case *arrow.MapType:
		return []arrow.Field{t.KeyField(), t.ItemField()}
	case *arrow.RunEndEncodedType:
		return []arrow.Field{{Name: "values", Type: t.Encoded(), Nullable: t.ValueNullable}}
	case *arrow.StructType:
		return t.Fields()
	case arrow.UnionType:
		return t.Fields()
	case arrow.ListLikeType:
		return []arrow.Field{t.ElemField()}
	}
	return nil
}

// rebuild returns a type like t over other children, as many as children(t)
// returned.
func rebuild(t arrow.DataType, kids []arrow.Field) arrow.DataType {
	switch t := t.(type) {
	case *arrow.StructType:
		return arrow.StructOf(kids...)
	case *arrow.ListType:
		return arrow.ListOfField(kids[0])
	case *arrow.LargeListType:
		return arrow.LargeListOfField(kids[0])
	case *arrow.ListViewType:
		return arrow.ListViewOfField(kids[0])
	case *arrow.LargeListViewType:
		return arrow.LargeListViewOfField(kids[0])
	case *arrow.FixedSizeListType:
		return arrow.FixedSizeListOfField(t.Len(), kids[0])
	case *arrow.MapType:
		kids[0].Nullable = false // keys never are, whatever a file claims
		m := arrow.MapOfFields(kids[0], kids[1])
		m.KeysSorted = t.KeysSorted
		return m
	case arrow.UnionType:
		return arrow.UnionOf(t.Mode(), kids, t.TypeCodes())
	case *arrow.RunEndEncodedType:
		r := arrow.RunEndEncodedOf(t.RunEnds(), kids[0].Type)
		r.ValueNullable = kids[0].Nullable
		return r
	}
	return t
}

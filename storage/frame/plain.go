package frame

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Plain returns arr with values in the place of dictionaries and storage in
// the place of extension types, at any depth; an array without either is
// returned as it is. The result is the caller's to release. Indices outside of
// their dictionary are ErrCorrupt, as a *RowError if arr itself consists of
// them; values past what 32-bit offsets reach are ErrOverflow. Memory comes
// from mem, which may panic when it has none.
func Plain(mem memory.Allocator, arr arrow.Array) (arrow.Array, error) {
	data, err := plain(mem, arr.Data())
	if err != nil {
		return nil, err
	}
	defer data.Release()
	return array.MakeFromData(data), nil
}

// plain is Plain for array data; its result is the caller's to release.
func plain(mem memory.Allocator, data arrow.ArrayData) (arrow.ArrayData, error) {
	t := data.DataType()
	want := plainType(t)
	if want == t {
		data.Retain()
		return data, nil
	}
	if storage(t).ID() == arrow.DICTIONARY {
		return decode(mem, data)
	}
	children := make([]arrow.ArrayData, 0, len(data.Children()))
	defer func() {
		for _, c := range children {
			c.Release()
		}
	}()
	for _, c := range data.Children() {
		child, err := plain(mem, c)
		if err != nil {
			return nil, below(err)
		}
		children = append(children, child)
	}
	return array.NewData(want, data.Len(), data.Buffers(), children, data.NullN(), data.Offset()), nil
}

// below takes the row out of an error: those of children and dictionaries are
// not those of the column.
func below(err error) error {
	var at *RowError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// plainType returns the type of what Plain makes of an array of type t: t
// itself if it needs nothing. Names of nested extension types are left to the schema.
func plainType(t arrow.DataType) arrow.DataType {
	switch t := t.(type) {
	case arrow.ExtensionType:
		return plainType(t.StorageType())
	case *arrow.DictionaryType:
		return plainType(t.ValueType)
	case arrow.NestedType:
		fields, changed := t.Fields(), false
		for i := range fields {
			p := plainType(fields[i].Type)
			changed = changed || p != fields[i].Type
			fields[i].Type = p
		}
		if changed {
			return rebuilt(t, fields)
		}
	}
	return t
}

// rebuilt is t with other children.
func rebuilt(t arrow.NestedType, f []arrow.Field) arrow.DataType {
	switch t := t.(type) {
	case *arrow.ListType:
		return arrow.ListOfField(f[0])
	case *arrow.LargeListType:
		return arrow.LargeListOfField(f[0])
	case *arrow.ListViewType:
		return arrow.ListViewOfField(f[0])
	case *arrow.LargeListViewType:
		return arrow.LargeListViewOfField(f[0])
	case *arrow.FixedSizeListType:
		return arrow.FixedSizeListOfField(t.Len(), f[0])
	case *arrow.MapType:
		entries := f[0].Type.(*arrow.StructType).Fields()
		m := arrow.MapOfFields(entries[0], entries[1])
		m.KeysSorted = t.KeysSorted
		return m
	case arrow.UnionType:
		return arrow.UnionOf(t.Mode(), f, t.TypeCodes())
	case *arrow.RunEndEncodedType:
		r := arrow.RunEndEncodedOf(f[0].Type, f[1].Type)
		r.ValueNullable = t.ValueNullable
		return r
	}
	return arrow.StructOf(f...)
}

// decode takes the dictionary's values by the indices of data.
func decode(mem memory.Allocator, data arrow.ArrayData) (arrow.ArrayData, error) {
	dictionary := data.Dictionary()
	if dictionary == nil {
		return nil, fmt.Errorf("%w: indices without a dictionary", ErrCorrupt)
	}
	values, err := plain(mem, dictionary)
	if err != nil {
		return nil, below(err)
	}
	defer values.Release()
	scratch := mem.Allocate(4 * data.Len())
	defer mem.Free(scratch)
	rows := unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(scratch))), data.Len())
	if err := resolve(data, columnOf(values), rows); err != nil {
		return nil, err
	}
	return take(mem, values, rows)
}

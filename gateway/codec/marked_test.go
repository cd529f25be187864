package codec

import (
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

var heap = memory.DefaultAllocator

// mark is in every value of the rows that a slice of rows 8 to 11 leaves out.
const mark = "SECRET!!"

// markedColumns are 20 rows of each layout that holds bytes of different rows side by side.
func markedColumns(t *testing.T) map[string]arrow.RecordBatch {
	t.Helper()
	text := func(i int) string {
		if i >= 8 && i < 12 {
			return fmt.Sprintf("wanted row %d, longer than a view holds", i)
		}
		return fmt.Sprintf("%s row %d, longer than a view holds", mark, i)
	}
	fixed := &arrow.FixedSizeBinaryType{ByteWidth: 8}
	types := map[string]arrow.DataType{
		"string": arrow.BinaryTypes.String, "large_binary": arrow.BinaryTypes.LargeBinary, "view": arrow.BinaryTypes.StringView, "fixed": fixed,
		"list": arrow.ListOf(arrow.BinaryTypes.String), "large_list": arrow.LargeListOf(arrow.BinaryTypes.StringView),
		"fixed_list": arrow.FixedSizeListOf(1, fixed), "list_view": arrow.ListViewOf(arrow.BinaryTypes.String),
		"struct": arrow.StructOf(arrow.Field{Name: "s", Type: arrow.BinaryTypes.String}),
		"map":    arrow.MapOf(arrow.BinaryTypes.String, arrow.BinaryTypes.StringView),
		"ree":    arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.String),
		"sparse": arrow.SparseUnionOf([]arrow.Field{{Name: "s", Type: arrow.BinaryTypes.String}}, []arrow.UnionTypeCode{5}),
		"dense":  arrow.DenseUnionOf([]arrow.Field{{Name: "s", Type: arrow.BinaryTypes.String}}, []arrow.UnionTypeCode{5}),
	}
	out := map[string]arrow.RecordBatch{}
	for name, kind := range types {
		b := array.NewBuilder(heap, kind)
		for i := range 20 {
			appendText(b, text(i))
		}
		rec := arrow.NewSchema([]arrow.Field{{Name: "x", Type: kind, Nullable: true}}, nil)
		out[name] = array.NewRecordBatch(rec, []arrow.Array{b.NewArray()}, 20)
	}
	out["null rows of a view"] = hiddenView(text)
	return out
}

// appendText appends one row whose every leaf holds the text, or its first 8 bytes.
func appendText(b array.Builder, text string) {
	switch b := b.(type) {
	case *array.StringBuilder:
		b.Append(text)
	case *array.BinaryBuilder:
		b.Append([]byte(text))
	case *array.StringViewBuilder:
		b.Append(text)
	case *array.FixedSizeBinaryBuilder:
		b.Append([]byte(text[:8]))
	case *array.MapBuilder:
		b.Append(true)
		appendText(b.KeyBuilder(), text)
		appendText(b.ItemBuilder(), text)
	case *array.FixedSizeListBuilder:
		b.Append(true)
		appendText(b.ValueBuilder(), text)
	case array.VarLenListLikeBuilder:
		b.AppendWithSize(true, 1)
		appendText(b.ValueBuilder(), text)
	case *array.StructBuilder:
		b.Append(true)
		appendText(b.FieldBuilder(0), text)
	case *array.RunEndEncodedBuilder:
		b.Append(1)
		appendText(b.ValueBuilder(), text)
	case *array.SparseUnionBuilder:
		b.Append(5)
		appendText(b.Child(0), text)
	case *array.DenseUnionBuilder:
		b.Append(5)
		appendText(b.Child(0), text)
	default:
		panic(fmt.Sprintf("no text for %T", b))
	}
}

// hiddenView has a null among its wanted rows whose view still holds the bytes of a row that is left out.
func hiddenView(text func(int) string) arrow.RecordBatch {
	b := array.NewStringViewBuilder(heap)
	for i := range 20 {
		b.Append(text(i))
	}
	d := b.NewArray().Data()
	views := append([]byte(nil), d.Buffers()[1].Bytes()...)
	copy(views[16*9:], views[:16]) // its prefix is half of the mark
	copy(views[16*9+4:], mark)
	valid := []byte{0xff, 0xff &^ 2, 0xff}
	hidden := array.NewData(d.DataType(), 20, []*memory.Buffer{memory.NewBufferBytes(valid), memory.NewBufferBytes(views), d.Buffers()[2]}, nil, -1, 0)
	s := arrow.NewSchema([]arrow.Field{{Name: "x", Type: d.DataType(), Nullable: true}}, nil)
	return array.NewRecordBatch(s, []arrow.Array{array.MakeFromData(hidden)}, 20)
}

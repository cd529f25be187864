package frame

import (
	"errors"
	"math"
	"math/rand"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"

	"github.com/headrace/headrace/storage/arrowtest"
)

var indexTypes = []arrow.DataType{
	arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Uint16,
	arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Uint32, arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Uint64,
}

// dictionary makes n rows that point into size values, and the rows they mean.
func dictionary(m *arrowtest.Maker, index, value arrow.DataType, n, size int) (arrow.ArrayData, []any) {
	values := m.Data(value, size)
	width := int64(index.(arrow.FixedWidthDataType).BitWidth() / 8)
	skip := m.Intn(4)
	mem := make([]byte, int64(n+skip)*width)
	valid := m.Bytes((n+skip)/8 + 1)
	var want []any
	for i := range n + skip {
		row := m.Intn(size)
		mem[int64(i)*width] = byte(row)
		if i < skip {
			continue
		}
		if valid[i/8]>>(i%8)&1 == 0 {
			mem[int64(i)*width] = 0xFF // a null's index leads nowhere
			want = append(want, nil)
		} else {
			want = append(want, valueOf(values, row))
		}
	}
	buffers := []*memory.Buffer{memory.NewBufferBytes(valid), memory.NewBufferBytes(mem)}
	t := &arrow.DictionaryType{IndexType: index, ValueType: value}
	return array.NewDataWithDictionary(t, n, buffers, array.UnknownNullCount, skip, values.(*array.Data)), want
}

// checkPlain decodes data and compares the rows.
func checkPlain(t rapid.TB, mem memory.Allocator, data arrow.ArrayData, want []any) {
	t.Helper()
	arr := array.MakeFromData(data)
	got, err := Plain(mem, arr)
	if err != nil {
		t.Fatalf("%s: %v", data.DataType(), err)
	}
	if rows := rowsOf(got, 0, got.Len()); !same(rows, want) {
		t.Fatalf("%s:\ngot  %v\nwant %v", data.DataType(), rows, want)
	}
	got.Release()
}

func TestPlainTakesTheValuesOfDictionaries(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	r := rand.New(rand.NewSource(3))
	for _, index := range indexTypes {
		for _, value := range arrowtest.Flat {
			m := &arrowtest.Maker{Rand: r, Nulls: r.Intn(2) > 0}
			data, want := dictionary(m, index, value, r.Intn(50), 1+r.Intn(20))
			checkPlain(t, mem, data, want)
		}
	}
}

func TestPlainTakesNestedValues(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	r := rand.New(rand.NewSource(4))
	for way := range 9 { // without unions and runs
		for range 10 {
			m := &arrowtest.Maker{Rand: r, Nulls: true}
			value := arrowtest.Nest(r, way, 0)
			data, want := dictionary(m, indexTypes[r.Intn(8)], value, r.Intn(30), 1+r.Intn(9))
			checkPlain(t, mem, data, want)
		}
	}
}

func TestPlainReachesDictionariesAtAnyDepth(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	m := &arrowtest.Maker{Rand: rand.New(rand.NewSource(5)), Nulls: true}
	dict, want := dictionary(m, arrow.PrimitiveTypes.Int16, arrow.BinaryTypes.String, 6, 4)
	offsets := memory.NewBufferBytes(arrow.Int32Traits.CastToBytes([]int32{0, 2, 2, 6}))
	lists := array.NewData(arrow.ListOf(dict.DataType()), 3, []*memory.Buffer{nil, offsets}, []arrow.ArrayData{dict}, 0, 0)
	field := arrow.Field{Name: "list", Type: lists.DataType(), Nullable: true}
	records := array.NewData(arrow.StructOf(field), 2, []*memory.Buffer{nil}, []arrow.ArrayData{lists}, 0, 1)
	checkPlain(t, mem, records, []any{[]any{[]any{}}, []any{want[2:6]}})

	arr := array.MakeFromData(records)
	got, err := Plain(mem, arr)
	if err != nil {
		t.Fatal(err)
	}
	if name := got.DataType().String(); name != "struct<list: list<item: utf8, nullable> nullable>" {
		t.Error(name)
	}
	got.Release()
}

func TestPlainLooksThroughExtensions(t *testing.T) {
	ids := extensions.NewUUIDBuilder(memory.DefaultAllocator)
	ids.AppendNull()
	ids.AppendBytes([16]byte{1, 2, 3})
	arr := ids.NewArray()
	got, err := Plain(memory.DefaultAllocator, arr)
	if err != nil {
		t.Fatal(err)
	}
	if got.DataType().String() != "fixed_size_binary[16]" || !got.IsNull(0) || got.(*array.FixedSizeBinary).Value(1)[2] != 3 {
		t.Error(got)
	}
	plainAgain, err := Plain(memory.DefaultAllocator, got)
	if err != nil || plainAgain.Data() != got.Data() {
		t.Error("a plain array was not left as it is", err)
	}
}

func TestPlainRefusesWhatLeadsNowhere(t *testing.T) {
	text := func(offsets ...int32) *array.Data {
		return array.NewData(arrow.BinaryTypes.String, len(offsets)-1,
			[]*memory.Buffer{nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets)), memory.NewBufferBytes(make([]byte, 10))}, nil, 0, 0)
	}
	t8 := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	for name, c := range map[string]struct {
		index  byte
		length int
		values *array.Data
	}{
		"index too large":  {3, 1, text(0, 1, 2, 3)},
		"negative index":   {0xFF, 1, text(0, 1, 2, 3)},
		"empty dictionary": {0, 1, text(0)},
		"short indices":    {0, 5, text(0, 1)},
		"offsets go back":  {0, 1, text(5, 1)},
		"offsets too far":  {0, 1, text(0, 11)},
	} {
		data := array.NewDataWithDictionary(t8, c.length, []*memory.Buffer{nil, memory.NewBufferBytes([]byte{c.index})}, 0, 0, c.values)
		if _, err := plain(memory.DefaultAllocator, data); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPlainRefusesOffsetsThatOverflow(t *testing.T) {
	const size, n = 1 << 20, 2049
	offsets := memory.NewBufferBytes(arrow.Int32Traits.CastToBytes([]int32{0, size}))
	value := array.NewData(arrow.BinaryTypes.Binary, 1, []*memory.Buffer{nil, offsets, memory.NewBufferBytes(make([]byte, size))}, nil, 0, 0)
	typ := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.Binary}
	data := array.NewDataWithDictionary(typ, n, []*memory.Buffer{nil, memory.NewBufferBytes(make([]byte, n))}, 0, 0, value)
	if n*size <= math.MaxInt32 {
		t.Fatal("the test is too small")
	}
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	if _, err := plain(mem, data); !errors.Is(err, ErrOverflow) {
		t.Error(err)
	}
	mem.AssertSize(t, 0)
}

// The shape of a nested type stays, whatever it holds.
func TestPlainTypeRebuildsEveryNesting(t *testing.T) {
	shapes := func(v arrow.DataType) []arrow.DataType {
		f := []arrow.Field{{Name: "a", Type: v, Nullable: true}, {Name: "b", Type: arrow.PrimitiveTypes.Int8}}
		codes := []arrow.UnionTypeCode{7, 3}
		sorted := arrow.MapOf(arrow.BinaryTypes.String, v)
		sorted.KeysSorted = true
		return []arrow.DataType{
			arrow.ListOfNonNullable(v), arrow.LargeListOf(v), arrow.FixedSizeListOf(3, v), arrow.ListViewOf(v), arrow.LargeListViewOf(v),
			arrow.StructOf(f...), sorted, arrow.SparseUnionOf(f, codes), arrow.DenseUnionOf(f, codes),
			arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int16, v), arrow.ListOf(arrow.StructOf(f...)),
		}
	}
	encoded := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.LargeString}
	want := shapes(arrow.BinaryTypes.LargeString)
	for i, typ := range shapes(encoded) {
		if got := plainType(typ); !arrow.TypeEqual(got, want[i], arrow.CheckMetadata()) {
			t.Errorf("%s became %s", typ, got)
		}
		if plainType(want[i]) != want[i] {
			t.Errorf("%s was not left as it is", want[i])
		}
	}
}

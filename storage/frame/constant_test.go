package frame

import (
	"bytes"
	"errors"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/float16"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"
)

// assembled makes a frame of one column and gives its array to use.
func assembled(t testing.TB, c Column, from, to int64, use func(arrow.Array)) {
	t.Helper()
	_, g, pool := world(t, 1<<28)
	s := arrow.NewSchema([]arrow.Field{{Name: "c", Type: c.Type, Nullable: true}}, nil)
	leases, err := pool.AssembleParts(g, "frames", s, Piece{Columns: []Column{c}, From: from, To: to})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leases {
		use(l.Batch().Column(0))
		l.Release()
	}
}

func TestNullsOfEveryType(t *testing.T) {
	kids := []arrow.Field{{Name: "a", Type: arrow.BinaryTypes.String, Nullable: true}, {Name: "b", Type: arrow.PrimitiveTypes.Int16, Nullable: true}}
	for _, typ := range []arrow.DataType{
		arrow.Null, arrow.FixedWidthTypes.Boolean, arrow.PrimitiveTypes.Int64, arrow.BinaryTypes.String, arrow.BinaryTypes.LargeBinary,
		arrow.BinaryTypes.StringView, &arrow.FixedSizeBinaryType{ByteWidth: 5}, &arrow.Decimal256Type{Precision: 40, Scale: 2},
		arrow.ListOf(arrow.PrimitiveTypes.Int8), arrow.LargeListOf(arrow.BinaryTypes.String), arrow.FixedSizeListOf(3, arrow.PrimitiveTypes.Float32),
		arrow.ListViewOf(arrow.PrimitiveTypes.Int8), arrow.StructOf(kids...), arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int8),
	} {
		c, err := Nulls(typ, 1000)
		if err != nil {
			t.Fatal(err)
		}
		assembled(t, c, 7, 907, func(a arrow.Array) {
			if a.Len() != 900 || a.NullN() != 900 || !arrow.TypeEqual(a.DataType(), typ) {
				t.Errorf("%v: %d nulls in %d rows", a.DataType(), a.NullN(), a.Len())
			}
		})
	}
	for _, typ := range []arrow.DataType{arrow.SparseUnionOf(kids, []arrow.UnionTypeCode{3, 5}), arrow.DenseUnionOf(kids, []arrow.UnionTypeCode{3, 5})} {
		c, err := Nulls(typ, 100)
		if err != nil {
			t.Fatal(err)
		}
		assembled(t, c, 10, 90, func(a arrow.Array) {
			for i := range a.Len() {
				u := a.(array.Union)
				if a.Len() != 80 || u.ChildID(i) != 0 || !a.(array.Union).Field(0).IsNull(i) {
					t.Fatalf("%v: row %d", typ, i)
				}
			}
		})
	}
	if _, err := Nulls(arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int8), 1); !errors.Is(err, ErrUnsupported) {
		t.Errorf("%v, want ErrUnsupported", err)
	}
}

func TestRepeat(t *testing.T) {
	for _, tt := range []struct {
		typ  arrow.DataType
		text string
	}{
		{arrow.PrimitiveTypes.Int64, "-7"},
		{arrow.PrimitiveTypes.Uint8, "255"},
		{arrow.FixedWidthTypes.Boolean, "true"},
		{arrow.FixedWidthTypes.Boolean, "false"},
		{arrow.FixedWidthTypes.Date32, "2024-02-29"},
		{arrow.BinaryTypes.String, "Brand#21"},
		{arrow.BinaryTypes.String, ""},
		{arrow.BinaryTypes.LargeString, "ü"},
	} {
		b := array.NewBuilder(memory.DefaultAllocator, tt.typ)
		if err := b.AppendValueFromString(tt.text); err != nil {
			t.Fatal(err)
		}
		one := b.NewArray()
		c, err := Repeat(one, 1000)
		if err != nil {
			t.Fatal(err)
		}
		assembled(t, c, 3, 997, func(a arrow.Array) {
			if a.Len() != 994 || a.NullN() != 0 {
				t.Errorf("%v: %d rows, %d nulls", tt.typ, a.Len(), a.NullN())
			}
			for i := range a.Len() {
				if a.ValueStr(i) != tt.text {
					t.Fatalf("%v: row %d is %q, want %q", tt.typ, i, a.ValueStr(i), tt.text)
				}
			}
		})
	}
	b := array.NewStringBuilder(memory.DefaultAllocator)
	b.AppendNull()
	c, err := Repeat(b.NewArray(), 10)
	if err != nil || c.Nulls != 10 {
		t.Errorf("a null repeated: %+v, %v", c, err)
	}
}

// Wherever it is read, a period is what its pattern says.
func TestPeriodProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.SliceOfN(rapid.Byte(), 1, 9).Draw(t, "pattern")
		off := rapid.IntRange(0, 40).Draw(t, "offset")
		p := make([]byte, rapid.IntRange(0, 100).Draw(t, "length"))
		if n, err := period(pattern).ReadAt(p, int64(off)); n != len(p) || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		if want := bytes.Repeat(pattern, 150)[off : off+len(p)]; !bytes.Equal(p, want) {
			t.Fatalf("%v, want %v", p, want)
		}
	})
}

// Texts past what 32-bit offsets reach are cut by rows, not wrapped.
func TestB93RepeatedTextIsCutByRows(t *testing.T) {
	b := array.NewStringBuilder(memory.DefaultAllocator)
	text := string(bytes.Repeat([]byte("x"), 1<<20))
	b.Append(text)
	one := b.NewArray()
	c, err := Repeat(one, 3000) // 3 GB of one text
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Measure(arrow.NewSchema([]arrow.Field{{Name: "c", Type: c.Type}}, nil), []Piece{{Columns: []Column{c}, To: 3000}}); !errors.Is(err, ErrOverflow) {
		t.Fatalf("%v, want ErrOverflow", err)
	}
	if c, err = Repeat(one, 100); err != nil {
		t.Fatal(err)
	}
	var rows int
	assembled(t, c, 0, 100, func(a arrow.Array) {
		rows += a.Len()
		if last := a.(*array.String).Value(a.Len() - 1); last != text {
			t.Errorf("the last text has %d bytes", len(last))
		}
	})
	if rows != 100 {
		t.Errorf("%d rows, want 100", rows)
	}
}

func TestWiden(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	parse := func(typ arrow.DataType, text string) arrow.Array {
		arr, _, err := array.FromJSON(mem, typ, bytes.NewReader([]byte(text)))
		if err != nil {
			t.Fatal(err)
		}
		return arr
	}
	field := func(name string, typ arrow.DataType) arrow.Field {
		return arrow.Field{Name: name, Type: typ, Nullable: true}
	}
	for name, tt := range map[string]struct {
		from, to   arrow.DataType
		have, want string
	}{
		"int8":    {arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Int64, `[-128, null, 127]`, `[-128, null, 127]`},
		"uint32":  {arrow.PrimitiveTypes.Uint32, arrow.PrimitiveTypes.Int64, `[4294967295, 0]`, `[4294967295, 0]`},
		"float":   {arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64, `[0.5, null]`, `[0.5, null]`},
		"to real": {arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Float64, `[2147483647]`, `[2147483647]`},
		"null":    {arrow.Null, arrow.BinaryTypes.String, `[null, null]`, `[null, null]`},
		"list":    {arrow.ListOf(arrow.PrimitiveTypes.Int8), arrow.ListOf(arrow.PrimitiveTypes.Int32), `[[1], null, [], [2, 3]]`, `[[1], null, [], [2, 3]]`},
		"nothing in a list": {
			arrow.ListOf(arrow.Null), arrow.ListOf(arrow.BinaryTypes.String), `[[], [null]]`, `[[], [null]]`,
		},
		"fixed list": {
			arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Float32), arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Float64), `[[1, 2], null]`, `[[1, 2], null]`,
		},
		"struct": {
			arrow.StructOf(field("a", arrow.PrimitiveTypes.Int8), field("b", arrow.BinaryTypes.String), field("gone", arrow.BinaryTypes.String)),
			arrow.StructOf(field("b", arrow.BinaryTypes.String), field("new", arrow.PrimitiveTypes.Int8), field("a", arrow.PrimitiveTypes.Int16)),
			`[{"a": 1, "b": "x", "gone": "y"}, null, {"a": 3}]`, `[{"a": 1, "b": "x"}, null, {"a": 3}]`,
		},
	} {
		have, want := parse(tt.from, tt.have), parse(tt.to, tt.want)
		for skip := range have.Len() { // also a part of an array
			part, rest := array.NewSlice(have, int64(skip), int64(have.Len())), array.NewSlice(want, int64(skip), int64(want.Len()))
			got, err := Widen(mem, part, tt.to)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if !array.Equal(got, rest) {
				t.Errorf("%s from %d: %v, want %v", name, skip, got, rest)
			}
			got.Release()
			part.Release()
			rest.Release()
		}
		have.Release()
		want.Release()
	}
	text := parse(arrow.BinaryTypes.String, `["1"]`)
	defer text.Release()
	if _, err := Widen(mem, text, arrow.PrimitiveTypes.Int8); !errors.Is(err, ErrUnsupported) {
		t.Errorf("%v, want ErrUnsupported", err)
	}
}

func TestHalvesWiden(t *testing.T) {
	b := array.NewFloat16Builder(memory.DefaultAllocator)
	b.Append(float16.New(1.5))
	got, err := Widen(memory.DefaultAllocator, b.NewArray(), arrow.PrimitiveTypes.Float64)
	if err != nil || got.(*array.Float64).Value(0) != 1.5 {
		t.Errorf("%v, %v", got, err)
	}
	i := array.NewInt8Builder(memory.DefaultAllocator)
	i.Append(-3)
	got, err = Widen(memory.DefaultAllocator, i.NewArray(), arrow.FixedWidthTypes.Float16)
	if err != nil || got.(*array.Float16).Value(0).Float32() != -3 {
		t.Errorf("%v, %v", got, err)
	}
}

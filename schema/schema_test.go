package schema

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"
)

var (
	i32  = arrow.PrimitiveTypes.Int32
	i64  = arrow.PrimitiveTypes.Int64
	text = arrow.BinaryTypes.String
	dict = &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: text}
)

func field(name string, t arrow.DataType) arrow.Field { return arrow.Field{Name: name, Type: t} }

func nullable(f arrow.Field) arrow.Field { f.Nullable = true; return f }

func of(fields ...arrow.Field) *arrow.Schema { return arrow.NewSchema(fields, nil) }

func TestPlainReachesEveryDepth(t *testing.T) {
	uuid := extensions.NewUUIDType()
	union := func(in arrow.DataType) arrow.DataType {
		return arrow.DenseUnionOf([]arrow.Field{field("a", in), field("b", i32)}, []arrow.UnionTypeCode{3, 5})
	}
	for _, wrap := range []func(arrow.DataType) arrow.DataType{
		func(in arrow.DataType) arrow.DataType { return in },
		func(in arrow.DataType) arrow.DataType { return arrow.ListOf(in) },
		func(in arrow.DataType) arrow.DataType { return arrow.LargeListOf(in) },
		func(in arrow.DataType) arrow.DataType { return arrow.ListViewOf(in) },
		func(in arrow.DataType) arrow.DataType { return arrow.LargeListViewOf(in) },
		func(in arrow.DataType) arrow.DataType { return arrow.FixedSizeListOf(3, in) },
		func(in arrow.DataType) arrow.DataType { return arrow.StructOf(field("s", in)) },
		func(in arrow.DataType) arrow.DataType { return arrow.MapOf(text, arrow.ListOf(in)) },
		func(in arrow.DataType) arrow.DataType { return arrow.RunEndEncodedOf(i32, in) },
		union,
	} {
		got := Plain(of(field("x", wrap(dict)))).Field(0).Type
		if want := wrap(text); !arrow.TypeEqual(got, want) {
			t.Errorf("Plain(%s) = %s, want %s", wrap(dict), got, want)
		}
	}
	f := Plain(of(field("x", arrow.ListOf(uuid)))).Field(0).Type.(*arrow.ListType).ElemField()
	if name, _ := f.Metadata.GetValue(ipc.ExtensionTypeKeyName); name != "arrow.uuid" || f.Type.ID() != arrow.FIXED_SIZE_BINARY {
		t.Errorf("uuid became %v", f)
	}
}

func TestPlainKeepsMetadata(t *testing.T) {
	md := arrow.NewMetadata([]string{"b", "a"}, []string{"1", "2"})
	s := arrow.NewSchema([]arrow.Field{{Name: "x", Type: extensions.NewBool8Type(), Metadata: md}}, &md)
	p := Plain(s)
	if !p.Metadata().Equal(md) {
		t.Error("schema metadata changed")
	}
	got := p.Field(0).Metadata
	if want := []string{"b", "a", ipc.ExtensionTypeKeyName, ipc.ExtensionMetadataKeyName}; strings.Join(got.Keys(), ",") != strings.Join(want, ",") {
		t.Errorf("keys are %v, want %v", got.Keys(), want)
	}
}

// The plain form must reach clients as if the extension had never been touched.
func TestPlainExtensionReadsBackAsExtension(t *testing.T) {
	s := of(field("x", extensions.NewUUIDType()))
	r, err := ipc.NewReader(bytes.NewReader(Encapsulated(Message(Plain(s)))))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	if !r.Schema().Equal(s) {
		t.Errorf("read back %v, want %v", r.Schema(), s)
	}
}

func TestCheck(t *testing.T) {
	twice := arrow.StructOf(field("a", i32), field("a", i32))
	for _, tt := range []struct {
		name, at string
		s        *arrow.Schema
	}{
		{"empty", "", of()},
		{"distinct", "", of(field("a", i32), field("A", twice.Field(0).Type))},
		{"columns", `"a"`, of(field("a", i32), field("b", i32), field("a", text))},
		{"struct", `"s.a"`, of(field("s", twice))},
		{"list of struct", `"l.item.a"`, of(field("l", arrow.ListOf(twice)))},
		{"map of struct", `"m.value.a"`, of(field("m", arrow.MapOf(text, twice)))},
		{"union members may share a name", "", of(field("u", arrow.SparseUnionOf([]arrow.Field{field("a", i32), field("a", text)}, []arrow.UnionTypeCode{0, 1})))},
	} {
		err := Check(tt.s)
		if (err == nil) != (tt.at == "") || err != nil && (!errors.Is(err, ErrDuplicate) || !strings.Contains(err.Error(), tt.at)) {
			t.Errorf("%s: %v, want a duplicate at %s", tt.name, err, tt.at)
		}
	}
}

func TestContractJoins(t *testing.T) {
	inner := func(null bool) arrow.DataType {
		return arrow.StructOf(arrow.Field{Name: "k", Type: arrow.ListOfField(arrow.Field{Name: "e", Type: i32, Nullable: null})})
	}
	first := arrow.NewMetadata([]string{"who"}, []string{"first"})
	second := arrow.NewMetadata([]string{"who"}, []string{"second"})
	c := NewContract(Rule{})
	if c.Schema() != nil {
		t.Fatal("a contract of nobody has a schema")
	}
	must(t, c.Add("1", arrow.NewSchema([]arrow.Field{field("a", i32), field("b", inner(false))}, &first)))
	must(t, c.Add("2", arrow.NewSchema([]arrow.Field{field("b", inner(true)), nullable(field("a", i32))}, &second)))
	want := of(nullable(field("a", i32)), field("b", inner(true)))
	if got := c.Schema(); !got.Equal(want) || !got.Metadata().Equal(first) {
		t.Errorf("joined %v, want %v with the first one's metadata", got, want)
	}
}

func TestContractIgnoresNamesInsideLists(t *testing.T) {
	c := NewContract(Rule{})
	must(t, c.Add("1", of(field("l", arrow.ListOfField(field("item", i32))))))
	must(t, c.Add("2", of(field("l", arrow.ListOfField(field("element", i32))))))
	if got := c.Schema().Field(0).Type.(*arrow.ListType).ElemField().Name; got != "item" {
		t.Errorf("the element is named %q, want the first shard's", got)
	}
}

func TestContractRefuses(t *testing.T) {
	ts := func(zone string) arrow.DataType { return &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: zone} }
	tensor := func(shape string) arrow.Field {
		return arrow.Field{Name: "x", Type: arrow.FixedSizeListOf(6, i32), Metadata: arrow.NewMetadata(
			[]string{ipc.ExtensionTypeKeyName, ipc.ExtensionMetadataKeyName}, []string{"arrow.fixed_shape_tensor", shape})}
	}
	for name, tt := range map[string]struct {
		a, b *arrow.Schema
		says []string
	}{
		"type":      {of(field("x", i32)), of(field("x", i64)), []string{`"x"`, "int32", "int64"}},
		"missing":   {of(field("x", i32), field("y", text)), of(field("x", i32)), []string{`"y"`, "utf8", "lacks"}},
		"added":     {of(field("x", i32)), of(field("x", i32), field("y", text)), []string{`"y"`, "utf8", "lacks"}},
		"zone":      {of(field("x", ts("UTC"))), of(field("x", ts(""))), []string{"tz=UTC"}},
		"width":     {of(field("x", arrow.FixedSizeListOf(2, i32))), of(field("x", arrow.FixedSizeListOf(3, i32))), []string{`"x"`}},
		"deep":      {of(field("x", arrow.ListOf(arrow.StructOf(field("y", i32))))), of(field("x", arrow.ListOf(arrow.StructOf(field("y", i64))))), []string{`"x.item.y"`, "int32", "int64"}},
		"in struct": {of(field("x", arrow.StructOf(field("y", i32), field("z", i32)))), of(field("x", arrow.StructOf(field("z", i32), field("y", i32)))), []string{`"x"`, "struct<y", "struct<z"}},
		"extension": {of(tensor(`{"shape":[2,3]}`)), of(tensor(`{"shape":[3,2]}`)), []string{"[2,3]", "[3,2]"}},
	} {
		c := NewContract(Rule{})
		must(t, c.Add("one.parquet", tt.a))
		err := c.Add("two.parquet", tt.b)
		if !errors.Is(err, ErrMismatch) {
			t.Errorf("%s: %v, want ErrMismatch", name, err)
			continue
		}
		for _, part := range append(tt.says, "one.parquet", "two.parquet") {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", name, err, part)
			}
		}
		if !c.Schema().Equal(tt.a) {
			t.Errorf("%s: a refused shard changed the contract", name)
		}
	}
}

func TestB92FilesDifferOnlyInNullability(t *testing.T) {
	md := arrow.NewMetadata([]string{"made"}, []string{"later"})
	c := NewContract(Rule{})
	must(t, c.Add("a", of(field("x", i64))))
	must(t, c.Add("b", of(nullable(field("x", i64)))))
	must(t, c.Add("c", arrow.NewSchema([]arrow.Field{{Name: "x", Type: i64, Metadata: md}}, &md)))
	if want := of(nullable(field("x", i64))); !c.Schema().Equal(want) || c.Schema().Metadata().Len() != 0 {
		t.Errorf("joined %v, want %v", c.Schema(), want)
	}
}

// Whatever is joined: nullability only grows, and joining again changes nothing.
func TestContractProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawFields(t, 2)
		b := make([]arrow.Field, len(a))
		for i, f := range a {
			b[i] = renull(t, f)
		}
		c := NewContract(Rule{})
		if err := c.Add("a", of(a...)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := c.Add("b", of(b...)); err != nil {
				t.Fatal(err)
			}
		}
		for i, f := range c.Schema().Fields() {
			if !covers(f, a[i]) || !covers(f, b[i]) {
				t.Fatalf("%v does not cover %v and %v", f, a[i], b[i])
			}
		}
		once := c.Schema()
		if err := c.Add("a again", of(a...)); err != nil || !c.Schema().Equal(once) {
			t.Fatalf("joining again: %v, %v became %v", err, once, c.Schema())
		}
	})
}

func covers(joined, f arrow.Field) bool {
	kids, mine := children(joined.Type), children(f.Type)
	for i := range mine {
		if !covers(kids[i], mine[i]) {
			return false
		}
	}
	return len(kids) == len(mine) && (joined.Nullable || !f.Nullable)
}

func renull(t *rapid.T, f arrow.Field) arrow.Field {
	kids := children(f.Type)
	for i := range kids {
		kids[i] = renull(t, kids[i])
	}
	f.Type = rebuild(f.Type, kids)
	f.Nullable = rapid.Bool().Draw(t, "nullable")
	return f
}

func drawFields(t *rapid.T, depth int) []arrow.Field {
	names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-c]{1,2}`), 1, 4, rapid.ID[string]).Draw(t, "names")
	fields := make([]arrow.Field, len(names))
	for i, n := range names {
		fields[i] = arrow.Field{Name: n, Type: drawType(t, depth), Nullable: rapid.Bool().Draw(t, "null")}
	}
	return fields
}

func drawType(t *rapid.T, depth int) arrow.DataType {
	kind := rapid.IntRange(0, 8).Draw(t, "kind")
	if depth == 0 {
		kind %= 3
	}
	switch kind {
	case 0:
		return i32
	case 1:
		return text
	case 2:
		return arrow.FixedWidthTypes.Timestamp_us
	case 3:
		return arrow.StructOf(drawFields(t, depth-1)...)
	case 4:
		return arrow.ListOf(drawType(t, depth-1))
	case 5:
		return arrow.FixedSizeListOf(2, drawType(t, depth-1))
	case 6:
		return arrow.MapOf(text, drawType(t, depth-1))
	case 7:
		return arrow.LargeListViewOf(drawType(t, depth-1))
	}
	return arrow.SparseUnionOf([]arrow.Field{field("a", drawType(t, depth-1)), field("b", i64)}, []arrow.UnionTypeCode{1, 0})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestMessageIsTheStreamsFirstMessage(t *testing.T) {
	md := arrow.NewMetadata([]string{"z", "a"}, []string{"1", "2"})
	s := arrow.NewSchema([]arrow.Field{field("x", i32), nullable(field("y", arrow.ListOf(text)))}, &md)
	var want bytes.Buffer
	w := ipc.NewWriter(&want, ipc.WithSchema(s))
	b := array.NewRecordBuilder(memory.DefaultAllocator, s)
	must(t, w.Write(b.NewRecordBatch()))
	must(t, w.Close())
	got := Encapsulated(Message(s))
	if len(got)%8 != 0 || !bytes.HasPrefix(want.Bytes(), got) {
		t.Error("the encapsulated message is not what a stream starts with")
	}
	if !bytes.Equal(got, Encapsulated(Message(s))) {
		t.Error("two encodings of one schema differ")
	}
}

func TestFingerprintGolden(t *testing.T) {
	s := of(field("x", i32), nullable(field("y", text)))
	const want = "e9608720b071e7f8eba150a3fbcd7f8dbdfdd1e590c18cf20605546666faa015"
	if got := Fingerprint(s); got != want {
		t.Errorf("fingerprint is %s, want %s: clients keep these", got, want)
	}
}

package frame

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"

	"github.com/headrace/headrace/storage/budget"
)

// textOf makes an array of strings out of any bytes; nil is a null.
func textOf(t testing.TB, typ arrow.DataType, values ...[]byte) arrow.Array {
	t.Helper()
	b := array.NewBuilder(memory.DefaultAllocator, typ)
	for _, v := range values {
		if v == nil {
			b.AppendNull()
			continue
		}
		switch b := b.(type) {
		case *array.StringBuilder:
			b.Append(string(v))
		case *array.LargeStringBuilder:
			b.Append(string(v))
		case *array.StringViewBuilder:
			b.Append(string(v))
		default:
			t.Fatalf("no strings: %s", typ)
		}
	}
	return b.NewArray()
}

// badRow assembles all rows of an array and returns the row that the error names, -1 without an error.
func badRow(t testing.TB, p *Pool, g *budget.Grant, c Column, column string) int64 {
	t.Helper()
	l, err := p.Assemble(g, budget.Frames, schemaOf(c.Type), []Piece{{[]Column{c}, 0, c.Len}})
	if err == nil {
		l.Release()
		return -1
	}
	var at *RowError
	if !errors.As(err, &at) || !errors.Is(err, ErrCorrupt) || at.Column != column {
		t.Fatalf("%v, want a row of column %q", err, column)
	}
	if want := fmt.Sprintf("column %q: row %d: ", column, at.Row); !strings.HasPrefix(err.Error(), want) {
		t.Fatalf("%q, want %q...", err, want)
	}
	return at.Row
}

var textTypes = []arrow.DataType{arrow.BinaryTypes.String, arrow.BinaryTypes.LargeString, arrow.BinaryTypes.StringView}

func TestTextThatIsNotUTF8IsFound(t *testing.T) {
	_, g, p := world(t, 1<<22)
	long := bytes.Repeat([]byte("ö"), 50)
	for _, typ := range textTypes {
		for name, c := range map[string]struct {
			values [][]byte
			row    int64
		}{
			"ASCII":                     {[][]byte{[]byte("abc"), nil, []byte("")}, -1},
			"letters of all widths":     {[][]byte{[]byte("aö€𝄞"), long, nil}, -1},
			"nothing":                   {[][]byte{nil, nil}, -1},
			"no rows":                   {nil, -1},
			"a byte of none":            {[][]byte{[]byte("a"), {0xFF}}, 1},
			"a byte of none in long":    {[][]byte{long, nil, append(bytes.Clone(long), 0xFF, 'a')}, 2},
			"a surrogate":               {[][]byte{{0xED, 0xA0, 0x80}}, 0},
			"longer than it needs":      {[][]byte{[]byte("b"), nil, {0xC0, 0x80}}, 2},
			"a letter cut by two rows":  {[][]byte{[]byte("x"), {0xE2, 0x82}, {0xAC}}, 1},
			"only its end in a row":     {[][]byte{[]byte("ö"), {0xB6}, []byte("ö")}, 1},
			"a letter cut at the end":   {[][]byte{[]byte("ö"), {0xC3}}, 1},
			"long, cut by two rows":     {[][]byte{long, append(bytes.Clone(long), 0xC3), append([]byte{0xB6}, long...)}, 1},
			"behind 4 KiB that are not": {[][]byte{bytes.Repeat([]byte("x"), 4096), bytes.Repeat([]byte("y"), 31), {0x80}}, 2},
		} {
			if got := badRow(t, p, g, ColumnOf(textOf(t, typ, c.values...)), "c0"); got != c.row {
				t.Errorf("%s of %s: row %d, want %d", name, typ, got, c.row)
			}
		}
	}
}

// Nobody reads what is below a null, and writers may leave anything there.
func TestTextBelowANullMayBeAnything(t *testing.T) {
	_, g, p := world(t, 1<<22)
	for _, typ := range textTypes[:2] {
		c := ColumnOf(textOf(t, typ, []byte("a"), []byte("\xFF\xFE"), []byte("b")))
		c.Nulls, c.Buffers[0] = 1, Buffer{Mem: []byte{0b101}}
		if row := badRow(t, p, g, c, "c0"); row >= 0 {
			t.Errorf("%s: row %d", typ, row)
		}
	}
}

// The row is that of the column that the user knows, however deep the text is.
func TestTheRowOfNestedText(t *testing.T) {
	_, g, p := world(t, 1<<22)
	text := ColumnOf(textOf(t, arrow.BinaryTypes.String, []byte("a"), []byte("b"), []byte("c"), []byte("\xFF"), []byte("d"), []byte("e")))
	str := arrow.BinaryTypes.String
	ints := func(v ...int32) Buffer { return Buffer{Mem: arrow.Int32Traits.CastToBytes(v)} }
	one := ColumnOf(textOf(t, str, []byte("x"), []byte("x")))
	for _, c := range []struct {
		name, column string
		c            Column
		row          int64
	}{
		{"list", "c0.item", Column{Type: arrow.ListOf(str), Len: 3, Buffers: []Buffer{{}, ints(0, 1, 3, 6)}, Children: []Column{text}}, 2},
		{"list with empty rows", "c0.item", Column{Type: arrow.ListOf(str), Len: 5, Buffers: []Buffer{{}, ints(0, 3, 3, 3, 4, 6)}, Children: []Column{text}}, 3},
		{"list from the middle", "c0.item", Column{Type: arrow.ListOf(str), Len: 2, Offset: 1, Buffers: []Buffer{{}, ints(0, 2, 3, 6)}, Children: []Column{text}}, 1},
		{"fixed list", "c0.item", Column{Type: arrow.FixedSizeListOf(2, str), Len: 3, Buffers: []Buffer{{}}, Children: []Column{text}}, 1},
		{"struct", "c0.s", Column{Type: arrow.StructOf(arrow.Field{Name: "s", Type: str, Nullable: true}), Len: 6, Buffers: []Buffer{{}}, Children: []Column{text}}, 3},
		{"list view", "c0.item", Column{Type: arrow.ListViewOf(str), Len: 3, Buffers: []Buffer{{}, ints(4, 0, 2), ints(2, 1, 2)}, Children: []Column{text}}, 2},
		{"dense union", "c0.b", Column{
			Type: arrow.DenseUnionOf([]arrow.Field{{Name: "a", Type: str}, {Name: "b", Type: str}}, []int8{7, 9}),
			Len:  4, Buffers: []Buffer{{}, {Mem: []byte{9, 7, 9, 9}}, ints(0, 0, 2, 3)}, Children: []Column{one, text},
		}, 3},
		{"runs", "c0.values", Column{
			Type: arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, str), Len: 20, Buffers: []Buffer{{}},
			Children: []Column{{Type: arrow.PrimitiveTypes.Int32, Len: 6, Buffers: []Buffer{{}, ints(2, 3, 9, 12, 13, 20)}}, text},
		}, 9},
		{"list of structs of lists", "c0.item.l.item", Column{
			Type: arrow.ListOf(arrow.StructOf(arrow.Field{Name: "l", Type: arrow.ListOf(str), Nullable: true})), Len: 2,
			Buffers: []Buffer{{}, ints(0, 2, 3)},
			Children: []Column{{
				Type: arrow.StructOf(arrow.Field{Name: "l", Type: arrow.ListOf(str), Nullable: true}), Len: 3, Buffers: []Buffer{{}},
				Children: []Column{{Type: arrow.ListOf(str), Len: 3, Buffers: []Buffer{{}, ints(0, 1, 2, 6)}, Children: []Column{text}}},
			}},
		}, 1},
	} {
		if row := badRow(t, p, g, c.c, c.column); row != c.row {
			t.Errorf("%s: row %d, want %d", c.name, row, c.row)
		}
	}
}

// Rows are found as a loop over all values finds them.
func TestBadTextIsWhatALoopFinds(t *testing.T) {
	_, g, p := world(t, 1<<22)
	rapid.Check(t, func(rt *rapid.T) {
		pieces := []string{"", "a", "ö", "€", "𝄞", "\xC3", "\xB6", "\xFF", "a long piece of plain text", "ein längeres Stück Text"}
		var values [][]byte
		want := int64(-1)
		for i := range rapid.IntRange(0, 40).Draw(rt, "rows") {
			var v []byte
			for range rapid.IntRange(0, 3).Draw(rt, "parts") {
				last := len(pieces)
				if rapid.IntRange(0, 9).Draw(rt, "odd") > 0 {
					last = 5 // of the good ones
				}
				v = append(v, pieces[rapid.IntRange(0, last-1).Draw(rt, "piece")]...)
			}
			values = append(values, append([]byte{}, v...))
			if want < 0 && !utf8.Valid(v) {
				want = int64(i)
			}
		}
		for _, typ := range textTypes {
			if got := badRow(t, p, g, ColumnOf(textOf(t, typ, values...)), "c0"); got != want {
				rt.Fatalf("%s: row %d, want %d of %q", typ, got, want, values)
			}
		}
	})
}

func TestBehindMovesRows(t *testing.T) {
	if got := Behind(&RowError{"a", 3, errText}, 10).Error(); got != `column "a": row 13: corrupt column: not UTF-8` {
		t.Error(got)
	}
	if got := Behind(errBroken, 10); got != errBroken {
		t.Error(got)
	}
}

// A view that points nowhere must not have memory taken for what it promises.
func TestViewsThatPointNowhereTakeNoMemory(t *testing.T) {
	_, g, p := world(t, 1<<22)
	whole := ColumnOf(textOf(t, arrow.BinaryTypes.StringView, []byte("a value longer than twelve bytes")))
	for name, v := range map[string][4]int32{
		"too long":      {1 << 30, 0, 0, 0},
		"past the end":  {20, 0, 0, 20},
		"from before":   {20, 0, 0, -1},
		"other buffer":  {20, 0, 1, 0},
		"no buffer":     {20, 0, -1, 0},
		"negative size": {-1, 0, 0, 0},
	} {
		c := whole
		c.Buffers = append([]Buffer{}, whole.Buffers...)
		c.Buffers[1] = Buffer{Mem: arrow.Int32Traits.CastToBytes(v[:])}
		if _, err := p.Assemble(g, budget.Frames, schemaOf(c.Type), []Piece{{[]Column{c}, 0, 1}}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Run ends are found in a few reads, however many there are.
func TestRunEndsAreReadAtOnce(t *testing.T) {
	_, g, p := world(t, 1<<22)
	const n = 100_000
	ends, values := make([]int32, n), make([]int32, n)
	for i := range ends {
		ends[i], values[i] = int32(3*(i+1)), int32(i)
	}
	var file bytes.Buffer
	c := filed(Column{
		Type: arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int32), Len: 3 * n, Buffers: []Buffer{{}},
		Children: []Column{
			{Type: arrow.PrimitiveTypes.Int32, Len: n, Buffers: []Buffer{{}, {Mem: arrow.Int32Traits.CastToBytes(ends)}}},
			{Type: arrow.PrimitiveTypes.Int32, Len: n, Buffers: []Buffer{{}, {Mem: arrow.Int32Traits.CastToBytes(values)}}},
		},
	}, &file)
	r := &counting{ReaderAt: bytes.NewReader(file.Bytes())}
	readFrom(&c, r)
	l, err := p.Assemble(g, budget.Frames, schemaOf(c.Type), []Piece{{[]Column{c}, 100_001, 130_001}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	runs := l.Batch().Column(0).(*array.RunEndEncoded)
	if ends := runs.RunEndsArr().(*array.Int32); ends.Len() != 10_001 || ends.Value(0) != 1 || ends.Value(1) != 4 || ends.Value(10_000) != 30_000 {
		t.Errorf("%d runs: %.100v", ends.Len(), ends)
	}
	if first := runs.Values().(*array.Int32).Value(0); first != 33_333 {
		t.Errorf("first value %d", first)
	}
	if r.calls > 40 {
		t.Errorf("%d reads", r.calls)
	}
}

func BenchmarkText(b *testing.B) {
	for _, c := range []struct{ name, word string }{
		{"ASCII", "the quick brown fox "}, {"German", "größere Flüsse führen mehr Wasser "}, {"Japanese", "水路を通って流れる水"},
	} {
		value := []byte(strings.Repeat(c.word, 3))
		values := make([][]byte, 20_000)
		for i := range values {
			values[i] = value
		}
		data := textOf(b, arrow.BinaryTypes.String, values...).Data()
		offsets, bytes := offsetsOf[int32](data.Buffers()[1].Bytes(), int64(data.Len()+1)), data.Buffers()[2].Bytes()
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(bytes)))
			for b.Loop() {
				if badText(offsets, bytes, nil) >= 0 {
					b.Fatal("not valid")
				}
			}
		})
		b.Run(c.name+"/copy", func(b *testing.B) {
			b.SetBytes(int64(len(bytes)))
			dst := make([]byte, len(bytes))
			for b.Loop() {
				copy(dst, bytes)
			}
		})
	}
}

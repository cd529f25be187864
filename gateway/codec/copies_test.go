package codec

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/headrace/headrace/storage/budget"
)

// Whole frames are sent without a copy of any buffer; of slices, only offsets and bitmaps are copied.
func TestCopiedBytes(t *testing.T) {
	s := newStore(t)
	const rows = 32_768
	lease := s.frame(t, wide(rows))
	defer lease.Release()
	tests := []struct {
		column   string
		from, n  int64
		min, max int // copied bytes
	}{
		{"fixed", 0, rows, 0, 0},
		{"fixed", 1, rows - 1, 0, 0},
		{"list", 0, rows, 0, 0},
		{"list", 5, 20_000, 0, 0},
		{"nullable", 0, rows, 0, 0},
		{"nullable", 8, rows - 8, 0, 0},
		{"nullable", 3, 20_000, 2500, 2500},
		{"text", 0, rows, 0, 0},
		{"text", 0, 20_000, 0, 0},
		{"text", 3, 20_000, 4 * 20_001, 4 * 20_001},
		{"view", 0, rows, 0, 0},
		{"view", 3, 20_000, 16 * 20_000, 16 * 20_000},
		{"fixed", 7, 64, 512, 512}, // gRPC has no signal for the end of so few bytes
	}
	for _, test := range tests {
		t.Run(fmt.Sprintf("%s %d+%d", test.column, test.from, test.n), func(t *testing.T) {
			col := lease.Batch().Schema().FieldIndices(test.column)[0]
			one := arrow.NewSchema([]arrow.Field{lease.Batch().Schema().Field(col)}, nil)
			rec := array.NewRecordBatch(one, []arrow.Array{lease.Batch().Column(col)}, rows).NewSlice(test.from, test.from+test.n)
			body, err := NewEncoder(None, s.pool, s.grant).Encode(rec)
			if err != nil {
				t.Fatal(err)
			}
			defer body.Release()
			if got := body.Copied(); got < test.min || got > test.max {
				t.Errorf("%d bytes copied, want %d to %d", got, test.min, test.max)
			}
			if got := decode(t, body.stream(one)); !equal(rec, got) {
				t.Error("rows differ")
			}
		})
	}
}

// wide has one column of each kind that TestCopiedBytes looks at.
func wide(rows int) arrow.RecordBatch {
	s := arrow.NewSchema([]arrow.Field{
		{Name: "fixed", Type: arrow.PrimitiveTypes.Int64},
		{Name: "list", Type: arrow.FixedSizeListOf(8, arrow.PrimitiveTypes.Float32)},
		{Name: "nullable", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
		{Name: "text", Type: arrow.BinaryTypes.String},
		{Name: "view", Type: arrow.BinaryTypes.StringView},
	}, nil)
	b := array.NewRecordBuilder(heap, s)
	for i := range rows {
		b.Field(0).(*array.Int64Builder).Append(int64(i))
		b.Field(1).(*array.FixedSizeListBuilder).Append(true)
		for j := range 8 {
			b.Field(1).(*array.FixedSizeListBuilder).ValueBuilder().(*array.Float32Builder).Append(float32(i + j))
		}
		if i%3 == 0 {
			b.Field(2).AppendNull()
		} else {
			b.Field(2).(*array.Int32Builder).Append(int32(i))
		}
		b.Field(3).(*array.StringBuilder).Append(fmt.Sprint("text ", i))
		b.Field(4).(*array.StringViewBuilder).Append(fmt.Sprint("a text that is not inline ", i))
	}
	return b.NewRecordBatch()
}

// The slices of an unsliced fixed-width batch are the frame's own memory.
func TestSlicesAreTheFrame(t *testing.T) {
	s := newStore(t)
	lease := s.frame(t, wide(4096))
	defer lease.Release()
	body, err := NewEncoder(None, s.pool, s.grant).Encode(lease.Batch())
	if err != nil {
		t.Fatal(err)
	}
	values := lease.Batch().Column(0).Data().Buffers()[1].Bytes()
	for _, p := range body.parts {
		if p.lent && &p.data[0] == &values[0] {
			if len(p.data) != 8*4096 || cap(p.data) != len(p.data) {
				t.Errorf("a slice of %d bytes, capacity %d", len(p.data), cap(p.data))
			}
			return
		}
	}
	t.Error("the values were copied")
}

// Encoding takes a handful of allocations, none of which grows with the data.
func TestAllocations(t *testing.T) {
	s := newStore(t)
	lease := s.frame(t, wide(32_768))
	defer lease.Release()
	enc := NewEncoder(None, s.pool, s.grant)
	got := testing.AllocsPerRun(20, func() {
		body, err := enc.Encode(lease.Batch())
		if err != nil {
			t.Fatal(err)
		}
		m := body.Message(t.Context(), []byte("{}"), lease.Share())
		if _, err := m.lend(); err != nil {
			t.Fatal(err)
		}
		m.orphan()
		m.Release()
	})
	if got > 40 {
		t.Errorf("%.0f allocations a message", got)
	}
	t.Logf("%.0f allocations a message", got)
}

// What cannot be sent is refused by name; buffers that contradict each other are, too.
func TestRefusals(t *testing.T) {
	data := func(t arrow.DataType, n int, children []arrow.ArrayData, buffers ...[]byte) arrow.ArrayData {
		var mem []*memory.Buffer
		for _, b := range buffers {
			mem = append(mem, memory.NewBufferBytes(b))
		}
		return array.NewData(t, n, mem, children, -1, 0)
	}
	none := []byte(nil)
	text, ints := arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int32
	three := data(ints, 3, nil, none, make([]byte, 12))
	union := arrow.DenseUnionOf([]arrow.Field{{Name: "a", Type: ints}}, []arrow.UnionTypeCode{2})
	runs := arrow.RunEndEncodedOf(ints, ints)
	tests := map[string]struct {
		data arrow.ArrayData
		want error
	}{
		"dictionary":         {data(&arrow.DictionaryType{IndexType: ints, ValueType: text}, 1, nil, none, make([]byte, 4)), ErrUnsupported},
		"short values":       {data(ints, 3, nil, none, make([]byte, 8)), ErrCorrupt},
		"short validity":     {data(ints, 9, nil, []byte{1}, make([]byte, 36)), ErrCorrupt},
		"short list view":    {data(arrow.ListViewOf(ints), 9, []arrow.ArrayData{three}, []byte{1}, make([]byte, 36), append(make([]byte, 32), 1, 0, 0, 0)), ErrCorrupt},
		"short bits":         {data(arrow.FixedWidthTypes.Boolean, 9, nil, none, []byte{1}), ErrCorrupt},
		"falling offsets":    {data(text, 1, nil, none, []byte{2, 0, 0, 0, 1, 0, 0, 0}, []byte("abc")), ErrCorrupt},
		"negative offsets":   {data(text, 1, nil, none, []byte{255, 255, 255, 255, 1, 0, 0, 0}, []byte("abc")), ErrCorrupt},
		"offsets too far":    {data(text, 1, nil, none, []byte{0, 0, 0, 0, 4, 0, 0, 0}, []byte("abc")), ErrCorrupt},
		"list too long":      {data(arrow.ListOf(ints), 1, []arrow.ArrayData{three}, none, []byte{0, 0, 0, 0, 4, 0, 0, 0}), ErrCorrupt},
		"list view too long": {data(arrow.ListViewOf(ints), 1, []arrow.ArrayData{three}, none, []byte{1, 0, 0, 0}, []byte{3, 0, 0, 0}), ErrCorrupt},
		"view too far":       {data(arrow.BinaryTypes.StringView, 1, nil, none, []byte{13, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}), ErrCorrupt},
		"negative view":      {data(arrow.BinaryTypes.StringView, 1, nil, none, bytes.Repeat([]byte{255}, 16)), ErrCorrupt},
		"unknown union code": {data(union, 1, []arrow.ArrayData{three}, none, []byte{1}, make([]byte, 4)), ErrCorrupt},
		"union too far":      {data(union, 1, []arrow.ArrayData{three}, none, []byte{2}, []byte{3, 0, 0, 0}), ErrCorrupt},
		"runs too short":     {data(runs, 4, []arrow.ArrayData{data(ints, 1, nil, none, []byte{3, 0, 0, 0}), three}, nil...), ErrCorrupt},
		"missing child":      {data(arrow.ListOf(ints), 1, nil, none, []byte{0, 0, 0, 0, 1, 0, 0, 0}), ErrCorrupt},
	}
	for name, test := range tests {
		if err := new(layout).array(test.data, 0, test.data.Len()); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Without memory for a copy the encoder says so and keeps nothing.
func TestNoMemory(t *testing.T) {
	s := newStore(t)
	lease := s.frame(t, wide(4096))
	defer lease.Release()
	ledger := budget.New(budget.Options{Limit: 4096})
	grant, err := ledger.Admit(t.Context(), 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer grant.Close()
	rec := lease.Batch().NewSlice(1, 4000)
	if _, err := NewEncoder(None, s.pool, grant).Encode(rec); !errors.Is(err, budget.ErrExhausted) {
		t.Errorf("got %v", err)
	}
}

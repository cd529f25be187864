package codec

import (
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
			if got := decode(t, body.stream(one)); !array.RecordEqual(rec, got) {
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

// What cannot be sent is refused by name, and gives back what it had taken.
func TestRefusals(t *testing.T) {
	s := newStore(t)
	dictionary := array.NewBuilder(heap, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String})
	dictionary.AppendNull()
	ints := func(n int, size int) arrow.Array {
		return array.MakeFromData(array.NewData(arrow.PrimitiveTypes.Int32, n, []*memory.Buffer{nil, memory.NewBufferBytes(make([]byte, size))}, nil, 0, 0))
	}
	text := func(offsets ...byte) arrow.Array {
		buffers := []*memory.Buffer{nil, memory.NewBufferBytes(offsets), memory.NewBufferBytes([]byte("abc"))}
		return array.NewStringData(array.NewData(arrow.BinaryTypes.String, 1, buffers, nil, 0, 0))
	}
	tests := map[string]struct {
		arr  arrow.Array
		want error
	}{
		"dictionary":       {dictionary.NewArray(), ErrUnsupported},
		"short values":     {ints(3, 8), ErrCorrupt},
		"falling offsets":  {text(2, 0, 0, 0, 1, 0, 0, 0), ErrCorrupt},
		"negative offsets": {text(255, 255, 255, 255, 1, 0, 0, 0), ErrCorrupt},
		"offsets too far":  {text(0, 0, 0, 0, 1, 0, 1, 0), ErrCorrupt},
	}
	for name, test := range tests {
		rec := batchOf(test.arr)
		if _, err := NewEncoder(LZ4, s.pool, s.grant).Encode(rec); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func batchOf(arr arrow.Array) arrow.RecordBatch {
	s := arrow.NewSchema([]arrow.Field{{Name: "x", Type: arr.DataType(), Nullable: true}}, nil)
	return array.NewRecordBatch(s, []arrow.Array{arr}, int64(arr.Len()))
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

package frame

import (
	"errors"
	"math/rand"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"pgregory.net/rapid"

	"github.com/headrace/headrace/storage/arrowtest"
	"github.com/headrace/headrace/storage/budget"
)

// selfFilling makes of a column in memory one that writes the same rows itself, and of those below it too.
func selfFilling(c Column) Column {
	out := Column{Type: c.Type, Len: c.Len, Nulls: c.Nulls, Buffers: c.Buffers}
	lay, err := layoutOf(c.Type)
	if err == nil && (lay.kind == fixed || lay.kind == bit || lay.kind == binary) {
		out.Buffers = c.Buffers[:1]
		if lay.kind == binary {
			out.Bytes = int64(len(c.Buffers[2].Mem))
		}
		out.Fill = func(dst [][]byte) error {
			for i, b := range dst {
				fill(b, 0xAA) // bits behind the last row must not get out
				copy(b, c.Buffers[i+1].Mem)
				if lay.kind == bit && c.Len%8 != 0 {
					b[len(b)-1] |= 0xFF << (c.Len % 8)
				}
			}
			return nil
		}
	}
	for _, child := range c.Children {
		out.Children = append(out.Children, selfFilling(child))
	}
	return out
}

// TestFillItself assembles random columns by copying and by letting them write themselves.
func TestFillItself(t *testing.T) {
	_, g, p := world(t, 1<<30)
	types := []arrow.DataType{
		arrow.PrimitiveTypes.Int32, arrow.FixedWidthTypes.Boolean, arrow.BinaryTypes.String, arrow.BinaryTypes.LargeBinary,
		arrow.ListOf(arrow.BinaryTypes.String), arrow.FixedSizeListOf(3, arrow.PrimitiveTypes.Float64),
		arrow.StructOf(arrow.Field{Name: "a", Type: arrow.FixedWidthTypes.Boolean, Nullable: true}, arrow.Field{Name: "b", Type: arrow.BinaryTypes.Binary, Nullable: true}),
	}
	s := schemaOf(types...)
	rapid.Check(t, func(r *rapid.T) {
		rows := rapid.IntRange(1, 40).Draw(r, "rows")
		piece, self := Piece{To: int64(rows)}, Piece{To: int64(rows)}
		for _, typ := range types {
			m := arrowtest.Maker{Rand: rand.New(rand.NewSource(rapid.Int64().Draw(r, "seed"))), Nulls: true}
			arr := m.Array(typ, rows)
			exact, err := p.Assemble(g, budget.Frames, arrow.NewSchema([]arrow.Field{{Name: "c", Type: typ, Nullable: true}}, nil), []Piece{{Columns: []Column{ColumnOf(arr)}, To: int64(rows)}})
			if err != nil {
				r.Fatal(err)
			}
			defer exact.Release()
			c := ColumnOf(exact.Batch().Column(0))
			piece.Columns, self.Columns = append(piece.Columns, c), append(self.Columns, selfFilling(c))
		}
		want, err := p.Assemble(g, budget.Frames, s, []Piece{piece})
		if err != nil {
			r.Fatal(err)
		}
		defer want.Release()
		got, err := p.Assemble(g, budget.Frames, s, []Piece{self})
		if err != nil {
			r.Fatal(err)
		}
		defer got.Release()
		if a, b := got.frame.region.Bytes(), want.frame.region.Bytes(); string(a) != string(b) {
			r.Fatalf("regions of %d and %d bytes differ", len(a), len(b))
		}
		if !array.RecordEqual(got.Batch(), want.Batch()) {
			r.Fatal("batches differ")
		}
	})
}

// TestFillItselfBadly lets columns do what they must not.
func TestFillItselfBadly(t *testing.T) {
	_, g, p := world(t, 1<<20)
	broken := errors.New("broken")
	offsets := func(ends ...int32) func(dst [][]byte) error {
		return func(dst [][]byte) error { copy(offsetsOf[int32](dst[0], int64(len(ends))), ends); return nil }
	}
	text := Column{Type: arrow.BinaryTypes.String, Len: 2, Bytes: 4}
	for name, c := range map[string]struct {
		column   Column
		from, to int64
		want     string
	}{
		"an error":         {Column{Type: arrow.BinaryTypes.String, Len: 2, Fill: func([][]byte) error { return broken }}, 0, 2, `column "c0": broken`},
		"a row":            {Column{Type: arrow.BinaryTypes.String, Len: 2, Fill: func([][]byte) error { return &RowError{Row: 1, Err: broken} }}, 0, 2, `column "c0": row 1: broken`},
		"offsets go back":  {Column{Type: text.Type, Len: 2, Bytes: 4, Fill: offsets(0, 5, 4)}, 0, 2, "offset 4 after 5"},
		"offsets too long": {Column{Type: text.Type, Len: 2, Bytes: 4, Fill: offsets(0, 1, 5)}, 0, 2, "offsets 0 to 5"},
		"a part of it":     {Column{Type: text.Type, Len: 2, Bytes: 4, Fill: offsets(0, 1, 4)}, 1, 2, "fills itself"},
		"a list":           {Column{Type: arrow.ListOf(text.Type), Len: 2, Fill: offsets(), Children: []Column{text}}, 0, 2, "cannot fill itself"},
	} {
		_, err := p.Assemble(g, budget.Frames, schemaOf(c.column.Type), []Piece{{Columns: []Column{c.column}, From: c.from, To: c.to}})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

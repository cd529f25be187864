package frame

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/headrace/headrace/storage/budget"
)

// A lease on some columns keeps the frame, and what was taken of it outlives the lease as long as another one does.
func TestSelect(t *testing.T) {
	l, g, p := world(t, 1<<20)
	s := schemaOf(arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Int64)
	b := array.NewRecordBuilder(memory.DefaultAllocator, s)
	defer b.Release()
	for c := range 3 {
		for row := range 10 {
			b.Field(c).(*array.Int64Builder).Append(int64(100*c + row))
		}
	}
	record := b.NewRecordBatch()
	defer record.Release()
	all, err := p.Assemble(g, budget.Frames, s, []Piece{PieceOf(record, 0, 10)})
	if err != nil {
		t.Fatal(err)
	}
	if !all.Alone() || all.Mapped() {
		t.Fatal("the only lease on memory is not")
	}
	some := all.Select(arrow.NewSchema([]arrow.Field{s.Field(2), s.Field(0)}, nil), []int{2, 0})
	if some.Alone() {
		t.Fatal("two leases are one")
	}
	all.Release()
	slice, kept := some.Batch().NewSlice(3, 5), some.Share()
	whole := some.Batch()
	some.Release()
	if whole.NumCols() != 2 || slice.Column(0).(*array.Int64).Value(1) != 204 || kept.Batch().Column(1).(*array.Int64).Value(9) != 9 {
		t.Fatalf("%v", whole)
	}
	heir, err := l.Try(all.Bytes())
	if err != nil || !kept.Pay(heir) || heir.Free() != 0 {
		t.Fatal("another grant does not pay, though it has the memory", err)
	}
	kept.Release()
	heir.Close()
}

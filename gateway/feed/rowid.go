package feed

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// RowIDColumn is the name of the column of row numbers.
const RowIDColumn = "__row_id"

// WithRowID is the schema with the column of row numbers, last.
func WithRowID(s *arrow.Schema) *arrow.Schema {
	fields := append(s.Fields(), arrow.Field{Name: RowIDColumn, Type: arrow.PrimitiveTypes.Int64})
	meta := s.Metadata()
	return arrow.NewSchema(fields, &meta)
}

// withRowID appends the numbers of the piece's rows in the snapshot. They live on the Go heap: 8 bytes a row that the
// collector frees after gRPC has sent them, so they need no lease.
func withRowID(s *arrow.Schema, p Piece) arrow.RecordBatch {
	rows := p.Record.NumRows()
	ids := make([]int64, 0, rows)
	for _, r := range p.rows {
		for i := range r.n {
			ids = append(ids, r.row+i)
		}
	}
	data := array.NewData(arrow.PrimitiveTypes.Int64, int(rows),
		[]*memory.Buffer{nil, memory.NewBufferBytes(arrow.Int64Traits.CastToBytes(ids))}, nil, 0, 0)
	columns := append(append([]arrow.Array{}, p.Record.Columns()...), array.NewInt64Data(data))
	return array.NewRecordBatch(s, columns, rows)
}

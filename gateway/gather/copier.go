package gather

import (
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

// copier gathers types that have no kernels: unions, list views, run ends.
// Rows that follow on each other become pieces for the copier of frames.
type copier struct {
	schema  *arrow.Schema
	columns [][]frame.Column // by slot
	pieces  []frame.Piece
}

func (c *copier) put(slot int, batch arrow.RecordBatch) {
	for slot >= len(c.columns) {
		c.columns = append(c.columns, nil)
	}
	c.columns[slot] = frame.PieceOf(batch, 0, batch.NumRows()).Columns
}

func (c *copier) drop(slot int) {
	if slot < len(c.columns) {
		c.columns[slot] = nil
	}
}

// measure makes pieces of rows and returns the bytes that they take.
func (c *copier) measure(rows []Row) (int64, error) {
	clear(c.pieces)
	c.pieces = c.pieces[:0]
	for i, r := range rows {
		if i > 0 && rows[i-1].Frame == r.Frame && rows[i-1].Row+1 == r.Row {
			c.pieces[len(c.pieces)-1].To++
			continue
		}
		from := int64(r.Row)
		c.pieces = append(c.pieces, frame.Piece{Columns: c.columns[r.Frame], From: from, To: from + 1})
	}
	return frame.Measure(c.schema, c.pieces)
}

func (c *copier) gather(p *frame.Pool, g *budget.Grant, k budget.Kind) (*frame.Lease, error) {
	return p.Assemble(g, k, c.schema, c.pieces)
}

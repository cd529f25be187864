package frame

import (
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/headrace/headrace/storage/budget"
)

// MaxFrame is the most bytes that one frame should hold; what decodes to more is cut by rows.
const MaxFrame = 64 << 20

// Assemble copies the rows of the pieces, in order, into one exact region
// charged to g as k, and publishes it as one frame of schema s. Only the bytes
// of those rows are read. In the frame arrays have offset 0, buffers begin on
// multiples of 64 bytes, padding and unused bits are zero, and there is a
// bitmap only where there are nulls.
//
// Errors about a column name it and wrap ErrCorrupt, ErrOverflow,
// ErrUnsupported or what reading it returned; memory is budget.ErrExhausted.
func (p *Pool) Assemble(g *budget.Grant, k budget.Kind, s *arrow.Schema, pieces []Piece) (*Lease, error) {
	nodes, rows, err := planAll(s, pieces)
	if err != nil {
		return nil, err
	}
	size := total(nodes)
	if size > largest/2 {
		return nil, fmt.Errorf("frame: %d rows: %w", rows, budget.ErrTooLarge)
	}
	region, err := p.Alloc(g, k, int(size))
	if err != nil {
		return nil, err
	}
	batch, err := fillAll(s, nodes, rows, memory.NewBufferBytes(region.Bytes()))
	if err != nil {
		region.Free()
		return nil, err
	}
	return p.Publish(batch, region), nil
}

// Measure returns how many bytes Assemble would ask of Alloc.
func Measure(s *arrow.Schema, pieces []Piece) (int64, error) {
	nodes, _, err := planAll(s, pieces)
	return total(nodes), err
}

// AssembleParts is Assemble for one piece, by rows: as one frame, or as halves
// if that were a larger one than MaxFrame. One row stays one.
func (p *Pool) AssembleParts(g *budget.Grant, k budget.Kind, s *arrow.Schema, piece Piece) ([]*Lease, error) {
	if slices.ContainsFunc(piece.Columns, fillsItself) {
		size, err := Measure(s, []Piece{piece})
		if err != nil {
			return nil, err
		}
		if rows := piece.To - piece.From; size > MaxFrame && rows > 1 {
			whole, err := p.Assemble(g, budget.Scratch, s, []Piece{piece})
			if err != nil {
				return nil, err
			}
			defer whole.Release()
			piece = PieceOf(whole.Batch(), 0, rows) // from where it can be taken in halves
		}
	}
	leases, err := p.parts(g, k, s, piece, nil)
	if err != nil {
		for _, l := range leases {
			l.Release()
		}
		return nil, err
	}
	return leases, nil
}

// fillsItself tells whether a column, or one below it, does so.
func fillsItself(c Column) bool {
	return c.Fill != nil || slices.ContainsFunc(c.Children, fillsItself)
}

func (p *Pool) parts(g *budget.Grant, k budget.Kind, s *arrow.Schema, piece Piece, leases []*Lease) ([]*Lease, error) {
	size, err := Measure(s, []Piece{piece})
	rows := piece.To - piece.From
	switch {
	case rows > 1 && (size > MaxFrame || errors.Is(err, ErrOverflow)):
		first, second := piece, piece
		first.To = piece.From + rows/2
		second.From = first.To
		if leases, err = p.parts(g, k, s, first, leases); err != nil {
			return leases, err
		}
		return p.parts(g, k, s, second, leases)
	case err != nil:
		return leases, err
	}
	l, err := p.Assemble(g, k, s, []Piece{piece})
	if err != nil {
		return leases, Behind(err, piece.From)
	}
	return append(leases, l), nil
}

// planAll plans one node for each field.
func planAll(s *arrow.Schema, pieces []Piece) (nodes []*node, rows int64, err error) {
	for _, piece := range pieces {
		if piece.From < 0 || piece.To < piece.From {
			return nil, 0, fmt.Errorf("frame: rows %d to %d", piece.From, piece.To)
		}
		if len(piece.Columns) != s.NumFields() {
			return nil, 0, fmt.Errorf("frame: %d columns, the schema has %d", len(piece.Columns), s.NumFields())
		}
		rows = plus(rows, piece.To-piece.From)
	}
	var p planner
	for i, f := range s.Fields() {
		var spans []span
		for j := range pieces {
			if piece := &pieces[j]; piece.From < piece.To {
				spans = append(spans, span{&piece.Columns[i], piece.From, piece.To - piece.From})
			}
		}
		n, err := p.plan(f.Name, f.Type, spans)
		if err != nil {
			return nil, 0, err
		}
		nodes = append(nodes, n)
	}
	return nodes, rows, nil
}

func total(nodes []*node) (sum int64) {
	for _, n := range nodes {
		sum = plus(sum, n.bytes())
	}
	return sum
}

// fillAll copies the nodes' rows into base and makes a batch of them.
func fillAll(s *arrow.Schema, nodes []*node, rows int64, base *memory.Buffer) (arrow.RecordBatch, error) {
	f := filler{base: base}
	columns := make([]arrow.Array, 0, len(nodes))
	defer func() {
		for _, c := range columns {
			c.Release()
		}
	}()
	for _, n := range nodes {
		data, err := f.fill(n)
		if err != nil {
			return nil, err
		}
		columns = append(columns, array.MakeFromData(data))
		data.Release()
	}
	return array.NewRecordBatch(s, columns, rows), nil
}

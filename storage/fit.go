package storage

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

// fitted is a scanner whose frames have more than its file: columns that the
// file lacks, and numbers that are wider than there. What the file gives is
// charged to the scanner's own grant until it has been copied.
type fitted struct {
	scanner
	fit    *schema.Fit
	schema *arrow.Schema
	value  func(arrow.Field) (arrow.Array, error) // one row of a column that is the same in all of the shard; nil: null
	pool   *frame.Pool
	grant  *budget.Grant
}

func (f *fitted) Next(ctx context.Context, g *budget.Grant, rows int64) (out []*frame.Lease, err error) {
	stored, err := f.scanner.Next(ctx, f.grant, rows)
	if errors.Is(err, budget.ErrExhausted) { // of these frames, which are not those that others see
		err = fmt.Errorf("%w: %w", budget.ErrScratch, err)
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		release(stored)
		if err != nil {
			release(out)
			out = nil
		}
	}()
	for _, l := range stored {
		more, err := f.complete(g, l.Batch())
		out = append(out, more...)
		if err != nil {
			return out, err
		}
		l.Release()
	}
	return out, nil
}

func release(leases []*frame.Lease) {
	for _, l := range leases {
		l.Release()
	}
}

// complete makes frames with all columns of what the file gave. They are made
// of as few rows at a time as keep what is added to a row within a frame.
func (f *fitted) complete(g *budget.Grant, b arrow.RecordBatch) (out []*frame.Lease, err error) {
	step := max(1, frame.MaxFrame/max(1, f.added()))
	for from := int64(0); from < b.NumRows(); from += step {
		more, err := f.part(g, b, from, min(from+step, b.NumRows()))
		out = append(out, more...)
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

func (f *fitted) part(g *budget.Grant, b arrow.RecordBatch, from, to int64) (leases []*frame.Lease, err error) {
	scratch := f.pool.Scratch(f.grant)
	defer scratch.Close()
	defer func() { // an allocator can only panic
		if p := recover(); p != nil {
			cause, ok := p.(error)
			if !ok || !errors.Is(cause, budget.ErrExhausted) {
				panic(p)
			}
			leases, err = nil, cause
		}
	}()
	piece := frame.Piece{To: to - from}
	for i, field := range f.schema.Fields() {
		c, err := f.column(scratch, b, i, from, to)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", field.Name, err)
		}
		piece.Columns = append(piece.Columns, c)
	}
	return f.pool.AssembleParts(g, budget.Frames, f.schema, piece)
}

// column returns rows [from, to) of column i of the projection.
func (f *fitted) column(scratch *frame.Scratch, b arrow.RecordBatch, i int, from, to int64) (frame.Column, error) {
	t := f.schema.Field(i).Type
	at := f.fit.From[i]
	if at < 0 {
		return f.constant(f.schema.Field(i), to-from)
	}
	part := array.NewSlice(b.Column(at), from, to)
	defer part.Release()
	wide, err := frame.Widen(scratch, part, t) // what it takes is freed with the scratch
	if err != nil {
		return frame.Column{}, err
	}
	return frame.ColumnOf(wide), nil
}

// constant returns rows of a column that the file does not have.
func (f *fitted) constant(field arrow.Field, rows int64) (frame.Column, error) {
	one, err := f.value(field)
	switch {
	case err != nil:
		return frame.Column{}, err
	case one == nil:
		return frame.Nulls(field.Type, rows)
	}
	return frame.Repeat(one, rows)
}

// added is how many bytes a row of the columns that are not as the file has
// them takes, as far as types tell.
func (f *fitted) added() (n int64) {
	for i, field := range f.schema.Fields() {
		if at := f.fit.From[i]; at < 0 || !arrow.TypeEqual(f.fit.Stored.Schema.Field(at).Type, field.Type) {
			n += width(field.Type)
		}
	}
	return n
}

// width is how many bytes a row of type t takes, as far as the type tells.
func width(t arrow.DataType) int64 {
	switch t := t.(type) {
	case *arrow.FixedSizeListType:
		return int64(min(absurd, float64(t.Len())*float64(width(t.Elem()))))
	case *arrow.StructType:
		n := int64(1)
		for _, f := range t.Fields() {
			n = min(absurd, n+width(f.Type))
		}
		return n
	case arrow.FixedWidthDataType:
		return int64(t.BitWidth()/8) + 1
	}
	return 64 // an offset, and a value that is short
}

// extra is the memory that fitting a block of a segment takes beyond what the
// file's own words say of it: of its frames, and of what is at work for them.
func extra(fit *schema.Fit, p *schema.Projection, seg snapshot.Segment) (frames, work int64) {
	if fit.Alike || seg.Rows == 0 {
		return 0, 0
	}
	f := fitted{fit: fit, schema: p.Schema}
	rows := (seg.Rows-1)/seg.Blocks() + 1
	frames = int64(min(absurd, float64(rows)*float64(f.added())))
	return frames, frames + min(absurd, seg.Bytes/seg.Blocks())
}

package arrowfile

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

// dictionary is what a dictionary holds at the place of a segment, as plain
// values: its last replacement and the deltas after it, in one array.
type dictionary struct {
	id     int64
	lease  *frame.Lease // of one column
	widest int64        // no value takes more bytes
}

func (dict *dictionary) array() arrow.Array { return dict.lease.Batch().Column(0) }

// dictionary returns the dictionary that the indices s refer to.
func (d *decoder) dictionary(ctx context.Context, s *stored) (*dictionary, error) {
	id := s.ids[0]
	for _, dict := range d.loaded {
		if dict.id == id && arrow.TypeEqual(dict.array().DataType(), s.values) {
			return dict, nil
		}
	}
	keep := len(d.regions)
	lease, err := d.load(ctx, id, values{s.dict.ValueType, s.ids[1:]}, s.values)
	d.free(keep)
	if err != nil {
		return nil, fmt.Errorf("dictionary %d: %w", id, err)
	}
	dict := &dictionary{id: id, lease: lease}
	dict.widest = widest(dict.array())
	d.loaded = append(d.loaded, dict)
	return dict, nil
}

// load joins the messages that make up dictionary id.
func (d *decoder) load(ctx context.Context, id int64, v values, want arrow.DataType) (*frame.Lease, error) {
	var parts []Dictionary
	for _, m := range d.messages {
		if m.ID != id {
			continue
		}
		if !m.Delta {
			parts = parts[:0]
		}
		parts = append(parts, m)
	}
	scratch := d.pool.Scratch(d.grant)
	defer scratch.Close()
	var pieces []frame.Piece
	for _, m := range parts {
		c, err := d.values(ctx, m.Place, v, want)
		if err != nil {
			return nil, err
		}
		p, err := d.piece(ctx, c, 0, c.rows)
		if err != nil {
			return nil, err
		}
		defer p.free()
		if err := p.decode(scratch); err != nil {
			return nil, err
		}
		pieces = append(pieces, p.Piece)
	}
	s := arrow.NewSchema([]arrow.Field{{Name: "values", Type: want, Nullable: true}}, nil)
	return d.pool.Assemble(d.grant, budget.Scratch, s, pieces)
}

// widest returns a number of bytes that no value of arr exceeds: for binary
// data the longest value's, for fixed widths that, else those of the whole array.
func widest(arr arrow.Array) int64 {
	var most int64
	switch arr := arr.(type) {
	case array.BinaryLike:
		for i := range arr.Len() {
			most = max(most, int64(arr.ValueLen(i)))
		}
	case array.ViewLike:
		for i := range arr.Len() {
			most = max(most, int64(arr.ValueHeader(i).Len()))
		}
	default:
		if t, ok := arr.DataType().(arrow.FixedWidthDataType); ok {
			most = int64(t.Bytes())
		}
		if len(arr.Data().Children()) > 0 {
			most = int64(arr.Data().SizeInBytes())
		}
	}
	return most + 17 // an offset or a view, and a bit of validity
}

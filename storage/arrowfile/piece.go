package arrowfile

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

// piece is rows of a message for the copier, and what has to live until they
// are copied. Dictionary-encoded columns are ready after decode.
type piece struct {
	frame.Piece
	first int64 // row of the message
	bound int64 // bytes that the values of its dictionary indices cannot exceed

	lease   *frame.Lease // of the indices
	encoded []encodedColumn
	plain   []arrow.Array
}

// encodedColumn is one column of a piece, an array whose indices know their
// dictionaries.
type encodedColumn struct {
	name string
	at   int
	arr  arrow.Array
}

// free gives back what decoding took; it may be called again.
func (p *piece) free() {
	for _, c := range p.encoded {
		c.arr.Release()
	}
	for _, arr := range p.plain {
		arr.Release()
	}
	if p.lease != nil {
		p.lease.Release()
	}
	p.encoded, p.plain, p.lease = nil, nil, nil
}

// decode replaces dictionary indices by the values they stand for.
func (p *piece) decode(scratch *frame.Scratch) error {
	for _, c := range p.encoded {
		arr, err := frame.Plain(scratch, c.arr)
		if err != nil {
			return inColumn(c.name, frame.Behind(err, p.first))
		}
		p.plain = append(p.plain, arr)
		p.Columns[c.at] = frame.ColumnOf(arr)
	}
	return nil
}

// piece describes rows [from, to) of c. Columns without dictionaries stay where
// they are until they are copied into a frame; of the others the indices are
// copied out here and given their dictionaries.
func (d *decoder) piece(ctx context.Context, c *columns, from, to int64) (*piece, error) {
	r := d.obj.ReaderAt(ctx)
	p := &piece{Piece: frame.Piece{To: to - from}, first: from}
	var encoded []int
	for i, s := range c.arrays {
		p.Columns = append(p.Columns, s.column(r, c.base, from, to))
		if s.encoded() {
			encoded = append(encoded, i)
		}
	}
	if len(encoded) == 0 {
		return p, nil
	}
	whole := false
	defer func() {
		if !whole { // by an error, or by an allocator's panic
			p.free()
		}
	}()
	err := d.copyIndices(ctx, p, c, encoded)
	whole = err == nil
	return p, err
}

func (d *decoder) copyIndices(ctx context.Context, p *piece, c *columns, encoded []int) error {
	var fields []arrow.Field
	in := frame.Piece{To: p.To}
	for _, at := range encoded {
		fields = append(fields, arrow.Field{Type: c.arrays[at].typ, Nullable: true})
		in.Columns = append(in.Columns, p.Columns[at])
	}
	var err error
	if p.lease, err = d.pool.Assemble(d.grant, budget.Scratch, arrow.NewSchema(fields, nil), []frame.Piece{in}); err != nil {
		return err
	}
	for i, at := range encoded {
		data, err := d.attach(ctx, p.lease.Batch().Column(i).Data(), c.arrays[at], &p.bound)
		if err != nil {
			return inColumn(c.names[at], err)
		}
		p.encoded = append(p.encoded, encodedColumn{c.names[at], at, array.MakeFromData(data)})
		data.Release()
	}
	return nil
}

// attach returns data, which is laid out like s, with dictionaries at all
// indices in it, and adds to bound what their values take at most.
func (d *decoder) attach(ctx context.Context, data arrow.ArrayData, s *stored, bound *int64) (arrow.ArrayData, error) {
	if s.dict != nil {
		return d.attachHere(ctx, data, s, bound)
	}
	if !s.encoded() {
		data.Retain()
		return data, nil
	}
	var kids []arrow.ArrayData
	var have []arrow.DataType
	defer func() {
		for _, kid := range kids {
			kid.Release()
		}
	}()
	for i, kid := range data.Children() {
		k, err := d.attach(ctx, kid, s.kids[i], bound)
		if err != nil {
			return nil, err
		}
		kids, have = append(kids, k), append(have, k.DataType())
	}
	t := withChildren(s.typ, have)
	return array.NewData(t, data.Len(), data.Buffers(), kids, data.NullN(), data.Offset()), nil
}

func (d *decoder) attachHere(ctx context.Context, data arrow.ArrayData, s *stored, bound *int64) (arrow.ArrayData, error) {
	dict, err := d.dictionary(ctx, s)
	if err != nil {
		return nil, err
	}
	*bound += int64(data.Len()) * dict.widest
	t := &arrow.DictionaryType{IndexType: s.typ, ValueType: s.values}
	values := dict.array().Data().(*array.Data)
	return array.NewDataWithDictionary(t, data.Len(), data.Buffers(), data.NullN(), data.Offset(), values), nil
}

package arrowfile

import (
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/headrace/headrace/storage/frame"
)

// pick returns what of s is needed for an array of type t, a plain type: struct
// children by name in t's order, at any depth, everything else as it is. Where
// s is dictionary-encoded the result's type is that of the indices, and t is
// kept as what their values shall be.
func (s *stored) pick(t arrow.DataType) (*stored, error) {
	if d, ok := s.typ.(*arrow.DictionaryType); ok {
		return &stored{typ: d.IndexType, dict: d, values: t, ids: s.ids, rows: s.rows, nulls: s.nulls, parts: s.parts}, nil
	}
	if s.typ.ID() != t.ID() {
		return nil, fmt.Errorf("stored as %v, wanted as %v", s.typ, t)
	}
	out := &stored{typ: t, rows: s.rows, nulls: s.nulls, parts: s.parts}
	kids, wanted := s.kids, childTypes(t)
	if st, ok := t.(*arrow.StructType); ok {
		var err error
		if kids, err = s.named(st); err != nil {
			return nil, err
		}
	}
	if len(kids) != len(wanted) || len(kids) == 0 && !arrow.TypeEqual(s.typ, t) && t.ID() != arrow.STRUCT {
		return nil, fmt.Errorf("stored as %v, wanted as %v", s.typ, t)
	}
	var have []arrow.DataType
	for i, kid := range kids {
		k, err := kid.pick(wanted[i])
		if err != nil {
			return nil, err
		}
		out.kids, have = append(out.kids, k), append(have, k.typ)
	}
	if out.encoded() {
		out.typ = withChildren(t, have)
	}
	return out, nil
}

// named returns the children of a struct that t names, in t's order.
func (s *stored) named(t *arrow.StructType) ([]*stored, error) {
	var out []*stored
	for _, f := range t.Fields() {
		i, ok := s.typ.(*arrow.StructType).FieldIdx(f.Name)
		if !ok {
			return nil, fmt.Errorf("there is no field %q in %v", f.Name, s.typ)
		}
		out = append(out, s.kids[i])
	}
	return out, nil
}

// encoded tells whether s or anything below it consists of dictionary indices.
func (s *stored) encoded() bool {
	if s.dict != nil {
		return true
	}
	for _, kid := range s.kids {
		if kid.encoded() {
			return true
		}
	}
	return false
}

// column describes rows [from, to) of s to the copier. Buffers that are not in
// memory are read through r from the body that begins at base.
func (s *stored) column(r io.ReaderAt, base, from, to int64) frame.Column {
	c := s.whole(r, base)
	c.Offset, c.Len = from, to-from
	return c
}

func (s *stored) whole(r io.ReaderAt, base int64) frame.Column {
	c := frame.Column{Type: s.typ, Len: s.rows, Nulls: -1}
	if s.nulls == 0 {
		c.Nulls = 0
	}
	if _, ok := s.typ.(arrow.UnionType); ok {
		c.Buffers = []frame.Buffer{{}} // the place of a bitmap that unions do not have
	}
	for _, p := range s.parts {
		c.Buffers = append(c.Buffers, p.buffer(r, base))
	}
	for _, kid := range s.kids {
		c.Children = append(c.Children, kid.whole(r, base))
	}
	if s.nulls == 0 && len(c.Buffers) > 0 && len(s.parts) > 0 && s.parts[0].validity {
		c.Buffers[0] = frame.Buffer{} // writers may leave anything in a bitmap that nobody reads
	}
	return c
}

func (p *part) buffer(r io.ReaderAt, base int64) frame.Buffer {
	switch {
	case p.mem != nil:
		return frame.Buffer{Mem: p.mem}
	case p.len == 0:
		return frame.Buffer{}
	}
	return frame.Buffer{R: r, Off: base + p.off, Len: p.len}
}

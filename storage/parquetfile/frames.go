package parquetfile

import (
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

// assemble copies n decoded rows into frames.
func (s *Scanner) assemble(n int64, arrays []arrow.Array) ([]*frame.Lease, error) {
	piece := frame.Piece{Columns: make([]frame.Column, len(arrays))}
	for i, a := range arrays {
		piece.Columns[i] = frame.ColumnOf(a)
		retype(&piece.Columns[i], s.target.Field(i).Type)
	}
	size, err := s.measure(piece, 0, n)
	if err != nil {
		return nil, s.explain(err, "")
	}
	s.perRow = float64(size) / float64(n)
	leases, err := s.split(nil, piece, 0, n, size)
	if err != nil {
		for _, l := range leases {
			l.Release()
		}
		return nil, s.explain(err, "")
	}
	return leases, nil
}

// split adds rows [from, to) of piece, which have size bytes, to leases: as
// one frame, or as halves if that were too large a frame. One row stays one.
func (s *Scanner) split(leases []*frame.Lease, piece frame.Piece, from, to, size int64) ([]*frame.Lease, error) {
	if size <= frame.MaxFrame || to-from == 1 {
		piece.From, piece.To = from, to
		l, err := s.pool.Assemble(s.pays, budget.Frames, s.target, []frame.Piece{piece})
		if err != nil {
			return leases, frame.Behind(err, s.at+from)
		}
		return append(leases, l), nil
	}
	middle := from + (to-from)/2
	for _, half := range [][2]int64{{from, middle}, {middle, to}} {
		size, err := s.measure(piece, half[0], half[1])
		if err != nil {
			return leases, err
		}
		if leases, err = s.split(leases, piece, half[0], half[1], size); err != nil {
			return leases, err
		}
	}
	return leases, nil
}

func (s *Scanner) measure(piece frame.Piece, from, to int64) (int64, error) {
	piece.From, piece.To = from, to
	return frame.Measure(s.target, []frame.Piece{piece})
}

// retype gives a decoded column the type it is served as, which has the same
// layout; prune has seen to that.
func retype(c *frame.Column, t arrow.DataType) {
	c.Type = t
	below := children(t)
	if t.ID() == arrow.MAP && len(c.Children) == 1 {
		c = &c.Children[0] // the entries
	}
	for i := range below {
		retype(&c.Children[i], below[i].Type)
	}
}

// heapBytes says how many bytes of decoded data lie on the Go heap: what
// arrow-go converts it converts there, and byte arrays pass through slices.
func heapBytes(data arrow.ArrayData) int64 {
	const slice = 24
	n, sum := int64(data.Len()), int64(0)
	switch t := data.DataType().(type) {
	case *arrow.Int8Type, *arrow.Int16Type, *arrow.Uint8Type, *arrow.Uint16Type, *arrow.Uint32Type, *arrow.Uint64Type,
		*arrow.Date32Type, *arrow.Time32Type, *arrow.Time64Type:
		sum = n * int64(t.(arrow.FixedWidthDataType).Bytes())
	case *arrow.TimestampType:
		if t.Unit == arrow.Nanosecond { // INT96, perhaps
			sum = n * int64(t.Bytes())
		}
	case *arrow.Decimal128Type, *arrow.Decimal256Type:
		sum = n * (int64(t.(arrow.FixedWidthDataType).Bytes()) + slice)
	case arrow.BinaryDataType, *arrow.FixedSizeBinaryType, *arrow.Float16Type:
		sum = n * slice
	}
	for _, child := range data.Children() {
		sum += heapBytes(child)
	}
	return sum
}

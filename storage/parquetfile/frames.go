package parquetfile

import (
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

// roundBytes is the size of frames from which on it tells that of their rows.
const roundBytes = 64 << 10

// assemble makes frames of n rows.
func (s *Scanner) assemble(n int64, columns []frame.Column) (leases []*frame.Lease, err error) {
	err = guard(func() error {
		leases, err = s.pool.AssembleParts(s.pays, budget.Frames, s.target, frame.Piece{Columns: columns, To: n})
		return err
	})
	if err != nil {
		return nil, s.explain(frame.Behind(err, s.at), "")
	}
	var size int64
	for _, l := range leases {
		size += l.Bytes()
	}
	if size > roundBytes { // below, whole pages say little of rows
		s.perRow = float64(size) / float64(n)
	}
	return leases, nil
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

package frame

import (
	endian "encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
)

// Repeat returns a column of n rows that all are the one row of one: a null, a
// value of fixed width, a text or binary. It takes no memory: its buffers make
// up their bytes as they are read. ErrUnsupported names any other type.
func Repeat(one arrow.Array, n int64) (Column, error) {
	t := storage(one.DataType())
	if one.IsNull(0) {
		return Nulls(t, n)
	}
	lay, err := layoutOf(t)
	if err != nil {
		return Column{}, err
	}
	c := ColumnOf(one)
	out := Column{Type: t, Len: n, Buffers: []Buffer{{}}}
	switch lay.kind {
	case bit:
		pattern := []byte{0}
		if bits, skip, err := bitsOf(c.buffer(1), c.Offset, 1, nil); err != nil {
			return Column{}, err
		} else if bits[0]>>skip&1 == 1 {
			pattern[0] = 0xFF
		}
		out.Buffers = append(out.Buffers, made(period(pattern), bitmapBytes(n)))
	case fixed:
		value, err := c.buffer(1).view(times(c.Offset, lay.width), lay.width, nil)
		if err != nil {
			return Column{}, err
		}
		out.Buffers = append(out.Buffers, made(period(value), times(n, lay.width)))
	case binary:
		from, err := c.buffer(1).number(c.Offset, lay.width)
		if err != nil {
			return Column{}, err
		}
		to, err := c.buffer(1).number(c.Offset+1, lay.width)
		if err != nil {
			return Column{}, err
		}
		value, err := c.buffer(2).view(from, to-from, nil)
		if err != nil {
			return Column{}, err
		}
		out.Buffers = append(out.Buffers,
			made(steps{step: to - from, width: lay.width}, times(plus(n, 1), lay.width)),
			made(period(value), times(n, to-from)))
	default:
		return Column{}, fmt.Errorf("%w: repeated %v", ErrUnsupported, t)
	}
	return out, nil
}

// Nulls returns a column of n nulls of type t, which takes no memory.
// ErrUnsupported means a run-end encoded type.
func Nulls(t arrow.DataType, n int64) (Column, error) {
	lay, err := layoutOf(t)
	if err != nil {
		return Column{}, err
	}
	c := Column{Type: t, Len: n, Nulls: n}
	if lay.validity() {
		c.Buffers = append(c.Buffers, zeroed(bitmapBytes(n)))
	}
	rows := int64(0) // of each child
	switch lay.kind {
	case bit:
		c.Buffers = append(c.Buffers, zeroed(bitmapBytes(n)))
	case fixed, view:
		c.Buffers = append(c.Buffers, zeroed(times(n, lay.width)))
	case binary:
		c.Buffers = append(c.Buffers, zeroed(times(plus(n, 1), lay.width)), Buffer{})
	case list:
		c.Buffers = append(c.Buffers, zeroed(times(plus(n, 1), lay.width)))
	case listView:
		c.Buffers = append(c.Buffers, zeroed(times(n, lay.width)), zeroed(times(n, lay.width)))
	case fixedList:
		rows = times(n, lay.width)
	case record:
		rows = n
	case sparse, dense:
		return nullUnion(t.(arrow.UnionType), lay, n)
	case runs:
		return Column{}, fmt.Errorf("%w: nulls of %v", ErrUnsupported, t)
	}
	return c, c.addNulls(fieldsOf(t), rows)
}

func (c *Column) addNulls(fields []arrow.Field, rows int64) error {
	for _, f := range fields {
		child, err := Nulls(f.Type, rows)
		if err != nil {
			return err
		}
		c.Children = append(c.Children, child)
	}
	return nil
}

// nullUnion says that every row is a null of the first child: unions have no nulls of their own.
func nullUnion(t arrow.UnionType, lay layout, n int64) (Column, error) {
	if t.NumFields() == 0 {
		return Column{}, fmt.Errorf("%w: nulls of %v", ErrUnsupported, t)
	}
	c := Column{Type: t, Len: n, Buffers: []Buffer{{}, made(period(codes(t)[:1]), n)}}
	if lay.kind == sparse {
		return c, c.addNulls(t.Fields(), n)
	}
	c.Buffers = append(c.Buffers, made(steps{step: 1, width: 4}, times(n, 4)))
	if err := c.addNulls(t.Fields()[:1], n); err != nil {
		return c, err
	}
	return c, c.addNulls(t.Fields()[1:], 0)
}

func made(r io.ReaderAt, n int64) Buffer { return Buffer{R: r, Len: n} }

func zeroed(n int64) Buffer { return made(period{0}, n) }

// period is a run of bytes without end that repeats itself; an empty one has none.
type period []byte

func (b period) ReadAt(p []byte, off int64) (int, error) {
	if len(b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b[off%int64(len(b)):])
	for head := n; n < len(p) && n < head+len(b); {
		n += copy(p[n:], b)
	}
	if len(p) > n { // now whole periods are there to double
		from := n - len(b)
		for n < len(p) {
			n += copy(p[n:], p[from:n])
		}
	}
	return n, nil
}

// steps are the numbers 0, step, 2·step and so on, of 4 or 8 bytes each.
type steps struct{ step, width int64 }

func (s steps) ReadAt(p []byte, off int64) (int, error) {
	if off%s.width != 0 || int64(len(p))%s.width != 0 {
		return 0, fmt.Errorf("bytes %d+%d are no whole numbers", off, len(p))
	}
	for i := int64(0); i < int64(len(p)); i += s.width {
		switch v := times((off+i)/s.width, s.step); {
		case s.width == 8:
			endian.LittleEndian.PutUint64(p[i:], uint64(v))
		case v > math.MaxInt32:
			return int(i), fmt.Errorf("%w: %d", ErrOverflow, v)
		default:
			endian.LittleEndian.PutUint32(p[i:], uint32(v))
		}
	}
	return len(p), nil
}

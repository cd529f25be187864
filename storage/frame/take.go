package frame

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// null marks rows without a value among rows to take.
const null = int32(-1)

// resolve writes the row of the dictionary that each index of data means; null
// for those that are null, and for those whose value is.
func resolve(data arrow.ArrayData, values Column, rows []int32) error {
	if values.Len > math.MaxInt32 {
		return fmt.Errorf("%w: a dictionary of %d values", ErrOverflow, values.Len)
	}
	c := columnOf(data)
	valid, err := validityOf(c)
	if err != nil {
		return err
	}
	t := storage(data.DataType()).(*arrow.DictionaryType).IndexType
	width := int64(t.(arrow.FixedWidthDataType).BitWidth() / 8)
	indices, err := c.buffer(1).view(times(c.Offset, width), times(c.Len, width), nil)
	if err != nil {
		return err
	}
	if err := readAll(t.ID(), indices, rows, valid, values.Len); err != nil {
		return err
	}
	if valid, err = validityOf(values); err != nil || valid == nil {
		return err
	}
	for i, r := range rows {
		if r != null && !valid(int(r)) {
			rows[i] = null
		}
	}
	return nil
}

// validityOf returns whether row i of c has a value; nil if all have.
func validityOf(c Column) (func(i int) bool, error) {
	if c.Nulls == 0 || c.buffer(0).absent() || !hasValidity(c.Type) {
		return nil, nil
	}
	bits, skip, err := bitsOf(c.Buffers[0], c.Offset, c.Len, nil)
	return func(i int) bool { return bitutil.BitIsSet(bits, skip+i) }, err
}

func hasValidity(t arrow.DataType) bool {
	lay, err := layoutOf(t)
	return err != nil || lay.validity() // of the rest only dictionaries come here, and those have
}

func readAll(t arrow.Type, mem []byte, rows []int32, valid func(int) bool, limit int64) error {
	switch t {
	case arrow.INT8:
		return readIndices[int8](mem, rows, valid, limit)
	case arrow.UINT8:
		return readIndices[uint8](mem, rows, valid, limit)
	case arrow.INT16:
		return readIndices[int16](mem, rows, valid, limit)
	case arrow.UINT16:
		return readIndices[uint16](mem, rows, valid, limit)
	case arrow.INT32:
		return readIndices[int32](mem, rows, valid, limit)
	case arrow.UINT32:
		return readIndices[uint32](mem, rows, valid, limit)
	case arrow.INT64:
		return readIndices[int64](mem, rows, valid, limit)
	case arrow.UINT64:
		return readIndices[uint64](mem, rows, valid, limit)
	}
	return fmt.Errorf("%w: indices of type %v", ErrUnsupported, t)
}

func readIndices[T int8 | uint8 | int16 | uint16 | int32 | uint32 | int64 | uint64](mem []byte, rows []int32, valid func(int) bool, limit int64) error {
	for i, v := range unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), len(rows)) {
		switch {
		case valid != nil && !valid(i):
			rows[i] = null
		case v < 0 || uint64(v) >= uint64(limit):
			return &RowError{Row: int64(i), Err: fmt.Errorf("%w: index %d into a dictionary of %d values", ErrCorrupt, v, limit)}
		default:
			rows[i] = int32(v)
		}
	}
	return nil
}

// take makes an array of the given rows of values.
func take(mem memory.Allocator, values arrow.ArrayData, rows []int32) (arrow.ArrayData, error) {
	lay, err := layoutOf(values.DataType())
	if err != nil {
		return nil, err
	}
	c := columnOf(values)
	var buffers []*memory.Buffer
	switch {
	case lay.kind == fixed:
		buffers, err = takeFixed(mem, c, lay.width, rows)
	case lay.kind == binary && lay.width == 8:
		buffers, err = takeBinary[int64](mem, c, math.MaxInt64, rows)
	case lay.kind == binary:
		buffers, err = takeBinary[int32](mem, c, math.MaxInt32, rows)
	default:
		return takeSpans(mem, c, rows)
	}
	defer release(buffers)
	if err != nil {
		return nil, err
	}
	validity, nulls := takeValidity(mem, rows)
	defer release([]*memory.Buffer{validity})
	return array.NewData(values.DataType(), len(rows), append([]*memory.Buffer{validity}, buffers...), nil, nulls, 0), nil
}

// allocate returns n bytes of mem as a buffer.
func allocate(mem memory.Allocator, n int) ([]byte, *memory.Buffer) {
	b := memory.NewBufferWithAllocator(mem.Allocate(n), mem)
	return b.Bytes(), b
}

// takeValidity makes the bitmap of rows; nil if there are no nulls.
func takeValidity(mem memory.Allocator, rows []int32) (*memory.Buffer, int) {
	nulls := 0
	for _, r := range rows {
		if r == null {
			nulls++
		}
	}
	if nulls == 0 {
		return nil, 0
	}
	bits, b := allocate(mem, int(bitmapBytes(int64(len(rows)))))
	clear(bits)
	for i, r := range rows {
		if r != null {
			bitutil.SetBit(bits, i)
		}
	}
	return b, nulls
}

// takeFixed takes values of width bytes; nulls are zero.
func takeFixed(mem memory.Allocator, c Column, width int64, rows []int32) ([]*memory.Buffer, error) {
	src, err := c.buffer(1).view(times(c.Offset, width), times(c.Len, width), nil)
	if err != nil {
		return nil, err
	}
	size := times(int64(len(rows)), width)
	if size > math.MaxInt32*width {
		return nil, fmt.Errorf("%w: %d bytes", ErrOverflow, size)
	}
	dst, b := allocate(mem, int(size))
	switch width {
	case 4:
		gather[uint32](dst, src, rows)
	case 8:
		gather[uint64](dst, src, rows)
	default:
		for i, r := range rows {
			value := dst[int64(i)*width:][:width]
			if r == null {
				clear(value)
			} else {
				copy(value, src[int64(r)*width:])
			}
		}
	}
	return []*memory.Buffer{b}, nil
}

func gather[T uint32 | uint64](dst, src []byte, rows []int32) {
	var zero T
	in := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(src))), len(src)/int(unsafe.Sizeof(zero)))
	out := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(dst))), len(rows))
	for i, r := range rows {
		if r == null {
			out[i] = zero
		} else {
			out[i] = in[r]
		}
	}
}

// takeBinary takes values with offsets of type T, whose sum may be up to reach bytes.
func takeBinary[T int32 | int64](mem memory.Allocator, c Column, reach int64, rows []int32) ([]*memory.Buffer, error) {
	width := int64(unsafe.Sizeof(T(0)))
	var raw []byte
	var err error
	if c.Len > 0 {
		if raw, err = c.buffer(1).view(times(c.Offset, width), times(c.Len+1, width), nil); err != nil {
			return nil, err
		}
	}
	in := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(raw))), int64(len(raw))/width)
	data := c.buffer(2).Mem
	head, offsets := allocate(mem, (len(rows)+1)*int(width))
	out := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(head))), len(rows)+1)
	buffers := []*memory.Buffer{offsets}
	out[0] = 0
	for i, r := range rows {
		out[i+1] = out[i]
		if r == null {
			continue
		}
		from, to := in[r], in[r+1]
		if from < 0 || from > to || int64(to) > int64(len(data)) {
			return buffers, fmt.Errorf("%w: offsets %d to %d of %d", ErrCorrupt, from, to, len(data))
		}
		if int64(to-from) > reach-int64(out[i]) {
			return buffers, fmt.Errorf("%w: row %d of %d", ErrOverflow, i, len(rows))
		}
		out[i+1] += to - from
	}
	dst, bytes := allocate(mem, int(out[len(rows)]))
	for i, r := range rows {
		if r != null {
			copy(dst[out[i]:out[i+1]], data[in[r]:])
		}
	}
	return append(buffers, bytes), nil
}

// takeSpans takes rows of any type by the copier.
func takeSpans(mem memory.Allocator, c Column, rows []int32) (arrow.ArrayData, error) {
	builder := array.NewBuilder(memory.DefaultAllocator, c.Type)
	defer builder.Release()
	builder.AppendNull()
	nothing := builder.NewArray()
	defer nothing.Release()
	absent := ColumnOf(nothing)
	var spans []span
	for _, r := range rows {
		if r == null {
			spans = append(spans, span{&absent, 0, 1})
		} else {
			spans = appendRow(spans, &c, int64(r))
		}
	}
	var p planner
	n, err := p.plan("dictionary", c.Type, spans)
	if err != nil {
		return nil, err
	}
	size := n.bytes()
	if size > largest/2 {
		return nil, fmt.Errorf("%w: %d bytes", ErrOverflow, size)
	}
	_, base := allocate(mem, int(size))
	defer base.Release()
	f := filler{base: base}
	return f.fill(n)
}

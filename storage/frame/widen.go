package frame

import (
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/float16"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Widen returns arr as an array of type t, which holds all that arr's type
// does: numbers become wider ones, arrays of type null become nulls, and so do
// children of structs that arr lacks; children that t lacks are left out. The
// result is the caller's to release. It shares what stays as it is; the rest
// comes from mem, which may panic when it has none. What cannot be widened is
// ErrUnsupported.
func Widen(mem memory.Allocator, arr arrow.Array, t arrow.DataType) (arrow.Array, error) {
	data, err := widen(mem, arr.Data(), t)
	if err != nil {
		return nil, err
	}
	defer data.Release()
	return array.MakeFromData(data), nil
}

func widen(mem memory.Allocator, data arrow.ArrayData, t arrow.DataType) (arrow.ArrayData, error) {
	have := data.DataType()
	switch {
	case arrow.TypeEqual(have, t):
		data.Retain()
		return data, nil
	case have.ID() == arrow.NULL:
		return nullData(mem, t, data.Len()), nil
	case have.ID() != t.ID():
		return widenNumbers(mem, data, t)
	}
	var children []arrow.ArrayData
	defer func() {
		for _, c := range children {
			c.Release()
		}
	}()
	var err error
	switch want := t.(type) {
	case *arrow.StructType:
		children, err = widenFields(mem, data, want)
	case arrow.ListLikeType: // of any length, maps too: one child
		var child arrow.ArrayData
		if child, err = widen(mem, data.Children()[0], want.Elem()); err == nil {
			children = append(children, child)
		}
	case arrow.NestedType: // only names and nullability differ
		for i, f := range want.Fields() {
			var child arrow.ArrayData
			if child, err = widen(mem, data.Children()[i], f.Type); err != nil {
				break
			}
			children = append(children, child)
		}
	default:
		err = fmt.Errorf("%w: %v as %v", ErrUnsupported, have, t)
	}
	if err != nil {
		return nil, err
	}
	return array.NewData(t, data.Len(), data.Buffers(), children, data.NullN(), data.Offset()), nil
}

// widenFields returns a child for each of a struct's fields.
func widenFields(mem memory.Allocator, data arrow.ArrayData, t *arrow.StructType) (out []arrow.ArrayData, err error) {
	have := data.DataType().(*arrow.StructType)
	for _, f := range t.Fields() {
		var child arrow.ArrayData
		if i, ok := have.FieldIdx(f.Name); ok {
			child, err = widen(mem, data.Children()[i], f.Type)
		} else {
			child = nullData(mem, f.Type, data.Offset()+data.Len())
		}
		if err != nil {
			return out, err
		}
		out = append(out, child)
	}
	return out, nil
}

func nullData(mem memory.Allocator, t arrow.DataType, n int) arrow.ArrayData {
	arr := array.MakeArrayOfNull(mem, t, n)
	defer arr.Release()
	data := arr.Data()
	data.Retain()
	return data
}

// widenNumbers converts values; nulls keep whatever lies under them.
func widenNumbers(mem memory.Allocator, data arrow.ArrayData, t arrow.DataType) (arrow.ArrayData, error) {
	wide, ok := t.(arrow.FixedWidthDataType)
	narrow, also := data.DataType().(arrow.FixedWidthDataType)
	if !ok || !also || len(data.Buffers()) != 2 || data.Buffers()[1] == nil {
		return nil, fmt.Errorf("%w: %v as %v", ErrUnsupported, data.DataType(), t)
	}
	rows := data.Offset() + data.Len()
	src := data.Buffers()[1].Bytes()
	if len(src) < rows*narrow.Bytes() {
		return nil, fmt.Errorf("%w: %d values in %d bytes", ErrCorrupt, rows, len(src))
	}
	values := memory.NewResizableBuffer(mem)
	defer values.Release()
	values.Resize(rows * wide.Bytes())
	skip := data.Offset()
	if !convert(data.DataType().ID(), src[skip*narrow.Bytes():], t.ID(), values.Bytes()[skip*wide.Bytes():], data.Len()) {
		return nil, fmt.Errorf("%w: %v as %v", ErrUnsupported, data.DataType(), t)
	}
	return array.NewData(t, data.Len(), []*memory.Buffer{data.Buffers()[0], values}, nil, data.NullN(), data.Offset()), nil
}

// convert writes n numbers of one type as those of another; false if it does not know a type.
func convert(from arrow.Type, src []byte, to arrow.Type, dst []byte, n int) bool {
	switch from {
	case arrow.INT8:
		return convertTo(numbersOf[int8](src, n), to, dst)
	case arrow.INT16:
		return convertTo(numbersOf[int16](src, n), to, dst)
	case arrow.INT32:
		return convertTo(numbersOf[int32](src, n), to, dst)
	case arrow.INT64:
		return convertTo(numbersOf[int64](src, n), to, dst)
	case arrow.UINT8:
		return convertTo(numbersOf[uint8](src, n), to, dst)
	case arrow.UINT16:
		return convertTo(numbersOf[uint16](src, n), to, dst)
	case arrow.UINT32:
		return convertTo(numbersOf[uint32](src, n), to, dst)
	case arrow.UINT64:
		return convertTo(numbersOf[uint64](src, n), to, dst)
	case arrow.FLOAT32:
		return convertTo(numbersOf[float32](src, n), to, dst)
	case arrow.FLOAT16:
		halves := numbersOf[float16.Num](src, n)
		switch to {
		case arrow.FLOAT32:
			unpack(halves, numbersOf[float32](dst, n))
			return true
		case arrow.FLOAT64:
			unpack(halves, numbersOf[float64](dst, n))
			return true
		}
	}
	return false
}

// whole is a number that Go itself converts.
type whole interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

func convertTo[F whole](src []F, to arrow.Type, dst []byte) bool {
	switch n := len(src); to {
	case arrow.INT16:
		copyAs(src, numbersOf[int16](dst, n))
	case arrow.INT32:
		copyAs(src, numbersOf[int32](dst, n))
	case arrow.INT64:
		copyAs(src, numbersOf[int64](dst, n))
	case arrow.UINT16:
		copyAs(src, numbersOf[uint16](dst, n))
	case arrow.UINT32:
		copyAs(src, numbersOf[uint32](dst, n))
	case arrow.UINT64:
		copyAs(src, numbersOf[uint64](dst, n))
	case arrow.FLOAT32:
		copyAs(src, numbersOf[float32](dst, n))
	case arrow.FLOAT64:
		copyAs(src, numbersOf[float64](dst, n))
	case arrow.FLOAT16:
		for i, v := range src {
			numbersOf[float16.Num](dst, n)[i] = float16.New(float32(v))
		}
	default:
		return false
	}
	return true
}

func copyAs[F, T whole](src []F, dst []T) {
	for i, v := range src {
		dst[i] = T(v)
	}
}

func unpack[T float32 | float64](src []float16.Num, dst []T) {
	for i, v := range src {
		dst[i] = T(v.Float32())
	}
}

// numbersOf shows bytes as n numbers.
func numbersOf[T any](b []byte, n int) []T {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

package frame

import (
	"reflect"

	"github.com/apache/arrow-go/v18/arrow"
)

// rowsOf lists rows [from, to) of c as plain values, read by rules of its own:
// it shares no code with the copier, only the description of columns.
func rowsOf(arr arrow.Array, from, to int) []any {
	var out []any
	for i := from; i < to; i++ {
		out = append(out, valueOf(arr.Data(), i))
	}
	return out
}

// valueOf is row i of data as nil, bytes, or a list of values.
func valueOf(d arrow.ArrayData, i int) any {
	lay, _ := layoutOf(d.DataType())
	at := int64(d.Offset() + i)
	buf := func(k int) []byte { return d.Buffers()[k].Bytes() }
	if lay.validity() && d.Buffers()[0] != nil && buf(0)[at/8]>>(at%8)&1 == 0 {
		return nil
	}
	rows := func(child int, from, to int64) any {
		out := []any{}
		for j := from; j < to; j++ {
			out = append(out, valueOf(d.Children()[child], int(j)))
		}
		return out
	}
	w := lay.width
	switch lay.kind {
	case bit:
		return buf(1)[at/8]>>(at%8)&1 == 1
	case fixed:
		return string(buf(1)[at*w : (at+1)*w])
	case binary:
		return string(buf(2)[number(buf(1), at, w):number(buf(1), at+1, w)])
	case view:
		v := buf(1)[at*w:][:w]
		if size := number(v, 0, 4); size > inline {
			from := number(v, 3, 4)
			return string(buf(int(number(v, 2, 4)) + 2)[from : from+size])
		}
		return string(v[4 : 4+number(v, 0, 4)])
	case list:
		return rows(0, number(buf(1), at, w), number(buf(1), at+1, w))
	case fixedList:
		return rows(0, at*w, (at+1)*w)
	case listView:
		return rows(0, number(buf(1), at, w), number(buf(1), at, w)+number(buf(2), at, w))
	case record:
		out := []any{}
		for k := range d.Children() {
			out = append(out, valueOf(d.Children()[k], int(at)))
		}
		return out
	case sparse:
		k := d.DataType().(arrow.UnionType).ChildIDs()[buf(1)[at]]
		return []any{k, valueOf(d.Children()[k], int(at))}
	case dense:
		k := d.DataType().(arrow.UnionType).ChildIDs()[buf(1)[at]]
		return []any{k, valueOf(d.Children()[k], int(number(buf(2), at, w)))}
	case runs:
		ends := d.Children()[0]
		for j := 0; ; j++ {
			if number(ends.Buffers()[1].Bytes(), int64(ends.Offset()+j), w) > at {
				return valueOf(d.Children()[1], j)
			}
		}
	}
	return nil
}

func same(a, b []any) bool { return len(a) == len(b) && (len(a) == 0 || reflect.DeepEqual(a, b)) }

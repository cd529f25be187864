package gather

import (
	"runtime"
	"unsafe"
)

// moveFixed copies values of one width, those of rows that stand together as one.
func moveFixed(dst []byte, values []unsafe.Pointer, s *selection, width int64) {
	if len(dst) == 0 {
		return
	}
	if s.per == 0 {
		moveRuns(dst, values, s.runs, width)
		return
	}
	switch width *= s.per; width {
	case 1:
		moveRows[uint8](dst, values, s.rows)
	case 2:
		moveRows[uint16](dst, values, s.rows)
	case 4:
		moveRows[uint32](dst, values, s.rows)
	case 8:
		moveRows[uint64](dst, values, s.rows)
	case 12:
		moveRows[[3]uint32](dst, values, s.rows)
	case 16:
		moveRows[[2]uint64](dst, values, s.rows)
	case 24:
		moveRows[[3]uint64](dst, values, s.rows)
	case 32:
		moveRows[[4]uint64](dst, values, s.rows)
	default:
		moveWide(dst, values, s.rows, width)
	}
}

// moveRows copies one T for each row. The rows were checked when they were
// selected, and the values to reach that far when they were bound.
func moveRows[T uint8 | uint16 | uint32 | uint64 | [3]uint32 | [2]uint64 | [3]uint64 | [4]uint64](dst []byte, values []unsafe.Pointer, rows []Row) {
	size := int64(unsafe.Sizeof(*new(T)))
	out := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(dst))), int64(len(dst))/size)
	out = out[:len(rows)]
	for i := range rows {
		r := &rows[i] // this and the unsigned numbers spare a third of the instructions
		out[i] = *(*T)(unsafe.Add(values[uint32(r.Frame)], int64(uint32(r.Row))*size))
	}
}

// Long copies keep the processor from seeing what comes next, so that each
// would begin by waiting for memory. From wide bytes on it pays to touch the
// row that is ahead copies away; shorter ones overlap by themselves.
const (
	wide  = 512
	ahead = 4
)

// moveWide copies width bytes for each row.
func moveWide(dst []byte, values []unsafe.Pointer, rows []Row, width int64) {
	var touched byte
	for i, r := range rows {
		if width >= wide && i+ahead < len(rows) {
			next := rows[i+ahead]
			touched ^= *(*byte)(unsafe.Add(values[next.Frame], int64(next.Row)*width))
		}
		copy(dst[:width], unsafe.Slice((*byte)(unsafe.Add(values[r.Frame], int64(r.Row)*width)), width))
		dst = dst[width:]
	}
	runtime.KeepAlive(touched)
}

// moveRuns copies width bytes for each row of the runs.
func moveRuns(dst []byte, values []unsafe.Pointer, runs []run, width int64) {
	var touched byte
	for i, r := range runs {
		if i+ahead < len(runs) {
			if next := &runs[i+ahead]; next.n*width >= wide {
				touched ^= *(*byte)(unsafe.Add(values[next.slot], next.from*width))
			}
		}
		if n := r.n * width; n > 0 {
			copy(dst[:n], unsafe.Slice((*byte)(unsafe.Add(values[r.slot], r.from*width)), n))
			dst = dst[n:]
		}
	}
	runtime.KeepAlive(touched)
}

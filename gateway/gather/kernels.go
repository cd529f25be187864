package gather

import (
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/bitutil"
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
	case 16:
		moveRows[[2]uint64](dst, values, s.rows)
	default:
		moveWide(dst, values, s.rows, width)
	}
}

// moveRows copies one T for each row. The rows were checked when they were
// selected, and the values to reach that far when they were bound.
func moveRows[T uint8 | uint16 | uint32 | uint64 | [2]uint64](dst []byte, values []unsafe.Pointer, rows []Row) {
	var size = int64(unsafe.Sizeof(*new(T)))
	out := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(dst))), int64(len(dst))/size)
	out = out[:len(rows)]
	for i, r := range rows {
		out[i] = *(*T)(unsafe.Add(values[r.Frame], int64(r.Row)*size))
	}
}

// moveWide copies width bytes for each row.
func moveWide(dst []byte, values []unsafe.Pointer, rows []Row, width int64) {
	for _, r := range rows {
		copy(dst[:width], unsafe.Slice((*byte)(unsafe.Add(values[r.Frame], int64(r.Row)*width)), width))
		dst = dst[width:]
	}
}

// moveRuns copies width bytes for each row of the runs.
func moveRuns(dst []byte, values []unsafe.Pointer, runs []run, width int64) {
	for _, r := range runs {
		if n := r.n * width; n > 0 {
			copy(dst[:n], unsafe.Slice((*byte)(unsafe.Add(values[r.slot], r.from*width)), n))
			dst = dst[n:]
		}
	}
}

// moveBits copies bits; those behind the last are zero.
func moveBits(dst []byte, from []bitmap, s *selection) {
	if s.single() {
		bitsOfRows(dst, from, s.rows)
		return
	}
	clear(dst)
	at := int64(0)
	for _, r := range s.asRuns() {
		if b := &from[r.slot]; b.mask == 0 {
			bitutil.SetBitsTo(dst, at, r.n, true)
		} else if r.n > 0 {
			mem, skip := b.bytes(r.from, r.n)
			bitutil.CopyBitmap(mem, skip, int(r.n), dst, int(at))
		}
		at += r.n
	}
	if tail := s.total % 8; tail != 0 {
		dst[len(dst)-1] &= 1<<tail - 1
	}
}

// bitsOfRows makes a bit of each row.
func bitsOfRows(dst []byte, from []bitmap, rows []Row) {
	for i := 0; len(rows) > 0; i++ {
		few := rows[:min(8, len(rows))]
		var b byte
		for j, r := range few {
			b |= from[r.Frame].bit(int64(r.Row)) << (j & 7)
		}
		dst[i] = b
		rows = rows[len(few):]
	}
}

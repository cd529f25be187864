package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"golang.org/x/sys/unix"

	"github.com/headrace/headrace/gateway/gather"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

// The rows lie in so many frames of about so many bytes, which is a window of a GB.
const (
	gatherFrames = 64
	gatherBytes  = 16_777_216
	gatherTurn   = "0.3" // seconds
)

// rowShape is what rows are made of. The data of a row are a function of its number, as in gather.py.
type rowShape struct {
	name, title string
	batch       int
	bytes       int // of a row
	frameBytes  int
	types       []arrow.DataType
	id          int // which column
}

var rowShapes = []rowShape{
	{"samples", "480 floats, id, label; 256 a batch", 256, 1932, gatherBytes, []arrow.DataType{
		arrow.FixedSizeListOf(480, arrow.PrimitiveTypes.Float32), arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Int32,
	}, 1},
	{"pages", "4,096 bytes; 256 a batch", 256, 4096, gatherBytes, []arrow.DataType{&arrow.FixedSizeBinaryType{ByteWidth: 4096}}, 0},
	{"bytes64", "64 bytes in six columns; 4,096 a batch", 4096, 64, gatherBytes, []arrow.DataType{
		arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Int64,
		arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float32, &arrow.FixedSizeBinaryType{ByteWidth: 32},
	}, 0},
	{"numbers", "8 bytes, of 0.6 M rows; 65,536 a batch", 65536, 8, gatherBytes / 1932 * 8, []arrow.DataType{arrow.PrimitiveTypes.Int64}, 0},
}

// taker takes random rows in batches for a while and tells what it took; Seconds are those of one processor.
type taker func() (reading, error)

// gathering takes random rows of a GB in memory: gather's kernels, numpy's fancy indexing and pyarrow's take, one
// processor each.
func gathering(ctx context.Context, s settings) (string, error) {
	versions, err := s.versions(ctx)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "## Gather: random rows of %d frames in memory\n\n", gatherFrames)
	fmt.Fprintf(&b, "By the processor's time, %d interleaved rounds; medians (least–most). In whole: numpy and pyarrow have the rows in one\n"+
		"array; in chunks: in %d, as we have. The ratios are ours to theirs.\n%s\n\n", s.repeats, gatherFrames, versions)
	b.WriteString("| rows | million rows/s | GB/s | numpy, whole | pyarrow, whole | pyarrow, chunks |\n|---|---|---|---|---|---|\n")
	for _, shape := range rowShapes {
		runs, err := s.gatherShape(ctx, shape)
		if err != nil {
			return "", fmt.Errorf("%s: %w", shape.name, err)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |", shape.title, spread(runs[0], reading.millions), spread(runs[0], reading.throughput))
		for _, other := range runs[1:] {
			fmt.Fprintf(&b, " %s: ×%.3g |", spread(other, reading.throughput), ratio(runs[0], other, reading.throughput))
		}
		b.WriteString("\n")
	}
	return b.String(), nil
}

func (r reading) millions() float64 { return float64(r.Rows) / r.Seconds / 1e6 }

// gatherShape measures rows of one shape; the runs are ours, then numpy's and pyarrow's.
func (s settings) gatherShape(ctx context.Context, shape rowShape) ([][]reading, error) {
	rows := int(float64(shape.frameBytes/shape.bytes) * s.scale)
	ours, done, err := shape.gatherer(rows)
	if err != nil {
		return nil, err
	}
	defer done()
	python, stop, err := s.pythonTakers(ctx, shape, rows, "numpy", "pyarrow", "chunked")
	if err != nil {
		return nil, err
	}
	defer stop()
	takers := append([]taker{ours}, python...)
	runs := make([][]reading, len(takers))
	for round := range s.repeats + 1 { // the first one warms up and does not count
		for _, i := range rand.Perm(len(takers)) {
			r, err := takers[i]()
			if err != nil {
				return nil, err
			}
			if round > 0 {
				runs[i] = append(runs[i], r)
			}
		}
	}
	return runs, nil
}

// pythonTakers starts a script that has the same rows and takes them by each of the methods.
func (s settings) pythonTakers(ctx context.Context, shape rowShape, rows int, methods ...string) ([]taker, func(), error) {
	ask, stop, err := s.conversation(ctx, "gather.py", shape.name, strconv.Itoa(gatherFrames), strconv.Itoa(rows), strconv.Itoa(shape.batch))
	if err != nil {
		return nil, nil, err
	}
	var takers []taker
	for _, method := range methods {
		takers = append(takers, func() (reading, error) { return ask(method + " " + gatherTurn) })
	}
	return takers, stop, nil
}

// gatherer makes the frames and takes rows of them with our own kernels.
func (shape rowShape) gatherer(rows int) (taker, func(), error) {
	ledger := budget.New(budget.Options{Limit: 4 << 30})
	grant, err := ledger.Admit(context.Background(), 0)
	if err != nil {
		return nil, nil, err
	}
	pool := frame.NewPool(frame.Options{Idle: 1 << 30})
	leases, g, err := shape.frames(pool, grant, rows)
	done := func() {
		for _, l := range leases {
			l.Release()
		}
		grant.Close()
		_ = pool.Close()
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	order := make([]gather.Row, max(1<<21, 2*shape.batch))
	for i := range order {
		order[i] = gather.Row{Frame: rand.Int32N(gatherFrames), Row: rand.Int32N(int32(rows))}
	}
	return func() (r reading, err error) {
		begin := processorSeconds()
		for turn, _ := strconv.ParseFloat(gatherTurn, 64); r.Seconds < turn; r.Seconds = processorSeconds() - begin {
			at := int(r.Rows) % (len(order) - shape.batch)
			if err := shape.take(g, pool, grant, order[at:][:shape.batch], rows); err != nil {
				return r, err
			}
			r.Rows += int64(shape.batch)
		}
		r.Bytes = r.Rows * int64(shape.bytes)
		return r, nil
	}, done, nil
}

// take gathers one batch and looks at its last row.
func (shape rowShape) take(g *gather.Gatherer, pool *frame.Pool, grant *budget.Grant, order []gather.Row, rows int) error {
	if _, err := g.Select(order); err != nil {
		return err
	}
	l, err := g.Gather(pool, grant, budget.Batches)
	if err != nil {
		return err
	}
	defer l.Release()
	last := order[len(order)-1]
	ids := l.Batch().Column(shape.id).Data().Buffers()[1].Bytes()
	step := len(ids) / len(order)
	if id := *(*int64)(unsafe.Pointer(&ids[len(ids)-step])); id != int64(int(last.Frame)*rows+int(last.Row)) {
		return errors.New("other rows than were asked for")
	}
	return nil
}

// frames makes the frames and puts them into a gatherer.
func (shape rowShape) frames(pool *frame.Pool, grant *budget.Grant, rows int) (leases []*frame.Lease, g *gather.Gatherer, err error) {
	var fields []arrow.Field
	for i, t := range shape.types {
		fields = append(fields, arrow.Field{Name: "c" + strconv.Itoa(i), Type: t})
	}
	schema := arrow.NewSchema(fields, nil)
	if g, err = gather.New(schema); err != nil {
		return nil, nil, err
	}
	for i := range gatherFrames {
		piece := frame.Piece{To: int64(rows)}
		for _, t := range shape.types {
			column := array.MakeFromData(rowData(t, int64(i*rows), rows))
			piece.Columns = append(piece.Columns, frame.ColumnOf(column))
		}
		l, err := pool.Assemble(grant, budget.Frames, schema, []frame.Piece{piece})
		if err != nil {
			return leases, nil, err
		}
		leases = append(leases, l)
		if err := g.Put(i, l.Batch()); err != nil {
			return leases, nil, err
		}
	}
	return leases, g, nil
}

// rowData makes rows from number first on: in every type the number again and again, in lists of floats as a float.
func rowData(t arrow.DataType, first int64, rows int) arrow.ArrayData {
	if list, ok := t.(*arrow.FixedSizeListType); ok {
		per := int(list.Len())
		values := make([]float32, rows*per)
		for i := range values {
			values[i] = float32(first + int64(i/per))
		}
		buffer := memory.NewBufferBytes(arrow.Float32Traits.CastToBytes(values))
		child := array.NewData(list.Elem(), len(values), []*memory.Buffer{nil, buffer}, nil, 0, 0)
		return array.NewData(t, rows, []*memory.Buffer{nil}, []arrow.ArrayData{child}, 0, 0)
	}
	width := t.(arrow.FixedWidthDataType).BitWidth() / 8
	mem := make([]byte, rows*width)
	for i := range rows {
		row := mem[i*width:][:width]
		number := first + int64(i)
		for at := 0; at < width; at += 8 {
			copy(row[at:], arrow.Int64Traits.CastToBytes([]int64{number}))
		}
	}
	return array.NewData(t, rows, []*memory.Buffer{nil, memory.NewBufferBytes(mem)}, nil, 0, 0)
}

// processorSeconds is the processor time of this process so far.
func processorSeconds() float64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return float64(t.Nano()) / 1e9
}

//go:build unix

package gather

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/headrace/headrace/storage/arrowtest"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

// The benchmarks gather random rows of 64 frames of 16.8 MB, a window of a GB,
// in batches. Speeds are by processor time, which a busy machine distorts least.
const (
	benchFrames = 64
	benchBytes  = 16_777_216
	samples     = benchBytes / 1932 // rows of a frame of 1,920 bytes with an id and a label
)

var int64s, float32s = arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Float32

func BenchmarkInt64(b *testing.B) { benchmark(b, 65536, samples, int64s) }

func BenchmarkInt64By256(b *testing.B) { benchmark(b, 256, samples, int64s) }

func BenchmarkRowsOf64Bytes(b *testing.B) {
	benchmark(b, 4096, benchBytes/64, int64s, int64s, int64s, float32s, float32s, &arrow.FixedSizeBinaryType{ByteWidth: 32})
}

func BenchmarkRowsOf4KiB(b *testing.B) {
	benchmark(b, 256, benchBytes/4096, &arrow.FixedSizeBinaryType{ByteWidth: 4096})
}

func BenchmarkSamples(b *testing.B) {
	benchmark(b, 256, samples, arrow.FixedSizeListOf(480, float32s), int64s, arrow.PrimitiveTypes.Int32)
}

func BenchmarkStringsOf100Bytes(b *testing.B) {
	benchmark(b, 256, benchBytes/104, arrow.BinaryTypes.String)
}

func BenchmarkListsOf100Bytes(b *testing.B) {
	benchmark(b, 256, benchBytes/104, arrow.ListOf(float32s))
}

// benchmark gathers batches of rows of the types, from frames of so many rows.
func benchmark(b *testing.B, batch, frameRows int, types ...arrow.DataType) {
	w := newWorld(b, false)
	s := schemaOf(types...)
	var columns []arrow.Array
	for _, t := range types {
		columns = append(columns, array.MakeFromData(benchData(t, frameRows)))
	}
	piece := frame.PieceOf(array.NewRecordBatch(s, columns, int64(frameRows)), 0, int64(frameRows))
	g := newGatherer(b, s)
	for i := range benchFrames {
		l, err := w.pool.Assemble(w.grant, budget.Frames, s, []frame.Piece{piece})
		if err != nil {
			b.Fatal(err)
		}
		defer l.Release()
		if err := g.Put(i, l.Batch()); err != nil {
			b.Fatal(err)
		}
	}
	rows := make([]Row, max(1<<21, 2*batch))
	r := rand.New(rand.NewPCG(1, 7))
	for i := range rows {
		rows[i] = Row{int32(r.IntN(benchFrames)), int32(r.IntN(frameRows))}
	}
	var bytes int64
	turn := func(i int) {
		from := i * batch % (len(rows) - batch)
		size, err := g.Select(rows[from:][:batch])
		if err != nil {
			b.Fatal(err)
		}
		l, err := g.Gather(w.pool, w.grant, budget.Batches)
		if err != nil {
			b.Fatal(err)
		}
		bytes += size
		l.Release()
	}
	for i := range 20 {
		turn(i)
	}
	b.ReportAllocs()
	bytes = 0
	begin := processorTime()
	for i := 0; b.Loop(); i++ {
		turn(i)
	}
	spent := (processorTime() - begin).Seconds()
	b.ReportMetric(float64(bytes)/spent/1e9, "GB/s")
	b.ReportMetric(float64(b.N*batch)/spent/1e6, "Mrows/s")
}

func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchData makes n rows: strings and lists of 100 bytes, the rest as wide as it is.
func benchData(t arrow.DataType, n int) arrow.ArrayData {
	kind, width := layout(t)
	var children []arrow.ArrayData
	buffers := []*memory.Buffer{nil}
	filled := func(n int64) *memory.Buffer {
		mem := make([]byte, n)
		for i := range mem {
			mem[i] = byte(i)
		}
		return memory.NewBufferBytes(mem)
	}
	switch kind {
	case fixedList:
		children = append(children, benchData(fields(t)[0].Type, n*int(width)))
	case list:
		step := 100
		if f := fields(t); f != nil {
			step = 25
			children = append(children, benchData(f[0].Type, n*step))
		}
		var offsets []byte
		for i := range n + 1 {
			offsets = arrowtest.Put(offsets, int(width), i*step)
		}
		buffers = append(buffers, memory.NewBufferBytes(offsets))
		if children == nil {
			buffers = append(buffers, filled(int64(n*step)))
		}
	default:
		buffers = append(buffers, filled(int64(n)*width))
	}
	return array.NewData(t, n, buffers, children, 0, 0)
}

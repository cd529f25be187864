package codec

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"pgregory.net/rapid"
)

// randomType draws a type that nests at most depth levels.
func randomType(r *rand.Rand, depth int) arrow.DataType {
	leaves := []arrow.DataType{
		arrow.Null, arrow.FixedWidthTypes.Boolean, arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Float64,
		&arrow.FixedSizeBinaryType{ByteWidth: 5}, &arrow.Decimal128Type{Precision: 20, Scale: 2},
		arrow.FixedWidthTypes.DayTimeInterval, arrow.FixedWidthTypes.MonthInterval, arrow.FixedWidthTypes.MonthDayNanoInterval,
		arrow.BinaryTypes.String, arrow.BinaryTypes.LargeBinary, arrow.BinaryTypes.StringView, arrow.BinaryTypes.BinaryView,
	}
	if depth == 0 || r.IntN(3) == 0 {
		return leaves[r.IntN(len(leaves))]
	}
	child := randomType(r, depth-1)
	fields := []arrow.Field{{Name: "a", Type: child, Nullable: true}, {Name: "b", Type: randomType(r, depth-1), Nullable: true}}
	switch r.IntN(10) {
	case 0:
		return arrow.LargeListOf(child)
	case 1:
		return arrow.FixedSizeListOf(int32(r.IntN(3)+1), child)
	case 2:
		return arrow.ListViewOf(child)
	case 3:
		return arrow.LargeListViewOf(child)
	case 4:
		return arrow.StructOf(fields...)
	case 5:
		return arrow.MapOf(arrow.BinaryTypes.String, child)
	case 6:
		return arrow.SparseUnionOf(fields, []arrow.UnionTypeCode{3, 7})
	case 7:
		return arrow.DenseUnionOf(fields, []arrow.UnionTypeCode{7, 3})
	case 8:
		return arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int16, leaves[1+r.IntN(len(leaves)-1)])
	default:
		return arrow.ListOf(child)
	}
}

// appendRandom appends one row.
func appendRandom(b array.Builder, r *rand.Rand) {
	if r.IntN(5) == 0 {
		b.AppendNull()
		return
	}
	text := fmt.Sprintf("%0*d", r.IntN(30), r.IntN(1000))
	switch b := b.(type) {
	case *array.NullBuilder:
		b.AppendNull()
	case *array.BooleanBuilder:
		b.Append(r.IntN(2) == 0)
	case *array.Int8Builder:
		b.Append(int8(r.IntN(256)))
	case *array.Int64Builder:
		b.Append(r.Int64())
	case *array.Float64Builder:
		b.Append(r.NormFloat64())
	case *array.FixedSizeBinaryBuilder:
		b.Append([]byte(text + "12345")[:5])
	case *array.Decimal128Builder:
		b.Append(decimal128.FromI64(r.Int64()))
	case *array.DayTimeIntervalBuilder:
		b.Append(arrow.DayTimeInterval{Days: r.Int32(), Milliseconds: r.Int32()})
	case *array.MonthIntervalBuilder:
		b.Append(arrow.MonthInterval(r.Int32()))
	case *array.MonthDayNanoIntervalBuilder:
		b.Append(arrow.MonthDayNanoInterval{Months: r.Int32(), Days: r.Int32(), Nanoseconds: r.Int64()})
	case *array.StringBuilder:
		b.Append(text)
	case *array.BinaryBuilder:
		b.Append([]byte(text))
	case *array.StringViewBuilder:
		b.Append(text)
	case *array.BinaryViewBuilder:
		b.Append([]byte(text))
	default:
		appendRandomNested(b, r)
	}
}

func appendRandomNested(b array.Builder, r *rand.Rand) {
	switch b := b.(type) {
	case *array.MapBuilder:
		b.Append(true)
		for i := range r.IntN(3) {
			b.KeyBuilder().(*array.StringBuilder).Append(fmt.Sprint("key ", i))
			appendRandom(b.ItemBuilder(), r)
		}
	case *array.FixedSizeListBuilder:
		b.Append(true)
		for range b.Type().(*arrow.FixedSizeListType).Len() {
			appendRandom(b.ValueBuilder(), r)
		}
	case array.VarLenListLikeBuilder:
		n := r.IntN(4)
		b.AppendWithSize(true, n)
		for range n {
			appendRandom(b.ValueBuilder(), r)
		}
	case *array.StructBuilder:
		b.Append(true)
		appendRandom(b.FieldBuilder(0), r)
		appendRandom(b.FieldBuilder(1), r)
	case *array.SparseUnionBuilder:
		i := r.IntN(2)
		b.Append(arrow.UnionTypeCode(3 + 4*i))
		appendRandom(b.Child(i), r)
		b.Child(1 - i).AppendEmptyValue()
	case *array.DenseUnionBuilder:
		i := r.IntN(2)
		b.Append(arrow.UnionTypeCode(7 - 4*i))
		appendRandom(b.Child(i), r)
	case *array.RunEndEncodedBuilder:
		if b.Len() > 0 && r.IntN(3) > 0 {
			b.ContinueRun(1)
			return
		}
		b.Append(1)
		appendRandom(b.ValueBuilder(), r)
	default:
		panic(fmt.Sprintf("no value for %T", b))
	}
}

// randomBatch has up to four columns of random types and values.
func randomBatch(r *rand.Rand) arrow.RecordBatch {
	rows := r.IntN(120)
	if r.IntN(8) == 0 {
		rows = r.IntN(5000)
	}
	var fields []arrow.Field
	var columns []arrow.Array
	for i := range r.IntN(5) {
		t := randomType(r, 3)
		b := array.NewBuilder(heap, t)
		for b.Len() < rows {
			appendRandom(b, r)
		}
		fields = append(fields, arrow.Field{Name: fmt.Sprint("c", i), Type: t, Nullable: true})
		arr := b.NewArray()
		columns = append(columns, array.NewSlice(arr, 0, int64(rows)))
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, int64(rows))
}

// randomSlice encodes a slice of a batch, taken from a frame or from the batch itself, as an IPC stream.
func randomSlice(t testing.TB, s *store, rec arrow.RecordBatch, r *rand.Rand) (stream []byte, from, n int64) {
	from = r.Int64N(rec.NumRows() + 1)
	if n = r.Int64N(rec.NumRows() - from + 1); r.IntN(4) == 0 {
		from, n = 0, rec.NumRows()
	}
	source := rec
	if r.IntN(2) == 0 {
		lease := s.frame(t, rec)
		defer lease.Release()
		source = lease.Batch()
	}
	body, err := NewEncoder(Compression(r.IntN(3)), s.pool, s.grant).Encode(source.NewSlice(from, from+n))
	if err != nil {
		t.Fatalf("%v: %v", rec.Schema(), err)
	}
	defer body.Release()
	return body.stream(rec.Schema()), from, n
}

// Any slice of any batch, encoded, decodes to its rows.
func TestEncodedSlicesDecodeEqual(t *testing.T) {
	s := newStore(t)
	rapid.Check(t, func(rt *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		rec := randomBatch(r)
		stream, from, n := randomSlice(t, s, rec, r)
		want, got := rec.NewSlice(from, from+n), decode(t, stream)
		if !equal(want, got) {
			rt.Fatalf("rows %d+%d: sent\n%v\ncame\n%v", from, n, want, got)
		}
	})
}

// pyarrow takes the same kind of messages, validates them in full, and finds the rows of the batch.
func TestPyarrowTakesRandomSlices(t *testing.T) {
	python(t)
	dir := t.TempDir()
	s := newStore(t)
	var jobs []job
	for i := range 150 {
		r := rand.New(rand.NewPCG(uint64(i), 2))
		rec := randomBatch(r)
		var whole bytes.Buffer
		w := ipc.NewWriter(&whole, ipc.WithSchema(rec.Schema()))
		if err := w.Write(rec); err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
		stream, from, n := randomSlice(t, s, rec, r)
		j := job{File: fmt.Sprint(i, ".whole"), Stream: fmt.Sprint(i, ".slice"), From: from, N: n}
		for name, b := range map[string][]byte{j.File: whole.Bytes(), j.Stream: stream} {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		jobs = append(jobs, j)
	}
	writeJobs(t, dir, jobs)
	checkJobs(t, dir, len(jobs))
}

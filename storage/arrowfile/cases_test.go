package arrowfile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"pgregory.net/rapid"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

// Writers fail on slices of unions and list views; frames of rows 1 to n must
// still hold those rows.
func TestB24_SlicedUnionsAndListViews(t *testing.T) {
	dir := files(t)
	h := newHouse(t, dir)
	obj, sh := h.describe(t, "nested-none.file")
	_, want := stream(t, filepath.Join(dir, "nested-none.file.expect"))
	plain := schema.Plain(sh.Schema)
	for _, name := range []string{"sparse", "dense", "list_view", "large_list_view", "runs"} {
		p, err := schema.Project(plain, [][]string{{name}})
		if err != nil {
			t.Fatal(err)
		}
		for _, from := range []int64{1, 3, 7, 499} {
			s, err := Open(context.Background(), obj, sh, 2, p, h.pool, h.grant)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Skip(context.Background(), from); err != nil {
				t.Fatal(err)
			}
			leases, err := s.Next(context.Background(), nil, 500-from)
			if err != nil || len(leases) != 1 {
				t.Fatal(name, from, leases, err)
			}
			i := want[2].Schema().FieldIndices(name)[0]
			w := array.NewSlice(want[2].Column(i), from, 500)
			if got := leases[0].Batch().Column(0); !sameText(got, w) {
				t.Errorf("%s from row %d:\n got %v\nwant %v", name, from, got, w)
			}
			leases[0].Release()
			s.Close()
		}
	}
}

// Batches without columns keep their rows, and so do those of which none is asked for.
func TestB26_RowsWithoutColumns(t *testing.T) {
	h := newHouse(t, "testdata/golden")
	for _, name := range []string{"no-columns.file", "leaves.file"} {
		obj, sh := h.describe(t, name)
		p, err := schema.Project(schema.Plain(sh.Schema), [][]string{})
		if err != nil {
			t.Fatal(err)
		}
		var rows int64
		err = h.read(obj, sh, 0, p, 3, func(b arrow.RecordBatch) {
			if b.NumCols() != 0 {
				t.Errorf("%s: %d columns", name, b.NumCols())
			}
			rows += b.NumRows()
		})
		if err != nil || rows != sh.Segments[0].Rows || rows == 0 {
			t.Errorf("%s: %d rows, %v", name, rows, err)
		}
	}
}

// The content tells what a file is: data sets saved by a well-known library
// are streams in files that are named *.arrow.
func TestB28_StreamsNamedArrow(t *testing.T) {
	dir := t.TempDir()
	h := newHouse(t, dir)
	for _, c := range []struct {
		from, to string
		want     snapshot.Format
	}{
		{"nested.stream", "data-00000-of-00001.arrow", snapshot.Stream},
		{"leaves.file", "part.arrow", snapshot.Arrow},
		{"leaves.file", "part.arrows", snapshot.Arrow},
		{"nested-lz4.file", "part.feather", snapshot.Arrow},
	} {
		if err := os.WriteFile(filepath.Join(dir, c.to), golden(t, c.from), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, sh := h.describe(t, c.to); sh.Format != c.want || sh.Rows() == 0 {
			t.Errorf("%s is taken for %s with %d rows", c.to, sh.Format, sh.Rows())
		}
	}
}

// Metadata and nullability of a map's keys and values survive.
func TestB30_MapFieldMetadata(t *testing.T) {
	h := newHouse(t, files(t))
	for _, name := range []string{"metadata-none.file", "metadata-zstd.stream"} {
		_, sh := h.describe(t, name)
		f, _ := sh.Schema.FieldsByName("map")
		m := f[0].Type.(*arrow.MapType)
		if v, _ := m.KeyField().Metadata.GetValue("a"); v != "b" {
			t.Errorf("%s: key %v", name, m.KeyField())
		}
		if v, _ := m.ItemField().Metadata.GetValue("c"); v != "d" || m.ItemField().Nullable {
			t.Errorf("%s: value %v", name, m.ItemField())
		}
	}
}

// Extension types, known, unknown and with parameters that make no sense, are
// their storage with the metadata kept, and never a reason to refuse a file.
func TestB32_ExtensionTypes(t *testing.T) {
	h := newHouse(t, files(t))
	_, sh := h.describe(t, "metadata-none.file")
	for name, want := range map[string]struct {
		typ       arrow.Type
		extension string
	}{
		"uuid": {arrow.FIXED_SIZE_BINARY, "arrow.uuid"}, "json": {arrow.STRING, "arrow.json"},
		"tensor": {arrow.FIXED_SIZE_LIST, "arrow.fixed_shape_tensor"},
		"bad":    {arrow.INT64, "arrow.uuid"}, "unknown": {arrow.INT32, "example.unknown"},
	} {
		f, _ := sh.Schema.FieldsByName(name)
		v, _ := f[0].Metadata.GetValue("ARROW:extension:name")
		if f[0].Type.ID() != want.typ || v != want.extension {
			t.Errorf("%s: %v", name, f[0])
		}
	}
}

// Dictionaries that grow and that are replaced in mid-stream: the words stay
// right, whichever batch is read first.
func TestB33_ChangingDictionaries(t *testing.T) {
	dir := files(t)
	h := newHouse(t, dir)
	for _, name := range []string{"dictionary-delta.file", "dictionary-delta.stream", "dictionary-replace-None.stream", "dictionary-replace-zstd.stream"} {
		obj, sh := h.describe(t, name)
		_, want := stream(t, filepath.Join(dir, name+".expect"))
		p := schema.All(schema.Plain(sh.Schema))
		for i := len(want) - 1; i >= 0; i-- {
			err := h.read(obj, sh, i, p, 1<<40, func(b arrow.RecordBatch) { sameRows(t, b, want[i], 0) })
			if err != nil {
				t.Errorf("%s, batch %d: %v", name, i, err)
			}
		}
	}
}

// A block that decodes to more than a frame holds comes as several.
func TestFramesStaySmall(t *testing.T) {
	h := newHouse(t, files(t))
	for name, rows := range map[string]int64{"huge-none.file": 10, "dictionary-wide.stream": 300} {
		obj, sh := h.describe(t, name)
		var got, frames int64
		var sum int64
		err := h.read(obj, sh, 0, schema.All(schema.Plain(sh.Schema)), 1<<40, func(b arrow.RecordBatch) {
			var size int64
			for _, c := range b.Columns() {
				size += int64(c.Data().SizeInBytes())
			}
			if size > frame.MaxFrame {
				t.Errorf("%s: a frame of %d bytes", name, size)
			}
			got, frames, sum = got+b.NumRows(), frames+1, sum+size
		})
		if err != nil || got != rows {
			t.Fatal(name, got, err)
		}
		if most := sum/(frame.MaxFrame*3/4) + 1; frames > most {
			t.Errorf("%s: %d bytes in %d frames", name, sum, frames)
		}
	}
}

// Only the columns that are asked for are read: the others would not fit.
func TestProjectionReadsLittle(t *testing.T) {
	dir := files(t)
	h := newHouse(t, dir)
	ctx := context.Background()
	for name, column := range map[string]string{"huge-none.file": "id", "large-lz4.stream": "id"} {
		obj, sh := h.describe(t, name)
		ledger := budget.New(budget.Options{Limit: 8 << 20})
		g, err := ledger.Admit(ctx, 0)
		if err != nil {
			t.Fatal(err)
		}
		small := &house{ledger: ledger, grant: g, pool: h.pool}
		plain := schema.Plain(sh.Schema)
		p, err := schema.Project(plain, [][]string{{column}})
		if err != nil {
			t.Fatal(err)
		}
		if err := small.read(obj, sh, 0, p, 100_000, func(arrow.RecordBatch) {}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := small.read(obj, sh, 0, schema.All(plain), 1<<40, func(arrow.RecordBatch) {}); !errors.Is(err, budget.ErrExhausted) || errors.Is(err, snapshot.ErrCorrupt) {
			t.Errorf("%s: all of it in 8 MiB: %v", name, err)
		}
		g.Close()
		if s := ledger.Stats(); s.Reserved != 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// Children of structs are found by name at any depth, and come in the order of
// the schema that is asked for.
func TestNestedProjection(t *testing.T) {
	dir := files(t)
	h := newHouse(t, dir)
	_, want := stream(t, filepath.Join(dir, "nested-zstd.file.expect"))
	obj, sh := h.describe(t, "nested-zstd.file")
	pick := func(f arrow.Field, names ...string) arrow.Field {
		var kids []arrow.Field
		for _, n := range names {
			k, _ := f.Type.(*arrow.StructType).FieldByName(n)
			kids = append(kids, k)
		}
		f.Type = arrow.StructOf(kids...)
		return f
	}
	field := func(name string) arrow.Field { f, _ := sh.Schema.FieldsByName(name); return f[0] }
	deep := pick(field("struct of struct"), "in")
	in, _ := deep.Type.(*arrow.StructType).FieldByName("in")
	deep.Type = arrow.StructOf(pick(in, "y"))
	s := arrow.NewSchema([]arrow.Field{deep, pick(field("struct"), "y", "x"), field("map")}, nil)
	col := func(name string) arrow.Array { return want[2].Column(want[2].Schema().FieldIndices(name)[0]) }
	err := h.read(obj, sh, 2, &schema.Projection{Schema: s}, 1<<40, func(b arrow.RecordBatch) {
		got, w := b.Column(1).(*array.Struct), col("struct").(*array.Struct)
		if !sameText(got.Field(0), w.Field(1)) || !sameText(got.Field(1), w.Field(0)) || got.NullN() != w.NullN() {
			t.Error("children in another order")
		}
		y := b.Column(0).(*array.Struct).Field(0).(*array.Struct)
		if y.NumField() != 1 || !sameText(y.Field(0), col("struct of struct").(*array.Struct).Field(0).(*array.Struct).Field(1)) {
			t.Error("a child of a child")
		}
		if !sameText(b.Column(2), col("map")) {
			t.Error("map")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Any way to walk through a segment gives the same rows.
func TestAnyStepsGiveTheSameRows(t *testing.T) {
	dir := files(t)
	h := newHouse(t, dir)
	names := []string{"leaves-none.file", "leaves-lz4.stream", "nested-none.stream", "nested-zstd.file"}
	rapid.Check(t, func(r *rapid.T) {
		name := rapid.SampledFrom(names).Draw(r, "name")
		obj, sh := h.describe(t, name)
		defer func() { _ = obj.Close() }()
		_, want := stream(t, filepath.Join(dir, name+".expect"))
		p := schema.All(schema.Plain(sh.Schema))
		s, err := Open(context.Background(), obj, sh, 2, p, h.pool, h.grant)
		if err != nil {
			r.Fatal(err)
		}
		defer s.Close()
		for pos, end := int64(0), sh.Segments[2].Rows; pos < end; {
			n := rapid.Int64Range(0, end-pos).Draw(r, "rows")
			if rapid.Bool().Draw(r, "skip") {
				if err := s.Skip(context.Background(), n); err != nil {
					r.Fatal(err)
				}
				pos += n
				continue
			}
			leases, err := s.Next(context.Background(), nil, n)
			if err != nil {
				r.Fatal(err)
			}
			for _, l := range leases {
				sameRows(t, l.Batch(), want[2], pos)
				pos += l.Batch().NumRows()
				l.Release()
			}
		}
		if _, err := s.Next(context.Background(), nil, 1); err == nil {
			r.Fatal("a row after the last")
		}
	})
}

func TestNeedCoversWhatIsTaken(t *testing.T) {
	dir := files(t)
	h := newHouse(t, dir)
	for _, name := range []string{"leaves-none.file", "leaves-zstd.file", "large-lz4.stream", "dictionary-deep-zstd.stream"} {
		obj, sh := h.describe(t, name)
		p := schema.All(schema.Plain(sh.Schema))
		for i := range sh.Segments {
			s, err := Open(context.Background(), obj, sh, i, p, h.pool, h.grant)
			if err != nil {
				t.Fatal(err)
			}
			need, used := Need(sh, i, p), h.ledger.Stats().Used[budget.Scratch]
			if strings.Contains(name, "none") && (need != 0 || used != 0) {
				t.Errorf("%s: scratch of %d bytes, estimate %d", name, used, need)
			}
			if slack := int64(len(sh.Schema.Fields())*3) << 12; used > need+slack {
				t.Errorf("%s: scratch of %d bytes, estimate %d", name, used, need)
			}
			s.Close()
		}
	}
}

func TestCancelledReadsEnd(t *testing.T) {
	h := newHouse(t, "testdata/golden")
	obj, sh := h.describe(t, "leaves.file")
	s, err := Open(context.Background(), obj, sh, 0, schema.All(schema.Plain(sh.Schema)), h.pool, h.grant)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Next(ctx, nil, 1); !errors.Is(err, context.Canceled) || errors.Is(err, snapshot.ErrCorrupt) {
		t.Error(err)
	}
	if _, err := Describe(ctx, obj, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Memory may run out at any point: the error says so and nothing is left over.
func TestMemoryRunsOut(t *testing.T) {
	for _, name := range []string{"dictionaries.file", "deltas.stream", "leaves-zstd.stream", "nested-lz4.file"} {
		enough := false
		for limit := int64(0); !enough; limit += 1500 {
			t.Run("", func(t *testing.T) {
				h := newHouseOf(t, "testdata/golden", limit+1)
				obj, sh := h.describe(t, name)
				err := h.read(obj, sh, 0, schema.All(schema.Plain(sh.Schema)), 1<<40, func(arrow.RecordBatch) {})
				enough = err == nil
				if err != nil && !errors.Is(err, budget.ErrExhausted) {
					t.Errorf("%s in %d bytes: %v", name, limit, err)
				}
			})
		}
	}
}

package storage

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/snapshot"
)

// rows reads a whole snapshot through a projection and returns each row's columns as texts.
func (r *rig) rows(snap *snapshot.Snapshot, p *schema.Projection) (out [][]string) {
	r.t.Helper()
	g, err := r.ledger.Admit(r.t.Context(), r.Need(snap, p, snap.Blocks(nil)))
	must(r.t, err)
	defer g.Close()
	reader := r.Open(snap, p, g)
	defer reader.Close()
	for i := range snap.Blocks(nil).Len() {
		leases, err := reader.Block(r.t.Context(), snap.Blocks(nil).At(i))
		must(r.t, err)
		for _, l := range leases {
			if !l.Batch().Schema().Equal(p.Schema) {
				r.t.Fatalf("a frame of schema %v, want %v", l.Batch().Schema(), p.Schema)
			}
			out = append(out, texts(l.Batch())...)
			l.Release()
		}
	}
	return out
}

func texts(b arrow.RecordBatch) [][]string {
	out := make([][]string, b.NumRows())
	for i := range out {
		for _, c := range b.Columns() {
			text := "null"
			if c.IsValid(i) {
				text = strings.Clone(c.ValueStr(i))
			}
			out[i] = append(out[i], text)
		}
	}
	return out
}

func widened(t *testing.T, files map[string]string) *rig {
	t.Helper()
	return newRig(t, Options{Mounts: []Mount{{Name: "d", URL: folder(t, files), Schema: schema.Rule{Widen: true}}}})
}

func TestB90NullColumnsTakeTheOthersType(t *testing.T) {
	for _, ext := range []string{".parquet", ".arrow"} {
		for _, order := range [][2]string{{"null", "words"}, {"words", "null"}} {
			r := widened(t, map[string]string{"a" + ext: order[0] + ext, "b" + ext: order[1] + ext})
			s := r.newest("d")
			if f, _ := s.Schema.FieldsByName("x"); f[0].Type.ID() != arrow.STRING || !f[0].Nullable {
				t.Fatalf("%v", f)
			}
			p, err := schema.Project(s.Schema, [][]string{{"y"}, {"x"}})
			must(t, err)
			for _, row := range r.rows(s, p) {
				var y int
				_, err := fmt.Sscan(row[0], &y)
				must(t, err)
				want := "null"
				if y >= 100 {
					want = fmt.Sprintf("word %d", y-100)
				}
				if row[1] != want {
					t.Fatalf("y %d has x %q, want %q", y, row[1], want)
				}
			}
		}
	}
}

// What shards lack is null, what is narrower is widened, at any depth, in every
// projection, and the rest is as it was.
func TestWidenedRows(t *testing.T) {
	for _, ext := range []string{".parquet", ".arrow"} {
		r := widened(t, map[string]string{"a" + ext: "narrow" + ext, "b" + ext: "wide" + ext})
		s := r.newest("d")
		all := r.rows(s, schema.All(s.Schema))
		if names := fmt.Sprint(columnNames(s.Schema)); names != "[x s more]" || len(all) != 200 {
			t.Fatalf("%s, %d rows", names, len(all))
		}
		for i, row := range all {
			want := []string{fmt.Sprint(i), fmt.Sprintf(`{"a":%d,"b":"x","c":null}`, i), "null"}
			if i >= 100 {
				want = []string{fmt.Sprint(i), fmt.Sprintf(`{"a":%d,"b":null,"c":0.5}`, i-100), fmt.Sprintf("word %d", i-100)}
			}
			if !reflect.DeepEqual(row, want) {
				t.Fatalf("%s: row %d is %q, want %q", ext, i, row, want)
			}
		}
		for _, paths := range [][][]string{{{"more"}}, {{"s", "c"}}, {{"s", "a"}, {"x"}}, {}} {
			p, err := schema.Project(s.Schema, paths)
			must(t, err)
			if n := len(r.rows(s, p)); n != 200 {
				t.Errorf("%s: %v: %d rows", ext, paths, n)
			}
		}
	}
}

func columnNames(s *arrow.Schema) (names []string) {
	for _, f := range s.Fields() {
		names = append(names, f.Name)
	}
	return names
}

func TestGivenSchemaIsServed(t *testing.T) {
	given := arrow.NewSchema([]arrow.Field{
		{Name: "more", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "x", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	}, nil)
	dir := folder(t, map[string]string{"a.parquet": "narrow.parquet", "b.parquet": "wide.parquet"})
	mount := Mount{Name: "d", URL: dir, Schema: schema.Rule{Given: given}}
	r := newRig(t, Options{Mounts: []Mount{mount}})
	s := r.newest("d")
	if !s.Schema.Equal(given) {
		t.Fatalf("%v", s.Schema)
	}
	all := r.rows(s, schema.All(s.Schema))
	if len(all) != 200 || all[5][0] != "null" || all[5][1] != "5" || all[105][0] != "word 5" || all[105][1] != "105" {
		t.Errorf("%q", all[:6])
	}
	// The same data has the same identity, however it is shown.
	other := newRig(t, Options{Mounts: []Mount{{Name: "d", URL: dir, Schema: schema.Rule{Widen: true}}}})
	if id := other.newest("d").ID; id != s.ID {
		t.Errorf("identity %s under one contract, %s under another", s.ID, id)
	}
	add(t, dir, "c.parquet", "words.parquet")
	_, err := r.Snapshot(t.Context(), "d", "")
	for _, part := range []string{"c.parquet", `"x"`, "utf8", "int64", "exclude"} {
		if !errors.Is(err, schema.ErrMismatch) || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %q", err, part)
		}
	}
}

// Every footer is compared before the first row; the report tells all that
// differs, also when the contract lets none of it pass.
func TestDriftIsReported(t *testing.T) {
	files := map[string]string{"a.parquet": "narrow.parquet", "b.parquet": "wide.parquet", "c.parquet": "wide.parquet"}
	want := []string{"x", "s", "more"}
	for name, r := range map[string]*rig{"widen": widened(t, files), "strict": one(t, folder(t, files))} {
		st := r.Status(t.Context(), "d")
		if (st.Err != nil) != (name == "strict") {
			t.Errorf("%s: %v", name, st.Err)
		}
		var columns []string
		for _, d := range st.Drifts {
			columns = append(columns, d.Column)
		}
		if !reflect.DeepEqual(columns, want) {
			t.Fatalf("%s: %v differ, want %v", name, columns, want)
		}
		if k := st.Drifts[2].Kinds; !reflect.DeepEqual(k, []schema.Kind{{Type: "utf8", Shards: 2, First: "b.parquet"}, {Shards: 1, First: "a.parquet"}}) {
			t.Errorf("%s: %+v", name, k)
		}
	}
}

// Widened frames are cut like others, and stay within what was asked for.
func TestWidenedNeedIsEnough(t *testing.T) {
	wide := arrow.NewSchema([]arrow.Field{
		{Name: "x", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "v", Type: arrow.FixedSizeListOf(64, arrow.PrimitiveTypes.Float32), Nullable: true},
	}, nil)
	for _, file := range []string{"big.parquet", "big.arrow"} {
		dir := folder(t, map[string]string{file: file})
		r := newRig(t, Options{Mounts: []Mount{{Name: "d", URL: dir, Files: []string{filepath.Base(file)}, Schema: schema.Rule{Given: wide}}}})
		s := r.newest("d")
		p := schema.All(s.Schema)
		g, err := r.ledger.Admit(t.Context(), r.Need(s, p, s.Blocks(nil)))
		must(t, err)
		reader := r.Open(s, p, g)
		var rows int64
		for i := range 2 {
			leases, err := reader.Block(t.Context(), s.Blocks(nil).At(i))
			must(t, err)
			for _, l := range leases {
				if l.Batch().Column(1).NullN() != int(l.Batch().NumRows()) || l.Batch().Column(0).(*array.Int64).Value(0) != rows {
					t.Fatalf("%s: row %d", file, rows)
				}
				rows += l.Batch().NumRows()
				l.Release()
			}
		}
		reader.Close()
		g.Close()
	}
}

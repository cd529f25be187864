package parquetfile

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/headrace/headrace/schema"
)

// names lists the test files that begin with one of the prefixes.
func names(t testing.TB, prefixes ...string) []string {
	t.Helper()
	var out []string
	for _, prefix := range prefixes {
		paths, err := filepath.Glob(filepath.Join(folder(t), prefix+"*.parquet"))
		if err != nil || len(paths) == 0 {
			t.Fatalf("no files %s*: %v", prefix, err)
		}
		for _, p := range paths {
			out = append(out, strings.TrimSuffix(filepath.Base(p), ".parquet"))
		}
	}
	return out
}

// TestSameAsPyarrow reads every file that write.py wrote and compares all
// values with what pyarrow reads, whatever the batches.
func TestSameAsPyarrow(t *testing.T) {
	for _, name := range names(t, "") {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1<<30)
			obj := store(t, folder(t), name+".parquet")
			sh := describe(t, obj)
			s, want := expected(t, folder(t), name)
			sizes := []int64{100, 1, 7}
			if sh.Rows() > 5000 {
				sizes = []int64{1024}
			}
			same(t, s, w.readFile(t, obj, sh, schema.All(sh.Schema), 0), want, 0)
			same(t, s, w.readFile(t, obj, sh, schema.All(sh.Schema), sizes...), want, 0)
		})
	}
}

// TestSkip begins in the middle of row groups.
func TestSkip(t *testing.T) {
	for _, name := range names(t, "flat_v", "nested_v", "fixed_lists_v", "delta_v1_10", "delta_v2_3000", "dictionary", "fallback", "constant", "codec_zstd", "long") {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1<<30)
			obj := store(t, folder(t), name+".parquet")
			sh := describe(t, obj)
			s, all := expected(t, folder(t), name)
			var before int64
			for i, seg := range sh.Segments {
				want := make([]arrow.Array, len(all))
				for c := range all {
					want[c] = array.NewSlice(all[c], before, before+seg.Rows)
				}
				for _, skip := range []int64{1, seg.Rows / 3, seg.Rows} {
					got, err := w.read(t, obj, sh, i, schema.All(sh.Schema), skip, 50, 0)
					if err != nil {
						t.Fatal(err)
					}
					same(t, s, got, want, skip)
				}
				before += seg.Rows
			}
		})
	}
}

// TestB01 proves that fixed-size lists come out as pyarrow has them, in every
// place where one can be and over several row groups.
func TestB01_FixedSizeLists(t *testing.T) {
	for _, name := range names(t, "fixed_lists") {
		w := newWorld(t, 1<<30)
		obj := store(t, folder(t), name+".parquet")
		sh := describe(t, obj)
		if strings.HasSuffix(name, "_bare") != (sh.Schema.Field(0).Type.ID() != arrow.FIXED_SIZE_LIST) {
			t.Errorf("%s: %s", name, sh.Schema.Field(0).Type)
		}
		s, want := expected(t, folder(t), name)
		for _, n := range []int64{1, 13, 0} {
			if n == 1 && sh.Rows() > 150 {
				continue
			}
			same(t, s, w.readFile(t, obj, sh, schema.All(sh.Schema), n), want, 0)
		}
	}
}

// TestB02 reads delta-encoded columns with nulls in batches of all sizes.
func TestB02_DeltaWithNulls(t *testing.T) {
	for _, name := range names(t, "delta_") {
		w := newWorld(t, 1<<30)
		obj := store(t, folder(t), name+".parquet")
		sh := describe(t, obj)
		s, want := expected(t, folder(t), name)
		for _, n := range []int64{1, 7, 1024, 0} {
			if n == 1 && sh.Rows() > 100 || n == 7 && sh.Rows() > 5000 {
				continue
			}
			same(t, s, w.readFile(t, obj, sh, schema.All(sh.Schema), n), want, 0)
		}
	}
}

// TestB04 reads columns that are null in every row, nested ones too.
func TestB04_AllNull(t *testing.T) {
	for _, name := range names(t, "flat_v1_nulls", "nested_v1_nulls", "nested_v2_nulls") {
		w := newWorld(t, 1<<30)
		obj := store(t, folder(t), name+".parquet")
		sh := describe(t, obj)
		for i, a := range w.readFile(t, obj, sh, schema.All(sh.Schema), 31) {
			if f := sh.Schema.Field(i); f.Name != "last" && a.NullN() != a.Len() && f.Type.ID() != arrow.NULL {
				t.Errorf("%s: %s has %d nulls in %d rows", name, f.Name, a.NullN(), a.Len())
			}
		}
	}
}

// TestB07 selects every subset of a struct's fields.
func TestB07_StructSubsets(t *testing.T) {
	paths := [][]string{{"pair", "a"}, {"pair", "b"}, {"pair", "c", "d"}, {"pair", "c", "e"}, {"last"}}
	for _, name := range []string{"nested_v1", "nested_v2"} {
		w := newWorld(t, 1<<30)
		obj := store(t, folder(t), name+".parquet")
		sh := describe(t, obj)
		s, want := expected(t, folder(t), name)
		pair := want[s.FieldIndices("pair")[0]].(*array.Struct)
		c := pair.Field(2).(*array.Struct)
		leaf := map[string]arrow.Array{"a": pair.Field(0), "b": pair.Field(1), "d": c.Field(0), "e": c.Field(1), "last": want[s.NumFields()-1]}
		for subset := 1; subset < 1<<len(paths); subset++ {
			var chosen [][]string
			for i, p := range paths {
				if subset&(1<<i) != 0 {
					chosen = append(chosen, p)
				}
			}
			p, err := schema.Project(sh.Schema, chosen)
			if err != nil {
				t.Fatal(err)
			}
			checkLeaves(t, p.Schema.Fields(), w.readFile(t, obj, sh, p, 300, 0), leaf)
		}
	}
}

func checkLeaves(t *testing.T, fields []arrow.Field, got []arrow.Array, want map[string]arrow.Array) {
	t.Helper()
	for i, f := range fields {
		if a, ok := got[i].(*array.Struct); ok {
			kids := make([]arrow.Array, a.NumField())
			for k := range kids {
				kids[k] = a.Field(k)
			}
			checkLeaves(t, f.Type.(*arrow.StructType).Fields(), kids, want)
		} else if !array.Equal(got[i], want[f.Name]) {
			t.Errorf("%s differs", f.Name)
		}
	}
}

// TestB09 reads a chunk of a dictionary column that has many pages.
func TestB09_DictionaryOfManyPages(t *testing.T) {
	w := newWorld(t, 1<<30)
	obj := store(t, folder(t), "dictionary_pages.parquet")
	sh := describe(t, obj)
	if f := sh.Schema.Field(0); f.Type.ID() != arrow.STRING {
		t.Errorf("served as %s", f.Type)
	}
	s, want := expected(t, folder(t), "dictionary_pages")
	same(t, s, w.readFile(t, obj, sh, schema.All(sh.Schema), 999), want, 0)
}

// TestColumns selects and orders columns, down to none, which still have rows.
func TestColumns(t *testing.T) {
	w := newWorld(t, 1<<30)
	obj := store(t, folder(t), "flat_v1.parquet")
	sh := describe(t, obj)
	s, all := expected(t, folder(t), "flat_v1")
	for _, paths := range [][][]string{{{"uuid"}, {"int8"}, {"cat"}}, {{"duration_ms"}}, {}} {
		p, err := schema.Project(sh.Schema, paths)
		if err != nil {
			t.Fatal(err)
		}
		var want []arrow.Array
		for _, path := range paths {
			want = append(want, all[s.FieldIndices(path[0])[0]])
		}
		same(t, p.Schema, w.readFile(t, obj, sh, p, 100), want, 0)
	}
}

// TestOtherNullability reads a file under the schema that a dataset has when
// another of its files is laxer.
func TestOtherNullability(t *testing.T) {
	w := newWorld(t, 1<<30)
	obj := store(t, folder(t), "metadata.parquet")
	sh := describe(t, obj)
	fields := sh.Schema.Fields()
	fields[0].Nullable, fields[0].Metadata = true, arrow.NewMetadata([]string{"from"}, []string{"elsewhere"})
	fields[3].Type = arrow.ListOfField(arrow.Field{Name: "renamed", Type: arrow.PrimitiveTypes.Int32, Nullable: true})
	p := schema.All(arrow.NewSchema(fields, nil))
	got := w.readFile(t, obj, sh, p, 0)
	if v := got[0].(*array.Int64).Int64Values(); len(v) != 2 || v[0] != 1 || v[1] != 2 {
		t.Errorf("ids %v", v)
	}
	fields[0].Type = arrow.PrimitiveTypes.Int32
	if _, err := (Options{}).Open(t.Context(), obj, sh, 0, schema.All(arrow.NewSchema(fields, nil)), w.pool, w.grant); !errors.Is(err, schema.ErrMismatch) {
		t.Errorf("int64 read as int32: %v", err)
	}
}

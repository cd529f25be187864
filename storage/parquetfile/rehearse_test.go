package parquetfile

import (
	"path/filepath"
	"testing"

	"github.com/headrace/headrace/schema"
)

// Bytes that make arrow-go panic where it opens the children of a struct, on a goroutine of its own, end the stream and
// not the process.
func TestPanicsBelowStructs(t *testing.T) {
	dir := t.TempDir()
	if out, err := python("-c", `import sys, pyarrow as pa, pyarrow.parquet as pq
deep = pa.array([[[{"a": "x", "b": 1}], []], None], pa.list_(pa.list_(pa.struct([("a", pa.string()), ("b", pa.int32())]))))
pq.write_table(pa.table({"deep": deep}), sys.argv[1])`, filepath.Join(dir, "deep.parquet")); err != nil {
		t.Fatal(err, out)
	}
	obj := store(t, dir, "deep.parquet")
	sh := describe(t, obj)
	w := newWorld(t, 1<<30)
	s, err := (Options{}).Open(t.Context(), obj, sh, 0, schema.All(sh.Schema), w.pool, w.grant)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.files == nil || !belowStruct(s.files.Manifest.Fields[0]) {
		t.Fatal("arrow-go does not open a struct for this file any more: find another one")
	}
	leaf := &s.files.Manifest.Fields[0]
	for len(leaf.Children) > 0 {
		leaf = &leaf.Children[0]
	}
	leaf.Field.Type = nil // what no check was there for
	last := s.columns[0].reader
	err = guard(func() error { return s.openColumn(0) })
	if err == nil {
		t.Error("no error")
	}
	if s.columns[0].reader != last {
		t.Error("there is a reader all the same")
	}
	if len(s.files.Manifest.Fields[0].Children) == 0 {
		t.Error("the column is not what it was")
	}
}

package arrowfile

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/headrace/headrace/schema"
)

// Every file that pyarrow wrote reads as pyarrow says, at once and bit by bit.
func TestFilesReadAsWritten(t *testing.T) {
	dir := files(t)
	names, err := filepath.Glob(filepath.Join(dir, "*.expect"))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		name = strings.TrimSuffix(filepath.Base(name), ".expect")
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, dir)
			for _, step := range []int64{1 << 40, 1000, 3} {
				if step == 3 && strings.HasPrefix(name, "large") {
					continue
				}
				h.compare(t, name, filepath.Join(dir, name+".expect"), step)
			}
		})
	}
}

// compare checks an object against a stream of what it should read as.
func (h *house) compare(t *testing.T, key, expectation string, step int64) {
	t.Helper()
	obj, sh := h.describe(t, key)
	wantSchema, want := stream(t, expectation)
	plain := schema.Plain(sh.Schema)
	if !plain.Equal(wantSchema) || plain.Metadata().String() != wantSchema.Metadata().String() {
		t.Fatalf("schema\n got %v\nwant %v", plain, wantSchema)
	}
	if len(sh.Segments) != len(want) {
		t.Fatalf("%d segments, want %d", len(sh.Segments), len(want))
	}
	p := schema.All(plain)
	for i, w := range want {
		if sh.Segments[i].Rows != w.NumRows() {
			t.Fatalf("batch %d has %d rows, want %d", i, sh.Segments[i].Rows, w.NumRows())
		}
		var rows int64
		err := h.read(obj, sh, i, p, step, func(got arrow.RecordBatch) {
			sameRows(t, got, w, rows)
			rows += got.NumRows()
		})
		if err != nil {
			t.Fatalf("batch %d: %v", i, err)
		}
		if rows != w.NumRows() {
			t.Fatalf("batch %d gave %d rows, want %d", i, rows, w.NumRows())
		}
		w.Release()
	}
}

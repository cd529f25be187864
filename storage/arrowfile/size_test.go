package arrowfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/headrace/headrace/storage/snapshot"
)

// Rows and bytes decide the borders of blocks, so they may never change for
// files that exist, and neither may the hash of their metadata.
func TestGoldenNumbers(t *testing.T) {
	const dir, record = "testdata/golden", "testdata/golden.txt"
	h := newHouse(t, dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, e := range entries {
		_, sh := h.describe(t, e.Name())
		fmt.Fprintf(&got, "%s %s meta %x\n", e.Name(), sh.Format, sh.Meta)
		for _, m := range sh.Facts.(*Facts).Dictionaries {
			fmt.Fprintf(&got, "  dictionary %d delta %v bytes %d at %d+%d+%d\n", m.ID, m.Delta, m.Bytes, m.Offset, m.Meta, m.Body)
		}
		for _, s := range sh.Segments {
			at := s.Facts.(Batch)
			fmt.Fprintf(&got, "  batch rows %d bytes %d dictionaries %d at %d+%d+%d\n", s.Rows, s.Bytes, at.Dictionaries, at.Offset, at.Meta, at.Body)
		}
	}
	want, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
}

// The rule in numbers, worked out by hand.
func TestBytesOfABatch(t *testing.T) {
	p, w := &arrow.PrimitiveTypes, &arrow.FixedWidthTypes
	list := arrow.ListOf(p.Int16)
	for _, c := range []struct {
		name  string
		typ   arrow.DataType
		nodes []node
		lens  []int64 // of the buffers as stored
		codec codec
		want  int64
	}{
		{"plain int32", p.Int32, []node{{10, 0}}, []int64{0, 40}, uncompressed, 40},
		{"padded as stored", p.Int32, []node{{10, 0}}, []int64{0, 64}, uncompressed, 64},
		{"compressed int32 counts as decoded", p.Int32, []node{{10, 0}}, []int64{0, 20}, zstdFrame, 40},
		{"validity counts as stored", p.Int32, []node{{10, 3}}, []int64{12, 20}, zstdFrame, 12 + 40},
		{"compression that did not pay", p.Int32, []node{{10, 0}}, []int64{0, 48}, lz4Frame, 48},
		{"bits round up to bytes", w.Boolean, []node{{10, 0}}, []int64{0, 1}, lz4Frame, 2},
		{"no rows", p.Int64, []node{{0, 0}}, []int64{0, 0}, uncompressed, 0},
		{"text: offsets as decoded, bytes as stored", arrow.BinaryTypes.String, []node{{10, 0}}, []int64{0, 12, 30}, zstdFrame, 44 + 30},
		{"text without rows", arrow.BinaryTypes.String, []node{{0, 0}}, []int64{0, 0, 0}, uncompressed, 0},
		{"large text", arrow.BinaryTypes.LargeBinary, []node{{3, 0}}, []int64{0, 32, 7}, uncompressed, 39},
		{"views", arrow.BinaryTypes.StringView, []node{{2, 0}}, []int64{0, 9, 100}, zstdFrame, 32 + 100},
		{"fixed width", &arrow.FixedSizeBinaryType{ByteWidth: 3}, []node{{5, 0}}, []int64{0, 9}, lz4Frame, 15},
		{"decimal", &arrow.Decimal256Type{Precision: 50}, []node{{2, 0}}, []int64{0, 9}, lz4Frame, 64},
		{"list and its values", list, []node{{2, 0}, {5, 0}}, []int64{0, 5, 0, 6}, lz4Frame, 12 + 10},
		{"list view", arrow.ListViewOf(p.Int8), []node{{2, 0}, {4, 0}}, []int64{0, 8, 8, 0, 4}, uncompressed, 20},
		{"fixed list", arrow.FixedSizeListOf(2, p.Float32), []node{{3, 0}, {6, 0}}, []int64{0, 0, 10}, lz4Frame, 24},
		{"struct", arrow.StructOf(arrow.Field{Type: p.Int8}), []node{{3, 1}, {3, 0}}, []int64{1, 0, 3}, uncompressed, 4},
		{"sparse union", arrow.SparseUnionOf([]arrow.Field{{Type: p.Int8}}, []int8{0}), []node{{3, 0}, {3, 0}}, []int64{3, 0, 3}, uncompressed, 6},
		{"dense union", arrow.DenseUnionOf([]arrow.Field{{Type: p.Int8}}, []int8{0}), []node{{3, 0}, {2, 0}}, []int64{1, 1, 0, 1}, zstdFrame, 3 + 12 + 2},
		{"runs", arrow.RunEndEncodedOf(p.Int32, p.Int64), []node{{99, 0}, {2, 0}, {2, 0}}, []int64{0, 8, 0, 16}, uncompressed, 24},
		{"indices, not what they stand for", &arrow.DictionaryType{IndexType: p.Int8, ValueType: arrow.BinaryTypes.String}, []node{{9, 0}}, []int64{0, 4}, lz4Frame, 9},
		{"nulls", arrow.Null, []node{{9, 9}}, nil, uncompressed, 0},
	} {
		b := &batch{rows: c.nodes[0].rows, nodes: c.nodes, codec: c.codec, version: version5, variadic: []int64{1}}
		for _, n := range c.lens {
			b.buffers = append(b.buffers, span{len: n})
		}
		cols, err := b.columns([]arrow.DataType{c.typ}, []int64{0})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := cols[0].size(); got != c.want {
			t.Errorf("%s: %d bytes, want %d", c.name, got, c.want)
		}
	}
}

// A batch that contradicts its schema or itself is refused before it is read.
func TestBatchesThatCannotBe(t *testing.T) {
	p := &arrow.PrimitiveTypes
	fixedList := arrow.FixedSizeListOf(1<<30, p.Int8)
	for name, c := range map[string]struct {
		typ     arrow.DataType
		rows    int64
		nodes   []node
		buffers []span
		codec   codec
	}{
		"no array":             {p.Int32, 1, nil, nil, uncompressed},
		"no buffer":            {p.Int32, 1, []node{{1, 0}}, []span{{}}, uncompressed},
		"an array too many":    {p.Int32, 0, []node{{0, 0}, {0, 0}}, []span{{}, {}}, uncompressed},
		"a buffer too many":    {p.Int32, 0, []node{{0, 0}}, []span{{}, {}, {}}, uncompressed},
		"other rows":           {p.Int32, 2, []node{{1, 0}}, []span{{}, {0, 4}}, uncompressed},
		"short values":         {p.Int32, 2, []node{{2, 0}}, []span{{}, {0, 7}}, uncompressed},
		"short validity":       {p.Int8, 9, []node{{9, 1}}, []span{{0, 1}, {0, 9}}, uncompressed},
		"short offsets":        {arrow.BinaryTypes.String, 2, []node{{2, 0}}, []span{{}, {0, 8}, {}}, uncompressed},
		"negative rows":        {p.Int32, -1, []node{{-1, 0}}, []span{{}, {}}, uncompressed},
		"negative nulls":       {p.Int32, 1, []node{{1, -2}}, []span{{}, {0, 4}}, uncompressed},
		"more nulls than rows": {p.Int32, 1, []node{{1, 2}}, []span{{0, 1}, {0, 4}}, uncompressed},
		"buffer outside":       {p.Int32, 1, []node{{1, 0}}, []span{{}, {1 << 62, 1 << 62}}, uncompressed},
		"endless rows":         {p.Int64, maxRows, []node{{maxRows, 0}}, []span{{}, {0, 8}}, zstdFrame},
		"endless lists":        {fixedList, 1 << 20, []node{{1 << 20, 0}, {1 << 50, 0}}, []span{{}, {}, {0, 8}}, zstdFrame},
		"a short child":        {arrow.StructOf(arrow.Field{Type: p.Int8}), 2, []node{{2, 0}, {1, 0}}, []span{{}, {}, {0, 1}}, uncompressed},
		"views uncounted":      {arrow.BinaryTypes.StringView, 1, []node{{1, 0}}, []span{{}, {0, 16}}, uncompressed},
	} {
		b := &batch{rows: c.rows, nodes: c.nodes, buffers: c.buffers, codec: c.codec, version: version5}
		err := b.check(1 << 10)
		if err == nil {
			_, err = b.columns([]arrow.DataType{c.typ}, nil)
		}
		if !errors.Is(err, snapshot.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFilesThatAreNot(t *testing.T) {
	stream, err := os.ReadFile("testdata/golden/nested.stream")
	if err != nil {
		t.Fatal(err)
	}
	twice := append(append([]byte{}, stream...), stream...)
	cont := []byte{0xFF, 0xFF, 0xFF, 0xFF}
	for name, c := range map[string]struct {
		bytes []byte
		class error
		text  string
	}{
		"empty":                 {nil, snapshot.ErrCorrupt, "empty"},
		"a few bytes":           {[]byte("ab"), snapshot.ErrCorrupt, "cut short"},
		"text":                  {[]byte("hello, this is no Arrow file at all"), snapshot.ErrCorrupt, "neither"},
		"zeros":                 {make([]byte, 4096), snapshot.ErrCorrupt, "neither"},
		"Parquet":               {[]byte("PAR1 and so on PAR1"), snapshot.ErrCorrupt, "Parquet"},
		"Feather":               {[]byte("FEA1 and so on FEA1"), snapshot.ErrUnsupported, "Feather version 1"},
		"magic only":            {[]byte(magic), snapshot.ErrCorrupt, "without its footer"},
		"magic at both ends":    {[]byte("ARROW1\x00\x00\x00\x00\x00\x00ARROW1"), snapshot.ErrCorrupt, "footer of 0 bytes"},
		"footer too long":       {[]byte("ARROW1\x00\x00\x01\x00\x00\x00ARROW1"), snapshot.ErrCorrupt, "footer of 1 bytes"},
		"a mark alone":          {cont, snapshot.ErrCorrupt, "cut short"},
		"an end alone":          {append(cont, 0, 0, 0, 0), snapshot.ErrCorrupt, "begin with a schema"},
		"a length beyond":       {append(cont, 0xFF, 0xFF, 0xFF, 0x7F), snapshot.ErrCorrupt, "cut short"},
		"a negative length":     {append(cont, 0xFE, 0xFF, 0xFF, 0xFF), snapshot.ErrCorrupt, "negative"},
		"streams in succession": {twice, snapshot.ErrCorrupt, "after the end"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "key"), c.bytes, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Describe(context.Background(), newHouse(t, dir).open(t, "key"), nil)
		if !errors.Is(err, c.class) || !strings.Contains(err.Error(), c.text) || !strings.HasPrefix(err.Error(), "key: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

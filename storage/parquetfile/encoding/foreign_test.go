package encoding

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
)

// cell is one pair of levels, and the bytes of the value that they have, if it is stored.
type cell struct {
	rep, def uint32
	value    string
}

// TestPyarrow decodes the pages of files that pyarrow has written, and compares
// what is in them with what arrow-go reads.
func TestPyarrow(t *testing.T) {
	interpreter := os.Getenv("HEADRACE_PYTHON")
	if interpreter == "" {
		interpreter = filepath.Join("..", "..", "..", ".venv", "bin", "python")
		if _, err := os.Stat(interpreter); err != nil {
			t.Skip("no Python: set HEADRACE_PYTHON or make .venv")
		}
	}
	dir := t.TempDir()
	if out, err := exec.Command(interpreter, filepath.Join("testdata", "write.py"), dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"v1.parquet", "v2.parquet"} {
		f, err := file.OpenParquetFile(filepath.Join(dir, name), false)
		must(t, err)
		t.Cleanup(func() { f.Close() })
		seen := map[Encoding]int{}
		for i := range f.MetaData().Schema.NumColumns() {
			column := f.MetaData().Schema.Column(i)
			t.Run(name+"/"+column.Path(), func(t *testing.T) {
				for g := range f.NumRowGroups() {
					c := &columnChunk{t: t, kind: column.PhysicalType(), width: column.TypeLength(), seen: seen}
					c.rep, c.def = int(column.MaxRepetitionLevel()), int(column.MaxDefinitionLevel())
					pages, err := f.RowGroup(g).GetColumnPageReader(i)
					must(t, err)
					alike := i
					if column.Path() == "front_fixed" { // arrow-go cannot read it; the values are the same
						alike = f.MetaData().Schema.ColumnIndexByName("plain_fixed")
					}
					reader, err := f.RowGroup(g).Column(alike)
					must(t, err)
					got, want := c.cells(pages), others(t, reader, column.MaxDefinitionLevel())
					if !slices.Equal(got, want) {
						at := 0
						for at < min(len(got), len(want)) && got[at] == want[at] {
							at++
						}
						t.Fatalf("%d and %d values, which differ from %d on: %.300q, not %.300q", len(got), len(want), at, fmt.Sprint(got[at:]), fmt.Sprint(want[at:]))
					}
				}
			})
		}
		for _, e := range []Encoding{Plain, RLE, DeltaBinaryPacked, DeltaLengthByteArray, DeltaByteArray, RLEDictionary, ByteStreamSplit} {
			if seen[e] == 0 {
				t.Errorf("%s has no page in %s", name, e)
			}
		}
	}
}

// columnChunk decodes one column chunk.
type columnChunk struct {
	t        *testing.T
	kind     parquet.Type
	width    int // of a fixed length
	rep, def int // the highest levels
	dict     []byte
	entries  Dictionary
	seen     map[Encoding]int
}

func (c *columnChunk) cells(pages file.PageReader) (all []cell) {
	switch c.kind {
	case parquet.Types.Int32, parquet.Types.Float:
		c.width = 4
	case parquet.Types.Int64, parquet.Types.Double:
		c.width = 8
	}
	for pages.Next() {
		switch p := pages.Page().(type) {
		case *file.DictionaryPage:
			c.dict = slices.Clone(p.Data())
			if c.kind == parquet.Types.ByteArray {
				must(c.t, c.entries.Reset(c.dict, int(p.NumValues())))
			}
		case *file.DataPageV1:
			var rep, def Levels
			b := fenced(c.t, p.Data())
			var err error
			if c.rep > 0 {
				b, err = rep.ResetPrefixed(b, c.rep, Encoding(p.RepetitionLevelEncoding()))
				must(c.t, err)
			}
			if c.def > 0 {
				b, err = def.ResetPrefixed(b, c.def, Encoding(p.DefinitionLevelEncoding()))
				must(c.t, err)
			}
			all = append(all, c.page(rep, def, int(p.NumValues()), b, Encoding(p.Encoding()))...)
		case *file.DataPageV2:
			var rep, def Levels
			b := fenced(c.t, p.Data())
			reps, defs := b[:p.RepetitionLevelByteLen()], b[p.RepetitionLevelByteLen():][:p.DefinitionLevelByteLen()]
			if c.rep > 0 {
				must(c.t, rep.Reset(reps, c.rep))
			}
			if c.def > 0 {
				must(c.t, def.Reset(defs, c.def))
			}
			all = append(all, c.page(rep, def, int(p.NumValues()), b[len(reps)+len(defs):], Encoding(p.Encoding()))...)
		}
	}
	must(c.t, pages.Err())
	return all
}

// page decodes a page of n cells, in steps of any length.
func (c *columnChunk) page(rep, def Levels, n int, b []byte, e Encoding) []cell {
	if e == PlainDictionary {
		e = RLEDictionary
	}
	c.seen[e]++
	cells := make([]cell, n)
	stored := n
	if c.def > 0 {
		all := def
		levels, err := oneByOne(def.runs, n)
		must(c.t, err)
		set, err := all.Validity(nil, 0, n, c.def)
		must(c.t, err)
		for i, d := range levels {
			cells[i].def = d
		}
		stored = set
	}
	if c.rep > 0 {
		levels, err := oneByOne(rep.runs, n)
		must(c.t, err)
		for i, r := range levels {
			cells[i].rep = r
		}
		c.lists(rep, def, cells)
	}
	values := c.values(b, e, stored)
	for i := range cells {
		if cells[i].def == uint32(c.def) {
			cells[i].value, values = values[0], values[1:]
		}
	}
	return cells
}

// lists checks the counts and offsets that the levels of lists give. All pages begin with a row here.
func (c *columnChunk) lists(rep, def Levels, cells []cell) {
	s := Shape{Most: c.def, List: 1, Slot: c.def - 1, Item: c.def}
	model := lists{}
	for _, cell := range cells {
		model.rep, model.def = append(model.rep, cell.rep), append(model.def, cell.def)
	}
	var l Lists
	must(c.t, l.Reset(s))
	l.Page(rep, def, len(cells))
	offsets := make([]int32, len(cells))
	got, err := DecodeLists(&l, len(cells), ListsInto[int32]{Offsets: offsets})
	must(c.t, err)
	want, starts, _, _ := model.want(s, 0, len(cells), len(cells))
	if got != want || !slices.Equal(offsets[:got.Rows], starts) {
		c.t.Fatalf("lists are %+v, not %+v", got, want)
	}
}

// values are the n stored values of a page, as bytes.
func (c *columnChunk) values(b []byte, e Encoding, n int) []string {
	switch c.kind {
	case parquet.Types.Boolean:
		return c.booleans(b, e, n)
	case parquet.Types.ByteArray:
		return c.byteArrays(b, e, n)
	}
	dst := room(c.t, n*c.width)
	switch e {
	case Plain:
		var d Fixed
		must(c.t, d.Reset(b, c.width))
		must(c.t, d.Decode(dst))
	case ByteStreamSplit:
		var d Split
		must(c.t, d.Reset(b, c.width))
		must(c.t, d.Decode(dst))
	case RLEDictionary:
		var h Hybrid
		must(c.t, h.ResetIndices(b))
		must(c.t, DecodeIndexed(&h, dst, c.dict, c.width))
	case DeltaByteArray:
		var d FrontBytes[int32]
		must(c.t, d.Reset(b))
		must(c.t, d.DecodeFixed(dst, c.width))
	case DeltaBinaryPacked:
		if c.width == 4 {
			deltas[int32](c.t, b, dst, n)
		} else {
			deltas[int64](c.t, b, dst, n)
		}
	default:
		c.t.Fatalf("a page in %s", e)
	}
	var values []string
	for one := range slices.Chunk(dst, max(1, c.width)) {
		values = append(values, string(one))
	}
	return values
}

func deltas[T int32 | int64](t *testing.T, b, dst []byte, n int) {
	var d Delta[T]
	must(t, d.Reset(b))
	values := make([]T, n)
	must(t, d.Decode(values))
	if _, err := binary.Encode(dst, binary.LittleEndian, values); err != nil {
		t.Fatal(err)
	}
}

func (c *columnChunk) booleans(b []byte, e Encoding, n int) (values []string) {
	var d Booleans
	if e == RLE {
		must(c.t, d.ResetRLE(b))
	} else {
		d.Reset(b)
	}
	dst := room(c.t, (n+7)/8)
	must(c.t, d.Decode(dst, 0, n))
	for i := range n {
		values = append(values, fmt.Sprint(bit(dst, i)))
	}
	return values
}

func (c *columnChunk) byteArrays(b []byte, e Encoding, n int) (values []string) {
	var d byteDecoder[int32]
	switch e {
	case Plain:
		p := new(Bytes[int32])
		p.Reset(b)
		d = p
	case DeltaLengthByteArray:
		l := new(LengthBytes[int32])
		must(c.t, l.Reset(b))
		d = l
	case DeltaByteArray:
		f := new(FrontBytes[int32])
		must(c.t, f.Reset(b))
		d = f
	case RLEDictionary:
		x := &indexed[int32]{dict: &c.entries}
		must(c.t, x.runs.ResetIndices(b))
		d = x
	default:
		c.t.Fatalf("a page in %s", e)
	}
	for n > 0 {
		k := min(n, 100)
		n -= k
		size, err := d.Measure(k)
		must(c.t, err)
		offsets, data := make([]int32, k+1), room(c.t, int(size))
		must(c.t, d.Decode(offsets, data))
		for i := range k {
			values = append(values, string(data[offsets[i]:offsets[i+1]]))
		}
	}
	return values
}

// others are the cells that arrow-go reads.
func others(t *testing.T, r file.ColumnChunkReader, most int16) []cell {
	switch r := r.(type) {
	case *file.BooleanColumnChunkReader:
		return read(t, r.ReadBatch, most, func(v bool) string { return fmt.Sprint(v) })
	case *file.Int32ColumnChunkReader:
		return read(t, r.ReadBatch, most, func(v int32) string { return word(uint64(uint32(v)), 4) })
	case *file.Int64ColumnChunkReader:
		return read(t, r.ReadBatch, most, func(v int64) string { return word(uint64(v), 8) })
	case *file.Float32ColumnChunkReader:
		return read(t, r.ReadBatch, most, func(v float32) string { return word(uint64(math.Float32bits(v)), 4) })
	case *file.Float64ColumnChunkReader:
		return read(t, r.ReadBatch, most, func(v float64) string { return word(math.Float64bits(v), 8) })
	case *file.ByteArrayColumnChunkReader:
		return read(t, r.ReadBatch, most, func(v parquet.ByteArray) string { return string(v) })
	case *file.FixedLenByteArrayColumnChunkReader:
		return read(t, r.ReadBatch, most, func(v parquet.FixedLenByteArray) string { return string(v) })
	}
	t.Fatalf("a column of %T", r)
	return nil
}

// word is the lowest bytes of x, as Parquet stores them.
func word(x uint64, size int) string {
	return string(binary.LittleEndian.AppendUint64(nil, x)[:size])
}

func read[T any](t *testing.T, batch func(int64, []T, []int16, []int16) (int64, int, error), most int16, text func(T) string) (all []cell) {
	const n = 512
	values, def, rep := make([]T, n), make([]int16, n), make([]int16, n)
	for {
		levels, stored, err := batch(n, values, def, rep)
		must(t, err)
		if levels == 0 {
			return all
		}
		next := 0
		for i := range levels {
			c := cell{rep: uint32(rep[i]), def: uint32(def[i])}
			if def[i] == most {
				c.value = text(values[next])
				next++
			}
			all = append(all, c)
		}
		if next != stored {
			t.Fatalf("%d values for %d levels", stored, next)
		}
	}
}

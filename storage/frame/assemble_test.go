package frame

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"pgregory.net/rapid"

	"github.com/headrace/headrace/storage/arrowtest"
	"github.com/headrace/headrace/storage/budget"
)

// world is a ledger and a pool that must be empty at the end of a test.
func world(t testing.TB, limit int64) (*budget.Ledger, *budget.Grant, *Pool) {
	l := budget.New(budget.Options{Limit: limit})
	g, err := l.Admit(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	p := NewPool(Options{Idle: 1 << 20, Poison: true})
	t.Cleanup(func() {
		g.Close()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if s := l.Stats(); s.Reserved != 0 || len(s.Used) != 0 {
			t.Errorf("left in the ledger: %+v", s)
		}
	})
	return l, g, p
}

func schemaOf(types ...arrow.DataType) *arrow.Schema {
	var fields []arrow.Field
	for i, t := range types {
		fields = append(fields, arrow.Field{Name: fmt.Sprint("c", i), Type: t, Nullable: true})
	}
	return arrow.NewSchema(fields, nil)
}

// filed moves every buffer of c into file, between other bytes.
func filed(c Column, file *bytes.Buffer) Column {
	out := c
	out.Buffers, out.Children = nil, nil
	for _, b := range c.Buffers {
		if b.Mem != nil {
			file.WriteString("xyz")
			b = Buffer{Off: int64(file.Len()), Len: int64(len(b.Mem)), Mem: b.Mem}
			file.Write(b.Mem)
			b.Mem = nil
		}
		out.Buffers = append(out.Buffers, b)
	}
	for _, child := range c.Children {
		out.Children = append(out.Children, filed(child, file))
	}
	return out
}

// readFrom sets the file of buffers that filed made.
func readFrom(c *Column, r io.ReaderAt) {
	for i := range c.Buffers {
		if c.Buffers[i].Off > 0 {
			c.Buffers[i].R = r
		}
	}
	for i := range c.Children {
		readFrom(&c.Children[i], r)
	}
}

// checkExact checks the promises about a frame's buffers.
func checkExact(t rapid.TB, l *Lease) {
	t.Helper()
	region := l.frame.region.Bytes()
	used := make([]bool, len(region))
	var walk func(d arrow.ArrayData)
	walk = func(d arrow.ArrayData) {
		if d.Offset() != 0 {
			t.Fatalf("%s: offset %d", d.DataType(), d.Offset())
		}
		for _, b := range d.Buffers() {
			if b == nil || b.Len() == 0 {
				continue
			}
			at := -1
			for i := 0; i < len(region); i += align {
				if &region[i] == &b.Bytes()[0] {
					at = i
				}
			}
			if at < 0 {
				t.Fatalf("%s: a buffer is outside of the region or not aligned", d.DataType())
			}
			for i := range b.Len() {
				if used[at+i] {
					t.Fatalf("%s: buffers overlap", d.DataType())
				}
				used[at+i] = true
			}
		}
		lay, _ := layoutOf(d.DataType())
		if lay.validity() {
			nulls := 0
			for i := range d.Len() {
				if b := d.Buffers()[0]; b != nil && b.Bytes()[i/8]>>(i%8)&1 == 0 {
					nulls++
				}
			}
			if nulls != d.NullN() || (nulls == 0) != (d.Buffers()[0] == nil) {
				t.Fatalf("%s: %d nulls, NullN %d", d.DataType(), nulls, d.NullN())
			}
			if b := d.Buffers()[0]; b != nil && d.Len()%8 != 0 && b.Bytes()[b.Len()-1]>>(d.Len()%8) != 0 {
				t.Fatalf("%s: bits past the last row", d.DataType())
			}
		}
		for _, c := range d.Children() {
			walk(c)
		}
	}
	for _, c := range l.Batch().Columns() {
		walk(c.Data())
	}
	for i, u := range used {
		if !u && region[i] != 0 {
			t.Fatalf("padding byte %d of %d is %#x", i, len(region), region[i])
		}
	}
}

// checkPieces assembles slices of random arrays of type typ and compares the rows.
func checkPieces(t rapid.TB, p *Pool, g *budget.Grant, typ arrow.DataType, r *rand.Rand) {
	t.Helper()
	s := schemaOf(typ)
	var memory, files []Piece
	var want []any
	var arrays []arrow.Array
	for range 1 + r.Intn(3) {
		m := &arrowtest.Maker{Rand: r, Nulls: r.Intn(4) > 0}
		arr := m.Array(typ, r.Intn(40))
		from := r.Intn(arr.Len() + 1)
		to := from + r.Intn(arr.Len()-from+1)
		arrays = append(arrays, array.NewSlice(arr, int64(from), int64(to)))
		want = append(want, rowsOf(arr, from, to)...)
		var file bytes.Buffer
		c := ColumnOf(arr)
		f := filed(c, &file)
		readFrom(&f, bytes.NewReader(file.Bytes()))
		memory = append(memory, Piece{[]Column{c}, int64(from), int64(to)})
		files = append(files, Piece{[]Column{f}, int64(from), int64(to)})
	}
	for i, pieces := range [][]Piece{memory, files} {
		l, err := p.Assemble(g, budget.Frames, s, pieces)
		if err != nil {
			t.Fatalf("%s: %v", typ, err)
		}
		checkExact(t, l)
		got := l.Batch().Column(0)
		if rows := rowsOf(got, 0, got.Len()); !same(rows, want) {
			t.Fatalf("%s (files: %v):\ngot  %v\nwant %v", typ, i == 1, rows, want)
		}
		if size, err := Measure(s, pieces); err != nil || size != int64(len(l.frame.region.Bytes())) {
			t.Fatalf("%s: measured %d (%v), took %d", typ, size, err, len(l.frame.region.Bytes()))
		}
		compareByArrow(t, got, arrays)
		l.Release()
	}
}

// compareByArrow asks arrow's own equality too.
func compareByArrow(t rapid.TB, got arrow.Array, slices []arrow.Array) {
	t.Helper()
	at := int64(0)
	for _, s := range slices {
		n := int64(s.Len())
		part := array.NewSlice(got, at, at+n)
		if !array.Equal(part, s) {
			t.Fatalf("%s: arrow says\n%v\nis not\n%v", s.DataType(), part, s)
		}
		at += n
	}
}

func TestAssembleEqualsItsSlicesForEveryType(t *testing.T) {
	_, g, p := world(t, 1<<30)
	r := rand.New(rand.NewSource(1))
	for _, typ := range arrowtest.Flat {
		for range 10 {
			checkPieces(t, p, g, typ, r)
		}
	}
	for way := range arrowtest.Nestings {
		for range 20 {
			checkPieces(t, p, g, arrowtest.Nest(r, way, 0), r)
		}
	}
}

func TestAssembleEqualsItsSlicesForRandomTypes(t *testing.T) {
	_, g, p := world(t, 1<<30)
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewSource(rapid.Int64().Draw(t, "seed")))
		checkPieces(t, p, g, arrowtest.Type(r, 3), r)
	})
}

func TestAssembleNamesTheCorruptColumn(t *testing.T) {
	_, g, p := world(t, 1<<20)
	offsets := func(v ...int32) Buffer { return Buffer{Mem: arrow.Int32Traits.CastToBytes(v)} }
	text := Buffer{Mem: []byte("abcdef")}
	str := arrow.BinaryTypes.String
	for name, b := range map[string]Buffer{
		"back": offsets(0, 4, 2), "past the end": offsets(0, 2, 7), "negative": offsets(-1, 2, 3), "short": offsets(0, 2),
		"detour": offsets(0, 9, 3),
	} {
		inner := Column{Type: str, Len: 2, Buffers: []Buffer{{}, b, text}}
		outer := Column{Type: arrow.StructOf(arrow.Field{Name: "s", Type: str}), Len: 2, Buffers: []Buffer{{}}, Children: []Column{inner}}
		_, err := p.Assemble(g, budget.Frames, schemaOf(outer.Type), []Piece{{[]Column{outer}, 0, 2}})
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), `"c0.s"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Twenty pieces of 200 MB that are one and the same would not fit 32-bit offsets.
func TestAssembleRefusesOffsetsThatOverflow(t *testing.T) {
	_, g, p := world(t, 1<<40)
	offsets := Buffer{Mem: arrow.Int32Traits.CastToBytes([]int32{0, 200 << 20})}
	c := Column{Type: arrow.BinaryTypes.String, Len: 1, Buffers: []Buffer{{}, offsets, {R: zeros{}, Len: 200 << 20}}}
	var pieces []Piece
	for range 20 {
		pieces = append(pieces, Piece{[]Column{c}, 0, 1})
	}
	if _, err := p.Assemble(g, budget.Frames, schemaOf(c.Type), pieces); !errors.Is(err, ErrOverflow) {
		t.Fatal(err)
	}
	c.Type = arrow.BinaryTypes.Binary
	list := Column{
		Type: arrow.ListOf(arrow.Null), Len: 1, Buffers: []Buffer{{}, {Mem: arrow.Int32Traits.CastToBytes([]int32{0, math.MaxInt32})}},
		Children: []Column{{Type: arrow.Null, Len: math.MaxInt32}},
	}
	two := []Piece{{[]Column{list}, 0, 1}, {[]Column{list}, 0, 1}}
	if _, err := p.Assemble(g, budget.Frames, schemaOf(list.Type), two); !errors.Is(err, ErrOverflow) {
		t.Fatal(err)
	}
}

type zeros struct{}

func (zeros) ReadAt(b []byte, _ int64) (int, error) { clear(b); return len(b), nil }

// counting notes what is read.
type counting struct {
	io.ReaderAt
	calls, bytes int64
}

func (c *counting) ReadAt(b []byte, off int64) (int, error) {
	c.calls, c.bytes = c.calls+1, c.bytes+int64(len(b))
	return c.ReaderAt.ReadAt(b, off)
}

func TestAssembleReadsOnlyTheBytesOfItsRows(t *testing.T) {
	_, g, p := world(t, 1<<20)
	file := &counting{ReaderAt: bytes.NewReader(make([]byte, 8<<20))}
	c := Column{Type: arrow.PrimitiveTypes.Int64, Len: 1 << 20, Buffers: []Buffer{{}, {R: file, Len: 8 << 20}}}
	l, err := p.Assemble(g, budget.Frames, schemaOf(c.Type), []Piece{{[]Column{c}, 1000, 1100}})
	if err != nil {
		t.Fatal(err)
	}
	if file.bytes != 800 {
		t.Errorf("read %d bytes", file.bytes)
	}
	l.Release()
}

func TestAssemblePassesReadErrorsOn(t *testing.T) {
	_, g, p := world(t, 1<<20)
	c := Column{Type: arrow.PrimitiveTypes.Int64, Len: 4, Buffers: []Buffer{{}, {R: broken{}, Len: 32}}}
	_, err := p.Assemble(g, budget.Frames, schemaOf(c.Type), []Piece{{[]Column{c}, 0, 4}})
	if !errors.Is(err, errBroken) || errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
	c.Buffers[1].R = bytes.NewReader(make([]byte, 31))
	if _, err = p.Assemble(g, budget.Frames, schemaOf(c.Type), []Piece{{[]Column{c}, 0, 4}}); !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
}

var errBroken = errors.New("broken disk")

type broken struct{}

func (broken) ReadAt([]byte, int64) (int, error) { return 0, errBroken }

func TestAssembleKeepsTheRowsOfABatchWithoutColumns(t *testing.T) {
	_, g, p := world(t, 1<<20)
	l, err := p.Assemble(g, budget.Frames, schemaOf(), []Piece{{nil, 2, 7}, {nil, 0, 3}})
	if err != nil {
		t.Fatal(err)
	}
	if l.Batch().NumRows() != 8 || l.Bytes() != 0 {
		t.Errorf("%d rows, %d bytes", l.Batch().NumRows(), l.Bytes())
	}
	l.Release()
}

func TestAssembleRefusesWhatItCannotHold(t *testing.T) {
	_, g, p := world(t, 1<<20)
	dict := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	if _, err := p.Assemble(g, budget.Frames, schemaOf(dict), nil); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "dictionary") {
		t.Error(err)
	}
	c := Column{Type: arrow.PrimitiveTypes.Int64, Len: 1, Buffers: []Buffer{{}, {Mem: make([]byte, 8)}}}
	if _, err := p.Assemble(g, budget.Frames, schemaOf(arrow.BinaryTypes.String), []Piece{{[]Column{c}, 0, 1}}); err == nil {
		t.Error("int64 passed for a string")
	}
	big := Column{Type: arrow.PrimitiveTypes.Int64, Len: 1 << 20, Buffers: []Buffer{{}, {R: zeros{}, Len: 8 << 20}}}
	if _, err := p.Assemble(g, budget.Frames, schemaOf(big.Type), []Piece{{[]Column{big}, 0, 1 << 20}}); !errors.Is(err, budget.ErrExhausted) {
		t.Error(err)
	}
}

// A few bytes of list views that all use the same rows must not grow.
func TestAssembleCopiesSharedListsOnce(t *testing.T) {
	_, g, p := world(t, 1<<20)
	const n = 1000
	sizes := make([]int32, n)
	for i := range sizes {
		sizes[i] = n
	}
	mem := func(v []int32) Buffer { return Buffer{Mem: arrow.Int32Traits.CastToBytes(v)} }
	c := Column{
		Type: arrow.ListViewOf(arrow.PrimitiveTypes.Int32), Len: n, Buffers: []Buffer{{}, mem(make([]int32, n)), mem(sizes)},
		Children: []Column{{Type: arrow.PrimitiveTypes.Int32, Len: n, Buffers: []Buffer{{}, mem(sizes)}}},
	}
	l, err := p.Assemble(g, budget.Frames, schemaOf(c.Type), []Piece{{[]Column{c}, 0, n}})
	if err != nil {
		t.Fatal(err)
	}
	if l.Bytes() > 16<<10 {
		t.Errorf("%d bytes", l.Bytes())
	}
	l.Release()
}

func BenchmarkAssemble(b *testing.B) {
	const rows = 1 << 18
	ints := make([]byte, 8*rows)
	offsets := make([]int32, rows+1)
	for i := range offsets {
		offsets[i] = int32(i * 8)
	}
	fixedColumn := Column{Type: arrow.PrimitiveTypes.Int64, Len: rows, Buffers: []Buffer{{}, {Mem: ints}}}
	stringColumn := Column{Type: arrow.BinaryTypes.String, Len: rows, Buffers: []Buffer{{}, {Mem: arrow.Int32Traits.CastToBytes(offsets)}, {Mem: ints}}}
	for name, c := range map[string]Column{"int64": fixedColumn, "string": stringColumn} {
		b.Run(name, func(b *testing.B) {
			l := budget.New(budget.Options{Limit: 1 << 30})
			g, err := l.Admit(context.Background(), 1<<30)
			if err != nil {
				b.Fatal(err)
			}
			p := NewPool(Options{Idle: 64 << 20})
			s := schemaOf(c.Type)
			b.SetBytes(8 * rows)
			for b.Loop() {
				lease, err := p.Assemble(g, budget.Frames, s, []Piece{{[]Column{c}, 0, rows}})
				if err != nil {
					b.Fatal(err)
				}
				lease.Release()
			}
		})
	}
	b.Run("memmove", func(b *testing.B) {
		dst := make([]byte, len(ints))
		b.SetBytes(8 * rows)
		for b.Loop() {
			copy(dst, ints)
		}
	})
}

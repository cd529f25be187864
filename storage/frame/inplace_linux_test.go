package frame

import (
	"bytes"
	"errors"
	"math/rand"
	"os"
	"path/filepath"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"pgregory.net/rapid"

	"github.com/headrace/headrace/storage/arrowtest"
	"github.com/headrace/headrace/storage/budget"
)

// aligned moves every buffer of c into file, on multiples of 8 between other bytes.
func aligned(c Column, file *bytes.Buffer) Column {
	out := c
	out.Buffers, out.Children = nil, nil
	for _, b := range c.Buffers {
		if b.Mem != nil {
			file.Write(bytes.Repeat([]byte{0xA5}, 16-file.Len()%8))
			mem := b.Mem
			b = Buffer{Off: int64(file.Len()), Len: int64(len(mem))}
			file.Write(mem)
		}
		out.Buffers = append(out.Buffers, b)
	}
	for _, child := range c.Children {
		out.Children = append(out.Children, aligned(child, file))
	}
	return out
}

// mappedFile writes bytes to a file, opens and maps it.
func mappedFile(t testing.TB, p *Pool, content []byte) (*File, *os.File) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return mapPath(t, p, path)
}

// mapPath opens and maps a file until the test ends.
func mapPath(t testing.TB, p *Pool, path string) (*File, *os.File) {
	t.Helper()
	r, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := p.Map(r.Fd())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	t.Cleanup(f.Close)
	return f, r
}

// yieldNow does what the poller does for a writer.
func yieldNow(f *File) {
	f.pool.files.mu.Lock()
	f.wanted = true
	f.holds++
	f.pool.files.mu.Unlock()
	f.yield()
	f.leave()
}

func always(*shape) bool { return true }

// inOrder tells whether t is of a type that can be served in place, by a list of its own.
func inOrder(t arrow.DataType) bool {
	switch t.ID() {
	case arrow.STRING_VIEW, arrow.BINARY_VIEW, arrow.LIST_VIEW, arrow.LARGE_LIST_VIEW,
		arrow.SPARSE_UNION, arrow.DENSE_UNION, arrow.RUN_END_ENCODED:
		return false
	}
	for _, f := range fieldsOf(t) {
		if !inOrder(f.Type) {
			return false
		}
	}
	return true
}

// checkInPlace compares random rows of a random column in place with what they are, before and after a writer
// has made the gateway copy them.
func checkInPlace(t rapid.TB, tb testing.TB, typ arrow.DataType, r *rand.Rand) (served bool) {
	_, g, p := world(tb, 1<<24)
	m := &arrowtest.Maker{Rand: r, Nulls: r.Intn(4) > 0}
	arr := m.Array(typ, 1+r.Intn(60))
	var content bytes.Buffer
	column := aligned(ColumnOf(arr), &content)
	content.WriteString("more") // an empty file is not mapped
	f, file := mappedFile(tb, p, content.Bytes())
	readAligned(&column, file)
	from := r.Intn(arr.Len())
	to := from + 1 + r.Intn(arr.Len()-from)
	s := schemaOf(typ)
	l, err := f.frame(g, s, Piece{Columns: []Column{column}, From: int64(from), To: int64(to)}, always)
	if !inOrder(typ) || errors.Is(err, ErrNotInPlace) {
		if !errors.Is(err, ErrNotInPlace) {
			t.Fatalf("%s: %v", typ, err)
		}
		return false
	}
	if err != nil {
		t.Fatalf("%s: %v", typ, err)
	}
	defer l.Release()
	want := rowsOf(arr, from, to)
	compare := func(l *Lease) {
		t.Helper()
		got := l.Batch().Column(0)
		if rows := rowsOf(got, 0, got.Len()); !same(rows, want) {
			t.Fatalf("%s rows %d to %d:\n got %v\nwant %v", typ, from, to, rows, want)
		}
		if nulls := got.Len() - len(nonNull(want)); inlineNulls(typ) && got.NullN() != nulls {
			t.Fatalf("%s: NullN %d, there are %d", typ, got.NullN(), nulls)
		}
	}
	compare(l)
	again, err := p.Assemble(g, budget.Batches, s, []Piece{PieceOf(l.Batch(), 0, int64(to-from))})
	if err != nil {
		t.Fatalf("%s: copy of what is in place: %v", typ, err)
	}
	compare(again)
	again.Release()
	yieldNow(f)
	compare(l)
	return true
}

func nonNull(rows []any) (out []any) {
	for _, v := range rows {
		if v != nil {
			out = append(out, v)
		}
	}
	return out
}

// inlineNulls tells whether rowsOf shows the nulls of t as nil.
func inlineNulls(t arrow.DataType) bool { lay, _ := layoutOf(t); return lay.validity() }

// readAligned sets the file of buffers that aligned made.
func readAligned(c *Column, r *os.File) {
	for i := range c.Buffers {
		if c.Buffers[i].Len > 0 {
			c.Buffers[i].R = r
		}
	}
	for i := range c.Children {
		readAligned(&c.Children[i], r)
	}
}

func TestFramesInPlaceEqualTheirRowsForEveryType(t *testing.T) {
	r := rand.New(rand.NewSource(3))
	types := append([]arrow.DataType{}, arrowtest.Flat...)
	for way := range arrowtest.Nestings {
		for range 4 {
			types = append(types, arrowtest.Nest(r, way, 2))
		}
	}
	for _, typ := range types {
		served := 0
		for range 10 {
			if checkInPlace(t, t, typ, r) {
				served++
			}
		}
		if InPlace(schemaOf(typ)) != inOrder(typ) {
			t.Errorf("%s: in place by its type %v", typ, !inOrder(typ))
		}
		lay, _ := layoutOf(typ)
		if inOrder(typ) && lay.kind != empty && lay.width > 0 && served == 0 {
			t.Errorf("%s was never served in place", typ)
		}
	}
}

func TestFramesInPlaceEqualTheirRowsForRandomTypes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := rand.New(rand.NewSource(rapid.Int64().Draw(rt, "seed")))
		checkInPlace(rt, t, arrowtest.Type(r, 3), r)
	})
}

// Every offset of the rows is looked at before anybody can see the frame.
func TestFramesInPlaceRefuseOffsetsThatGoBack(t *testing.T) {
	for _, typ := range []arrow.DataType{arrow.BinaryTypes.String, arrow.BinaryTypes.LargeBinary, arrow.ListOf(arrow.BinaryTypes.String)} {
		_, g, p := world(t, 1<<24)
		r := rand.New(rand.NewSource(1))
		arr := (&arrowtest.Maker{Rand: r}).Array(typ, 50)
		var content bytes.Buffer
		column := aligned(ColumnOf(arr), &content)
		lay, _ := layoutOf(typ)
		putNumber(content.Bytes()[column.Buffers[1].Off:], column.Offset+20, lay.width, 1<<20)
		f, file := mappedFile(t, p, content.Bytes())
		readAligned(&column, file)
		if _, err := f.frame(g, schemaOf(typ), Piece{Columns: []Column{column}, To: 50}, always); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", typ, err)
		}
		l, err := f.frame(g, schemaOf(typ), Piece{Columns: []Column{column}, From: 21, To: 50}, always)
		if err != nil {
			t.Errorf("%s: rows behind the damage: %v", typ, err)
			continue
		}
		l.Release()
	}
}

// What is mapped is what pays: large runs of bytes, not pages with a few bytes of the rows each.
func TestFramesInPlacePay(t *testing.T) {
	_, g, p := world(t, 1<<30)
	const rows = 1 << 19
	content := make([]byte, 2*8*rows)
	f, file := mappedFile(t, p, content)
	wide := make([]Column, 2)
	for i := range wide {
		wide[i] = Column{Type: arrow.PrimitiveTypes.Int64, Len: rows, Buffers: []Buffer{{}, {R: file, Off: int64(i * 8 * rows), Len: 8 * rows}}}
	}
	s := schemaOf(arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Int64)
	for _, c := range []struct {
		what     string
		from, to int64
		err      error
	}{
		{"all", 0, rows, nil},
		{"half", 100, rows / 2, nil},
		{"few rows", 0, 1000, ErrNotInPlace},
		{"rows behind the end", 0, rows + 1, ErrCorrupt},
	} {
		l, err := f.Frame(g, s, Piece{Columns: wide, From: c.from, To: c.to})
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", c.what, err, c.err)
		}
		if err == nil {
			if n := 16 * (c.to - c.from); l.Bytes() < n || l.Bytes() > n+4*Cost(1) {
				t.Errorf("%s: charged %d for %d", c.what, l.Bytes(), n)
			}
			if mapped := p.Stats().Mapped; mapped != l.Bytes() {
				t.Errorf("%s: %d bytes mapped", c.what, mapped)
			}
			l.Release()
		}
	}
	odd := wide[0]
	odd.Buffers = []Buffer{{}, {R: file, Off: 4, Len: 8*rows - 8}}
	odd.Len--
	one := schemaOf(arrow.PrimitiveTypes.Int64)
	if _, err := f.Frame(g, one, Piece{Columns: []Column{odd}, To: rows - 1}); !errors.Is(err, ErrNotInPlace) {
		t.Errorf("a buffer at byte 4: %v", err)
	}
	long := wide[0]
	long.Len, long.Buffers = 2*rows+600, []Buffer{{}, {R: file, Len: 2*8*rows + 4800}}
	if _, err := f.Frame(g, one, Piece{Columns: []Column{long}, To: long.Len}); !errors.Is(err, ErrNotInPlace) {
		t.Errorf("a buffer that goes on after the file: %v", err)
	}
	var thin []Column
	var types []arrow.DataType
	for i := range 128 { // 2 KiB of every 8
		thin = append(thin, Column{Type: arrow.PrimitiveTypes.Int64, Len: 256, Buffers: []Buffer{{}, {R: file, Off: int64(i * 8192), Len: 2048}}})
		types = append(types, arrow.PrimitiveTypes.Int64)
	}
	if _, err := f.Frame(g, schemaOf(types...), Piece{Columns: thin, To: 256}); !errors.Is(err, ErrNotInPlace) {
		t.Errorf("thin columns: %v", err)
	}
	if _, err := f.frame(g, arrow.NewSchema(nil, nil), Piece{To: 5}, always); !errors.Is(err, ErrNotInPlace) {
		t.Errorf("no columns: %v", err)
	}
}

// Who inherits a frame in place pays for its pages, those that were copied for a writer too.
func TestFramesInPlaceAreBequeathed(t *testing.T) {
	ledger, g, p := world(t, 1<<30)
	heir, err := ledger.Try(0)
	if err != nil {
		t.Fatal(err)
	}
	defer heir.Close()
	const rows = 1 << 17
	f, file := mappedFile(t, p, make([]byte, 8*rows))
	column := Column{Type: arrow.PrimitiveTypes.Int64, Len: rows, Buffers: []Buffer{{}, {R: file, Len: 8 * rows}}}
	lease, err := f.Frame(g, schemaOf(arrow.PrimitiveTypes.Int64), Piece{Columns: []Column{column}, To: rows})
	if err != nil {
		t.Fatal(err)
	}
	second := lease.ShareFor(heir)
	lease.Bequeath()
	if !pays(heir, budget.Mapped, second.Bytes()) {
		t.Error("the heir does not pay for what is mapped")
	}
	if err := os.Truncate(file.Name(), 0); err != nil { // it waits until there are copies
		t.Fatal(err)
	}
	third := second.ShareFor(g)
	second.Release()
	if !pays(g, budget.Copies, third.Bytes()) {
		t.Error("the next one does not pay for what was copied")
	}
	third.Release()
	if s := ledger.Stats(); s.Reserved != 0 {
		t.Errorf("%+v", s)
	}
}

// A frame in place is sliced like any other.
func TestFramesInPlaceAreSliced(t *testing.T) {
	_, g, p := world(t, 1<<24)
	arr := (&arrowtest.Maker{Rand: rand.New(rand.NewSource(9)), Nulls: true}).Array(arrow.BinaryTypes.String, 60)
	var content bytes.Buffer
	column := aligned(ColumnOf(arr), &content)
	f, file := mappedFile(t, p, content.Bytes())
	readAligned(&column, file)
	l, err := f.frame(g, schemaOf(arrow.BinaryTypes.String), Piece{Columns: []Column{column}, From: 5, To: 55}, always)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	slice := l.Batch().NewSlice(7, 33)
	defer slice.Release()
	want := array.NewSlice(arr, 12, 38)
	defer want.Release()
	if !array.Equal(slice.Column(0), want) {
		t.Errorf("got %v, want %v", slice.Column(0), want)
	}
}

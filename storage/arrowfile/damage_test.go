package arrowfile

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/snapshot"
)

func golden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata/golden", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// yard is a place where bytes become an object, without a new folder each time.
type yard struct {
	*house
	dir string
	far *far
}

func newYard(t testing.TB) *yard {
	dir := t.TempDir()
	return &yard{newHouseOf(t, dir, 32<<20), dir, newFar(t)}
}

// read describes b and reads all of it; it returns the rows.
func (y *yard) read(t testing.TB, b []byte) (rows int64, err error) {
	t.Helper()
	name := filepath.Join(y.dir, "x")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Remove(name) }() // some file systems flush a file that is written over
	obj, err := y.bucket.Open(context.Background(), "x", "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = obj.Close() }()
	sh, err := Describe(context.Background(), obj, nil)
	y.far.alike(t, b, sh, err)
	if err != nil {
		return 0, ownError(t, err)
	}
	if err := schema.Check(sh.Schema); err != nil {
		return 0, err // such a shard never becomes part of a dataset
	}
	p := schema.All(schema.Plain(sh.Schema))
	for i := range min(len(sh.Segments), 100) {
		if sh.Segments[i].Rows > 1<<20 {
			continue // null columns may well have that many, at no cost
		}
		err := y.house.read(obj, sh, i, p, 1<<16, func(b arrow.RecordBatch) { rows += b.NumRows() })
		if err != nil {
			return rows, ownError(t, err)
		}
	}
	return rows, nil
}

// A stream may end between two messages; cut anywhere else it is corrupt. A
// file is nothing without its footer.
func TestCutShort(t *testing.T) {
	y := newYard(t)
	whole := golden(t, "deltas.stream")
	ends := map[int]int64{152: 0, 352: 0, 528: 6, 728: 6, 920: 15, 1120: 15, 1296: 21}
	for n := range whole {
		rows, err := y.read(t, whole[:n])
		want, legal := ends[n]
		switch {
		case legal && (err != nil || rows != want):
			t.Errorf("cut at %d: %d rows, %v; want %d", n, rows, err, want)
		case !legal && !errors.Is(err, snapshot.ErrCorrupt):
			t.Errorf("cut at %d: %v", n, err)
		}
	}
	whole = golden(t, "leaves.file")
	for n := range whole {
		if _, err := y.read(t, whole[:n]); !errors.Is(err, snapshot.ErrCorrupt) {
			t.Errorf("file cut at %d: %v", n, err)
		}
	}
}

// Every number of the metadata in turn is replaced by what a forger would try.
func TestForgedNumbers(t *testing.T) {
	y := newYard(t)
	for _, name := range []string{"leaves.file", "deltas.stream", "leaves-zstd.stream"} {
		whole := golden(t, name)
		for at := 0; at+8 <= len(whole); at += 4 {
			wide, narrow := append([]byte{}, whole...), append([]byte{}, whole...)
			binary.LittleEndian.PutUint64(wide[at:], []uint64{1<<63 - 1, 1 << 63}[at/8%2])
			binary.LittleEndian.PutUint32(narrow[at:], []uint32{0, 1<<31 - 1, 1 << 31}[at/4%3])
			_, _ = y.read(t, wide) // the class of the error is checked in there
			_, _ = y.read(t, narrow)
		}
	}
}

// A few hundred bytes can describe a tree of 2^60 fields by pointing to the
// same ones again and again.
func TestForgedSchemaTakesNoMemory(t *testing.T) {
	b := flatbuffers.NewBuilder(0)
	leaf := func(kids ...flatbuffers.UOffsetT) flatbuffers.UOffsetT {
		b.StartVector(4, len(kids), 4)
		for _, k := range kids {
			b.PrependUOffsetT(k)
		}
		children := b.EndVector(len(kids))
		b.StartObject(0)
		typ := b.EndObject()
		b.StartObject(7)
		b.PrependByteSlot(2, typeStruct, 0)
		b.PrependUOffsetTSlot(3, typ, 0)
		b.PrependUOffsetTSlot(5, children, 0)
		return b.EndObject()
	}
	field := leaf()
	for range 60 {
		field = leaf(field, field)
	}
	b.StartVector(4, 1, 4)
	b.PrependUOffsetT(field)
	fields := b.EndVector(1)
	b.StartObject(4)
	b.PrependUOffsetTSlot(1, fields, 0)
	b.Finish(b.EndObject())
	f := newFlat(b.FinishedBytes())
	allocated := testing.AllocsPerRun(1, func() {
		f = newFlat(b.FinishedBytes())
		if _, _, err := readSchema(f.root()); !errors.Is(err, snapshot.ErrCorrupt) {
			t.Error(err)
		}
	})
	if allocated > 1<<14 {
		t.Errorf("%v allocations for a schema of %d bytes", allocated, len(b.FinishedBytes()))
	}
}

// What a compressed buffer claims to become is checked before memory is taken,
// and what it becomes is checked after.
func TestForgedCompressedLengths(t *testing.T) {
	y := newYard(t)
	for _, name := range []string{"leaves-zstd.stream", "nested-lz4.file"} {
		whole := golden(t, name)
		at := bodyOf(t, y, name, whole)
		was := binary.LittleEndian.Uint64(whole[at:])
		for _, v := range []uint64{1 << 40, 1<<63 - 1, 1 << 63, ^uint64(1), was + 1, was - 1, 0} {
			b := append([]byte{}, whole...)
			binary.LittleEndian.PutUint64(b[at:], v)
			if _, err := y.read(t, b); !errors.Is(err, snapshot.ErrCorrupt) {
				t.Errorf("%s: length %d: %v", name, v, err)
			}
		}
		for i := at + 8; i < at+16; i++ {
			b := append([]byte{}, whole...)
			b[i] ^= 0x55
			if _, err := y.read(t, b); !errors.Is(err, snapshot.ErrCorrupt) {
				t.Errorf("%s: byte %d turned over: %v", name, i, err)
			}
		}
	}
}

// bodyOf finds the first compressed buffer of the first batch that has one.
func bodyOf(t testing.TB, y *yard, name string, b []byte) int64 {
	t.Helper()
	_, sh := newHouse(t, "testdata/golden").describe(t, name)
	place := sh.Segments[0].Facts.(Batch).Place
	m, err := (&window{obj: newHouse(t, "testdata/golden").open(t, name)}).message(context.Background(), place.Offset)
	if err != nil {
		t.Fatal(err)
	}
	head, err := m.batch()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range head.buffers {
		if at := place.body() + s.off; s.len > 8 && binary.LittleEndian.Uint64(b[at:]) != ^uint64(0) {
			return at
		}
	}
	t.Fatalf("%s: nothing is compressed", name)
	return 0
}

func TestDictionaryRules(t *testing.T) {
	whole := golden(t, "dictionaries.file")
	y := newYard(t)
	if rows, err := y.read(t, whole); err != nil || rows != 6 {
		t.Fatal(rows, err)
	}
	stream := golden(t, "deltas.stream")
	// Without its first dictionary message: the delta has nothing to add to,
	// the batch nothing to refer to.
	for cut, text := range map[string]string{"dictionary": "used and not there", "both": "before it is there"} {
		b := append([]byte{}, stream[:152]...)
		if cut == "dictionary" {
			b = append(b, stream[352:528]...)
		} else {
			b = append(b, stream[528:]...)
		}
		if _, err := y.read(t, b); !errors.Is(err, snapshot.ErrCorrupt) || !strings.Contains(err.Error(), text) {
			t.Errorf("without its %s: %v", cut, err)
		}
	}
}

package arrowfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"testing"

	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/snapshot"
)

// fields are the places of numbers in a file, by what they say.
type fields struct{ wide, narrow map[string]int64 }

// lengths finds all that a file says of where its messages are and how long.
func lengths(t *testing.T, file []byte, sh *snapshot.Shard) fields {
	t.Helper()
	f := fields{wide: map[string]int64{}, narrow: map[string]int64{}}
	var places []Place
	for _, d := range sh.Facts.(*Facts).Dictionaries {
		places = append(places, d.Place)
	}
	for _, s := range sh.Segments {
		places = append(places, s.Facts.(Batch).Place)
	}
	for i, p := range places {
		f.narrow[fmt.Sprintf("message %d: metadata length", i)] = p.Offset + 4
		body := newFlat(file[p.Offset+8 : p.body()]).root().field(3)
		f.wide[fmt.Sprintf("message %d: body length", i)] = p.Offset + 8 + int64(body)
	}
	if sh.Format != snapshot.Arrow {
		return f
	}
	end := int64(len(file)) - foot
	footer := end - int64(binary.LittleEndian.Uint32(file[end:]))
	for slot, kind := range map[int]string{2: "dictionary", 3: "batch"} {
		_, n, pos := newFlat(file[footer:end]).root().vectorAt(slot, 24)
		for i := range n {
			at := footer + int64(pos+24*i)
			f.wide[fmt.Sprintf("%s %d: place", kind, i)] = at
			f.narrow[fmt.Sprintf("%s %d: metadata length", kind, i)] = at + 8
			f.wide[fmt.Sprintf("%s %d: body length", kind, i)] = at + 16
		}
	}
	return f
}

// Every length and place that a file says of its messages is changed in every
// way: there is an error, and no memory is taken for what is not there.
func TestB19_LengthsAndPlacesThatLie(t *testing.T) {
	y := newYard(t)
	for _, name := range []string{"leaves.file", "nested.stream", "dictionaries.file", "deltas.stream"} {
		whole := golden(t, name)
		_, sh := newHouse(t, "testdata/golden").describe(t, name)
		f := lengths(t, whole, sh)
		for field, at := range f.narrow {
			for _, v := range []int32{0, -1, math.MinInt32, math.MaxInt32} {
				b := bytes.Clone(whole)
				binary.LittleEndian.PutUint32(b[at:], uint32(v))
				y.refuses(t, b, "%s: %s: %d", name, field, v)
			}
		}
		for field, at := range f.wide {
			for _, v := range []int64{0, -1, math.MinInt64, math.MaxInt32, math.MaxInt64} {
				b := bytes.Clone(whole)
				binary.LittleEndian.PutUint64(b[at:], uint64(v))
				y.refuses(t, b, "%s: %s: %d", name, field, v)
			}
		}
	}
}

// refuses checks that b is refused, and cheaply.
func (y *yard) refuses(t *testing.T, b []byte, format string, args ...any) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := y.read(t, b)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, snapshot.ErrCorrupt) && !errors.Is(err, snapshot.ErrUnsupported) {
		t.Errorf("%s: %v", fmt.Sprintf(format, args...), err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("%s: %d bytes allocated", fmt.Sprintf(format, args...), n)
	}
}

// schemaOfType builds a schema of one field whose type has the given number,
// and nothing that says more about it.
func schemaOfType(number byte) []byte {
	b := flatbuffers.NewBuilder(0)
	name := b.CreateString("f")
	b.StartObject(0)
	typ := b.EndObject()
	b.StartObject(7)
	b.PrependUOffsetTSlot(0, name, 0)
	b.PrependByteSlot(2, number, 0)
	b.PrependUOffsetTSlot(3, typ, 0)
	field := b.EndObject()
	b.StartVector(4, 1, 4)
	b.PrependUOffsetT(field)
	fields := b.EndVector(1)
	b.StartObject(4)
	b.PrependUOffsetTSlot(1, fields, 0)
	b.Finish(b.EndObject())
	return b.FinishedBytes()
}

// A schema that can be parsed and makes no sense is refused or understood,
// whatever number its type has.
func TestB21_SchemasOfNoSense(t *testing.T) {
	for number := range 256 {
		s, _, err := readSchema(newFlat(schemaOfType(byte(number))).root())
		switch {
		case err == nil && (number == 0 || number > 26):
			t.Errorf("type number %d is %v", number, s)
		case err != nil && !errors.Is(err, snapshot.ErrCorrupt) && !errors.Is(err, snapshot.ErrUnsupported):
			t.Errorf("type number %d: %v", number, err)
		case err == nil:
			_ = schema.Plain(s).String()
		}
	}
}

// Every number of a batch in turn claims more than there is. The class of the
// error, if it is one, is checked where it is read.
func TestB21_BatchesOfNoSense(t *testing.T) {
	y := newYard(t)
	whole := golden(t, "nested.stream")
	_, sh := newHouse(t, "testdata/golden").describe(t, "nested.stream")
	p := sh.Segments[0].Facts.(Batch).Place
	for at := p.Offset + 8; at+8 <= p.body(); at += 8 {
		for _, v := range []uint64{math.MaxUint64, math.MaxInt64, 1 << 40, math.MaxInt32} {
			b := bytes.Clone(whole)
			binary.LittleEndian.PutUint64(b[at:], v)
			_, _ = y.read(t, b)
		}
	}
}

package gather

import (
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/headrace/headrace/storage/frame"
)

// attempt measures and fills all rows of data, which arrow's own arrays would not let through. meddle comes in between.
func attempt(t *testing.T, data arrow.ArrayData, meddle func()) error {
	t.Helper()
	n, err := newNode("c", data.DataType())
	if err != nil {
		t.Fatal(err)
	}
	if err := n.bind(0, data, 0, int64(data.Len())); err != nil {
		t.Fatal(err)
	}
	s := &selection{per: 1, total: int64(data.Len())}
	for i := range data.Len() {
		s.rows = append(s.rows, Row{0, int32(i)})
	}
	if err := n.measure(s); err != nil {
		return err
	}
	if meddle != nil {
		meddle()
	}
	_, err = n.fill(make([]byte, n.bytes()))
	return err
}

// inPairs puts the rows of data into lists of two, so that they are gathered by runs.
func inPairs(data arrow.ArrayData) arrow.ArrayData {
	t := arrow.FixedSizeListOf(2, data.DataType())
	return array.NewData(t, data.Len()/2, []*memory.Buffer{nil}, []arrow.ArrayData{data}, 0, 0)
}

func TestOffsetsThatLeadAstray(t *testing.T) {
	item := array.NewData(arrow.PrimitiveTypes.Int8, 6, []*memory.Buffer{nil, memory.NewBufferBytes([]byte("abcdef"))}, nil, 0, 0)
	for name, offsets := range map[string][]int32{
		"past the end": {0, 1, 2, 3, 7}, "back": {3, 2, 1, 0, 0}, "negative": {-2, -1, 0, 1, 2}, "detour": {0, 9, 2, 3, 4},
	} {
		wide := make([]int64, len(offsets))
		for i, v := range offsets {
			wide[i] = int64(v)
		}
		for _, data := range []arrow.ArrayData{
			array.NewData(arrow.BinaryTypes.Binary, 4, []*memory.Buffer{nil, numbers(offsets...), memory.NewBufferBytes([]byte("abcdef"))}, nil, 0, 0),
			array.NewData(arrow.BinaryTypes.LargeString, 4, []*memory.Buffer{nil, numbers(wide...), memory.NewBufferBytes([]byte("abcdef"))}, nil, 0, 0),
			array.NewData(arrow.ListOf(arrow.PrimitiveTypes.Int8), 4, []*memory.Buffer{nil, numbers(offsets...)}, []arrow.ArrayData{item}, 0, 0),
		} {
			for _, err := range []error{attempt(t, data, nil), attempt(t, inPairs(data), nil)} {
				if !errors.Is(err, frame.ErrCorrupt) || !strings.Contains(err.Error(), `column "c`) {
					t.Errorf("%s, %s: %v", data.DataType(), name, err)
				}
			}
		}
	}
}

// Within a run offsets are read again when they are copied.
func TestOffsetsThatMove(t *testing.T) {
	for name, moved := range map[string][]int32{"first": {1, 1, 2, 3, 4}, "middle": {0, 3, 2, 3, 4}, "last": {0, 1, 3, 3, 4}, "end": {0, 1, 2, 3, 5}} {
		offsets := numbers[int32](0, 1, 2, 3, 4)
		data := array.NewData(arrow.BinaryTypes.Binary, 4, []*memory.Buffer{nil, offsets, memory.NewBufferBytes([]byte("abcd"))}, nil, 0, 0)
		err := attempt(t, inPairs(data), func() { copy(offsets.Bytes(), numbers(moved...).Bytes()) })
		if !errors.Is(err, frame.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestViewsThatLeadAstray(t *testing.T) {
	text := memory.NewBufferBytes([]byte("a text of some twenty-eight"))
	good := numbers[int32](20, 0, 0, 0, 20, 0, 0, 7)
	for name, views := range map[string]*memory.Buffer{
		"buffer": numbers[int32](20, 0, 1, 0, 20, 0, 0, 7), "negative buffer": numbers[int32](20, 0, -1, 0, 20, 0, 0, 7),
		"past the end": numbers[int32](20, 0, 0, 0, 20, 0, 0, 8), "negative offset": numbers[int32](20, 0, 0, -1, 20, 0, 0, 7),
		"negative size": numbers[int32](20, 0, 0, 0, -20, 0, 0, 7),
	} {
		data := array.NewData(arrow.BinaryTypes.BinaryView, 2, []*memory.Buffer{nil, views, text}, nil, 0, 0)
		for _, err := range []error{attempt(t, data, nil), attempt(t, inPairs(data), nil)} {
			if !errors.Is(err, frame.ErrCorrupt) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for name, size := range map[string]byte{"longer": 21, "shorter": 19} {
		views := memory.NewBufferBytes(append([]byte{}, good.Bytes()...))
		data := array.NewData(arrow.BinaryTypes.BinaryView, 2, []*memory.Buffer{nil, views, text}, nil, 0, 0)
		if err := attempt(t, data, func() { views.Bytes()[0] = size }); !errors.Is(err, frame.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What a file has where nothing is said to be stays behind.
func TestNothingIsGatheredFromUnderNulls(t *testing.T) {
	w := newWorld(t, true)
	secret := memory.NewBufferBytes([]byte("abSECRETcd"))
	text := array.NewData(arrow.BinaryTypes.Binary, 3, []*memory.Buffer{memory.NewBufferBytes([]byte{0b101}), numbers[int32](0, 2, 8, 10), secret}, nil, 1, 0)
	views := memory.NewBufferBytes([]byte("\x02\x00\x00\x00abSECRETSECR\x08\x00\x00\x00SECRETSECRET\x02\x00\x00\x00cdSECRETSECR"))
	view := array.NewData(arrow.BinaryTypes.BinaryView, 3, []*memory.Buffer{memory.NewBufferBytes([]byte{0b101}), views}, nil, 1, 0)
	b := batchOf(text, view)
	l := w.gather(t, newGatherer(t, b.Schema(), b), []Row{{0, 0}, {0, 1}, {0, 2}})
	defer l.Release()
	for _, c := range l.Batch().Columns() {
		for _, mem := range c.Data().Buffers() {
			if strings.Contains(string(mem.Bytes()), "SEC") {
				t.Errorf("%s: %q", c.DataType(), mem.Bytes())
			}
		}
		if c.NullN() != 1 || c.ValueStr(0) != array.NewSlice(b.Column(0), 0, 1).ValueStr(0) || !c.IsNull(1) {
			t.Errorf("%s: %v", c.DataType(), c)
		}
	}
	if n := l.Batch().Column(0).Data().Buffers()[2].Len(); n != 4 {
		t.Errorf("%d bytes of text", n)
	}
}

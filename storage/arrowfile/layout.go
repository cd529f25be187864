package arrowfile

import (
	"fmt"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow"
)

// maxImplied is more bytes than one buffer can hold; it keeps sums of byte
// counts far from overflow.
const maxImplied = 1 << 42

// part is one buffer of an array.
type part struct {
	span
	need     int64  // bytes that the array's row count demands; 0 for data of variable length
	validity bool   // a bitmap of nulls
	mem      []byte // the decompressed bytes, once there
}

// stored is an array as a batch stores it.
type stored struct {
	typ   arrow.DataType
	ids   []int64 // of the dictionaries of this array and of those below it
	rows  int64
	nulls int64 // -1: unknown
	parts []part
	kids  []*stored

	// Set by pick on dictionary indices: what they are, and the plain type that
	// their values shall have.
	dict   *arrow.DictionaryType
	values arrow.DataType
}

// walker lays the nodes and buffers of a batch, which are flat lists, over the
// types of the schema: both lists follow the fields in pre-order.
type walker struct {
	*batch
	ids  []int64
	used int // ids
}

// columns returns the arrays of a batch, one for each type. ids are those of
// all dictionary-encoded fields in pre-order.
func (b *batch) columns(types []arrow.DataType, ids []int64) ([]*stored, error) {
	own := *b // its lists are consumed
	w := &walker{batch: &own, ids: ids}
	out := make([]*stored, len(types))
	for i, t := range types {
		var err error
		if out[i], err = w.array(t); err != nil {
			return nil, fmt.Errorf("array %d: %w", i, err)
		}
		if out[i].rows != b.rows {
			return nil, corruptf("a column of %d rows in a batch of %d", out[i].rows, b.rows)
		}
	}
	if len(w.nodes) > 0 || len(w.buffers) > 0 {
		return nil, corruptf("a batch with %d arrays and %d buffers more than its schema has", len(w.nodes), len(w.buffers))
	}
	return out, nil
}

func (w *walker) array(t arrow.DataType) (*stored, error) {
	if len(w.nodes) == 0 {
		return nil, corruptf("a batch with fewer arrays than its schema has")
	}
	s := &stored{typ: t, rows: w.nodes[0].rows, nulls: w.nodes[0].nulls}
	w.nodes = w.nodes[1:]
	from := w.used
	if err := w.fill(s, t); err != nil {
		return nil, err
	}
	s.ids = w.ids[from:w.used]
	return s, nil
}

// fill takes the buffers and children of s.
func (w *walker) fill(s *stored, t arrow.DataType) error {
	switch t := t.(type) {
	case *arrow.NullType:
		return nil
	case *arrow.DictionaryType:
		w.used += 1 + len(dictionaries(t.ValueType))
		return w.take(s, true, t.IndexType.(arrow.FixedWidthDataType).BitWidth())
	case *arrow.RunEndEncodedType:
		if err := w.oldValidity(s); err != nil {
			return err
		}
		return w.kids(s, 0, t.RunEnds(), t.Encoded())
	case arrow.UnionType:
		return w.union(s, t)
	case *arrow.StructType:
		if err := w.take(s, true); err != nil {
			return err
		}
		return w.kids(s, s.rows, types(t.Fields())...)
	case *arrow.FixedSizeListType:
		if err := w.take(s, true); err != nil {
			return err
		}
		if s.rows > maxRows/int64(t.Len()) {
			return corruptf("%d lists of %d values", s.rows, t.Len())
		}
		return w.kids(s, s.rows*int64(t.Len()), t.Elem())
	case arrow.ListLikeType: // lists, list views and maps
		if err := w.take(s, true, offsetWidths(t)...); err != nil {
			return err
		}
		return w.kids(s, 0, t.Elem())
	}
	return w.leaf(s, t)
}

func (w *walker) leaf(s *stored, t arrow.DataType) error {
	switch t := t.(type) {
	case arrow.BinaryViewDataType:
		if err := w.take(s, true, 128); err != nil {
			return err
		}
		return w.variadicData(s)
	case arrow.BinaryDataType:
		if err := w.take(s, true, offsetWidths(t)...); err != nil {
			return err
		}
		return w.take(s, false, 0)
	case arrow.FixedWidthDataType:
		return w.take(s, true, t.BitWidth())
	}
	return unsupportedf("type %v", t)
}

// oldValidity passes over the bitmap that types which have none now had before
// metadata version 5.
func (w *walker) oldValidity(s *stored) error {
	if w.version >= version5 {
		return nil
	}
	if err := w.take(s, true); err != nil {
		return err
	}
	if s.nulls > 0 {
		return unsupportedf("unions and runs with nulls of their own, as written before format version 1.0")
	}
	s.parts = s.parts[:0]
	return nil
}

func (w *walker) union(s *stored, t arrow.UnionType) error {
	if err := w.oldValidity(s); err != nil {
		return err
	}
	widths, rows := []int{8}, s.rows
	if t.Mode() == arrow.DenseMode {
		widths, rows = []int{8, 32}, 0
	}
	if err := w.take(s, false, widths...); err != nil {
		return err
	}
	return w.kids(s, rows, types(t.Fields())...)
}

// kids takes the children of s, each of at least rows rows.
func (w *walker) kids(s *stored, rows int64, ts ...arrow.DataType) error {
	for _, t := range ts {
		kid, err := w.array(t)
		if err != nil {
			return err
		}
		if kid.rows < rows {
			return corruptf("an array of %d rows where its parent needs %d", kid.rows, rows)
		}
		s.kids = append(s.kids, kid)
	}
	return nil
}

// Widths of offsets, in bits: there is one more of them than rows.
const (
	offsets32 = -32
	offsets64 = -64
)

func offsetWidths(t arrow.DataType) []int {
	switch t.ID() {
	case arrow.LARGE_STRING, arrow.LARGE_BINARY, arrow.LARGE_LIST:
		return []int{offsets64}
	case arrow.LIST_VIEW:
		return []int{32, 32}
	case arrow.LARGE_LIST_VIEW:
		return []int{64, 64}
	}
	return []int{offsets32}
}

// take moves the next buffers of the batch to s: the validity bitmap if it has
// one, then one buffer for each width in bits.
func (w *walker) take(s *stored, validity bool, widths ...int) error {
	if validity {
		p := part{validity: true}
		if s.nulls > 0 {
			p.need = (s.rows + 7) / 8
		}
		if err := w.next(s, p); err != nil {
			return err
		}
	}
	for _, width := range widths {
		need, err := implied(s.rows, width)
		if err != nil {
			return err
		}
		if err := w.next(s, part{need: need}); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) next(s *stored, p part) error {
	if len(w.buffers) == 0 {
		return corruptf("a batch with fewer buffers than its schema has")
	}
	p.span, w.buffers = w.buffers[0], w.buffers[1:]
	if w.codec == uncompressed && p.len < p.need {
		return corruptf("a buffer of %d bytes where %d rows need %d", p.len, s.rows, p.need)
	}
	s.parts = append(s.parts, p)
	return nil
}

func (w *walker) variadicData(s *stored) error {
	if len(w.variadic) == 0 {
		return corruptf("a batch with fewer counts of view buffers than its schema has views")
	}
	n := w.variadic[0]
	w.variadic = w.variadic[1:]
	if n < 0 || n > int64(len(w.buffers)) {
		return corruptf("a view array with %d data buffers", n)
	}
	return w.take(s, false, make([]int, n)...)
}

// implied returns the bytes that rows values of so many bits take.
func implied(rows int64, width int) (int64, error) {
	if width < 0 {
		if rows == 0 {
			return 0, nil // writers may leave out the single offset of an empty array
		}
		rows, width = rows+1, -width
	}
	hi, lo := bits.Mul64(uint64(rows), uint64(width))
	if n := lo/8 + (lo%8+7)/8; hi == 0 && n <= maxImplied {
		return int64(n), nil
	}
	return 0, corruptf("an array of %d rows of %d bits each", rows, width)
}

// size returns the bytes of an array for the rule that decides block borders.
// Every buffer counts the larger of the length it is stored with and the length
// that the array's row count implies for it: rows times width for values,
// indices, views, list sizes, type codes and the offsets of unions and list
// views, bits rounded up to bytes; rows+1 times width for other offsets, nothing
// if there are no rows; nothing for data of variable length. Validity bitmaps
// count as stored. Dictionaries are not part of a batch. So an uncompressed
// batch counts exactly the sum of its buffers' lengths, and a compressed one no
// less than its fixed-width parts decode to.
//
// The numbers are frozen: another rule would move the borders of blocks, and
// with them the order of rows, under every cursor that was ever given out.
func (s *stored) size() int64 {
	var sum int64
	for _, p := range s.parts {
		if p.validity {
			sum += p.len
			continue
		}
		sum += max(p.len, p.need)
	}
	for _, kid := range s.kids {
		sum += kid.size()
	}
	return sum
}

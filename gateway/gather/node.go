package gather

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/headrace/headrace/storage/frame"
)

// kind is how the rows of a node are laid out in buffers.
type kind int

const (
	null      kind = iota // no buffers
	boolean               // validity, bits
	fixed                 // validity, values of one width
	raw                   // the bytes of strings: values of width 1, which belong to the array above
	list                  // validity, offsets; one child. Strings are lists of raw bytes
	view                  // validity, views, buffers of bytes
	fixedList             // validity; one child with width rows for each
	record                // struct: validity; children with the same rows
	irregular             // the rest: no kernel
)

// node is one array of the batches: where its rows are by slot, and what the
// rows selected last take.
type node struct {
	name     string // its path from the column down
	typ      arrow.DataType
	kind     kind
	width    int64 // bytes of a value, offset or view; rows of a fixed-size list
	children []*node

	places // by slot

	sel   *selection
	below selection // of the child, where its rows are not the node's own
	nulls int64
	bits  []byte   // the bitmap of a selection by rows
	sizes []int64  // bytes of the buffers, without validity
	out   [][]byte // where they are being made, validity first; nil: absent
}

// newNode makes the node of type t and those below it.
func newNode(name string, t arrow.DataType) (*node, error) {
	n := &node{name: name, typ: t}
	if n.kind, n.width = layout(t); n.kind == irregular && !known(t) {
		return nil, fmt.Errorf("gather: column %q: %w: %v", name, frame.ErrUnsupported, t)
	}
	for _, f := range fields(t) {
		child, err := newNode(name+"."+f.Name, f.Type)
		if err != nil {
			return nil, err
		}
		n.children = append(n.children, child)
	}
	if n.kind == list && n.children == nil {
		n.children = []*node{{name: name, kind: raw, width: 1}}
	}
	return n, nil
}

// irregular tells whether the node or one below it has no kernel.
func (n *node) irregular() bool {
	return n.kind == irregular || slices.ContainsFunc(n.children, (*node).irregular)
}

// layout is the kind of t with its width.
func layout(t arrow.DataType) (kind, int64) {
	switch t := t.(type) {
	case *arrow.NullType:
		return null, 0
	case *arrow.BooleanType:
		return boolean, 0
	case *arrow.StringType, *arrow.BinaryType, *arrow.ListType, *arrow.MapType:
		return list, 4
	case *arrow.LargeStringType, *arrow.LargeBinaryType, *arrow.LargeListType:
		return list, 8
	case *arrow.StringViewType, *arrow.BinaryViewType:
		return view, viewWidth
	case *arrow.FixedSizeListType:
		return fixedList, int64(t.Len())
	case *arrow.StructType:
		return record, 0
	case arrow.NestedType, *arrow.DictionaryType, arrow.ExtensionType:
	case arrow.FixedWidthDataType:
		if bits := t.BitWidth(); bits >= 0 && bits%8 == 0 {
			return fixed, int64(bits / 8)
		}
	}
	return irregular, 0
}

// known tells whether the copier of frames knows an irregular type.
func known(t arrow.DataType) bool {
	_, nested := t.(arrow.NestedType)
	return nested
}

// fields lists the children of t.
func fields(t arrow.DataType) []arrow.Field {
	if n, ok := t.(arrow.NestedType); ok {
		return n.Fields()
	}
	return nil
}

// storage looks through extension types, which only say what their storage means.
func storage(t arrow.DataType) arrow.DataType {
	for t.ID() == arrow.EXTENSION {
		t = t.(arrow.ExtensionType).StorageType()
	}
	return t
}

// validity tells whether rows of the node have a bitmap of their own.
func (n *node) validity() bool { return n.kind != null && n.kind != raw }

// fits checks that data is of the node's type as far as bytes are concerned;
// names and nullability within are the schema's business.
func (n *node) fits(data arrow.ArrayData) error {
	t := storage(data.DataType())
	kind, width := layout(t)
	nested := fields(n.typ)
	if t.ID() != n.typ.ID() || kind != n.kind || width != n.width || nested == nil && !arrow.TypeEqual(t, n.typ) {
		return fmt.Errorf("holds %v, the schema says %v", data.DataType(), n.typ)
	}
	if len(data.Children()) != len(nested) {
		return fmt.Errorf("%w: %d children, %d belong to %v", frame.ErrCorrupt, len(data.Children()), len(nested), n.typ)
	}
	return nil
}

// largest is where lengths stop growing: one that large is refused wherever it is used.
const largest = int64(1)<<62 - 1

func times(a, b int64) int64 {
	if a > 0 && b > largest/a {
		return largest
	}
	return a * b
}

func plus(a, b int64) int64 {
	if a > largest-b {
		return largest
	}
	return a + b
}

// align is where buffers begin, in bytes: the width of the widest vector registers.
const align = 64

// padded rounds a length in bytes up to where the next buffer may begin.
func padded(n int64) int64 { return (n + align - 1) &^ (align - 1) }

// bitmapBytes is the length of a bitmap of n bits.
func bitmapBytes(n int64) int64 { return n/8 + min(n%8, 1) }

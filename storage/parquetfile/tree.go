package parquetfile

import "errors"

// maxLevels is how deep columns may nest. A file that nests for ever would
// not end a reader's recursion but its process.
const maxLevels = 100

var (
	errTree  = errors.New("the schema is no tree, or deeper than any")
	errEmpty = refusef("the schema has a struct without fields")
)

// checkFooter walks over all of a footer, and over the tree that its schema
// elements make, before arrow-go does: it takes memory for as many children as
// an element claims. It returns the footer without the logical types that are
// not known here, at which arrow-go would give up: such a column is served as it
// is stored.
func checkFooter(b []byte) ([]byte, error) {
	const schema = 2
	t := &thrift{b: b}
	for last := int64(0); !t.bad; {
		kind := t.field(&last)
		if kind == 0 && !t.bad {
			return t.known(), nil
		}
		if last != schema || kind != thriftList {
			t.skip(kind, 0)
		} else if err := checkTree(t); err != nil {
			return nil, err
		}
	}
	return nil, errThrift
}

// known returns the bytes without what is left out of them.
func (t *thrift) known() []byte {
	if len(t.unknown) == 0 {
		return t.b
	}
	var out []byte
	at := 0
	for _, part := range t.unknown {
		out, at = append(out, t.b[at:part[0]]...), part[1]
	}
	return append(out, t.b[at:]...)
}

// checkTree walks over the list of schema elements: a tree in depth-first
// order, in which each says how many children it has.
func checkTree(t *thrift) error {
	n, kind := t.list()
	if kind != thriftStruct || n > uint64(len(t.b)-t.pos) {
		return errThrift
	}
	var open []int64 // for each level, the children still to come
	for i := range n {
		for len(open) > 0 && open[len(open)-1] == 0 {
			open = open[:len(open)-1]
		}
		if i > 0 && len(open) == 0 {
			return errTree // a second root
		}
		children, typed := schemaElement(t)
		switch {
		case t.bad:
			return errThrift
		case children < 0 || children >= int64(n) || len(open) > maxLevels:
			return errTree
		case i > 0 && children == 0 && !typed:
			return errEmpty
		}
		if i > 0 {
			open[len(open)-1]--
		}
		open = append(open, children)
	}
	for _, left := range open {
		if left != 0 {
			return errTree
		}
	}
	return nil
}

// schemaElement reads a schema element and returns its num_children and
// whether it has a type, as leaves do.
func schemaElement(t *thrift) (children int64, typed bool) {
	const theType, numChildren, logicalType = 1, 5, 10
	for last := int64(0); !t.bad; {
		at := t.pos
		kind := t.field(&last)
		switch {
		case kind == 0:
			return children, typed
		case last == logicalType && kind == thriftStruct:
			if known := logicalKnown(t); !known && t.pos < len(t.b) && t.b[t.pos] == 0 {
				t.unknown = append(t.unknown, [2]int{at, t.pos}) // the last field: others do not depend on it
			}
		case last == numChildren:
			children = t.integer(kind)
		default:
			typed = typed || last == theType
			t.skip(kind, 1)
		}
	}
	return 0, false
}

// logicalKnown reads a logical type and tells whether arrow-go knows it.
func logicalKnown(t *thrift) (known bool) {
	const variant = 16 // the latest
	for last := int64(0); !t.bad; {
		kind := t.field(&last)
		if kind == 0 {
			return known
		}
		known = last >= 1 && last <= variant && last != 9
		t.skip(kind, 2)
	}
	return true
}

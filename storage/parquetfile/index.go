package parquetfile

import (
	"fmt"

	"github.com/headrace/headrace/storage/budget"
)

// maxIndex is the most bytes that the index of a column chunk's pages may have to be looked at.
const maxIndex = 4 << 20

// index reads where the pages of the chunk begin, if the file has an index that
// says so. It only says: every page that is reached by it and behind it is held
// against what its header and its levels tell.
func (l *leafReader) index() error {
	size := l.chunk.indexSize
	if l.indexed || size <= 0 || size > maxIndex || l.chunk.index < 0 || l.chunk.index > l.source.obj.Size()-size {
		return nil
	}
	l.indexed = true
	room := 2 * size
	if err := l.grant.ChargeHeap(budget.Scratch, room); err != nil {
		return err
	}
	defer l.grant.CreditHeap(budget.Scratch, room)
	b := make([]byte, size)
	if err := l.source.fill(b, l.chunk.index); err != nil {
		return err
	}
	if found := l.locations(&thrift{b: b}); len(found) > len(l.marks) {
		l.marks = found
	}
	return nil
}

// locations parses an index; nil if it makes no sense. Field 1 is a list of
// pages, each with its offset, size and first row.
func (l *leafReader) locations(t *thrift) (found []mark) {
	for last := int64(0); !t.bad; {
		kind := t.field(&last)
		if kind == 0 {
			break
		}
		if last != 1 || kind != thriftList {
			t.skip(kind, 0)
			continue
		}
		n, of := t.list()
		if of != thriftStruct || n > uint64(len(t.b)) {
			return nil
		}
		every := n/leafMarks + 1
		before := mark{at: l.chunk.start - 1, row: -1}
		for i := range n {
			m := mark{number: int(i) + l.chunk.dictPages, values: -1}
			m.at, m.row = location(t)
			if t.bad || m.at <= before.at || m.at >= l.chunk.end || m.row < before.row || m.row >= l.rows || i == 0 && m.row != 0 {
				return nil
			}
			if !l.nested {
				m.values = m.row
			}
			if i%every == 0 && m.row > before.row {
				found = append(found, m)
			}
			before = m
		}
	}
	if t.bad {
		return nil
	}
	return found
}

func location(t *thrift) (at, row int64) {
	for last := int64(0); !t.bad; {
		switch kind := t.field(&last); {
		case kind == 0:
			return at, row
		case last == 1 && kind == thriftI64:
			at = t.varint()
		case last == 3 && kind == thriftI64:
			row = t.varint()
		default:
			t.skip(kind, 1)
		}
	}
	return 0, 0
}

// errIndex is how a page is told that begins with another row than the index says.
func (l *leafReader) errIndex(says int64) error {
	return fmt.Errorf("page %d at %d begins with row %d, says the file's offset index, but with %d, say its pages", l.here.number, l.here.at, says, l.here.row)
}

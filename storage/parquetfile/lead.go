package parquetfile

import (
	"encoding/binary"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// maxLead is the most bytes that stand for values which are not read.
const maxLead = 8 << 20

// What comes before a field of a page header: its distance from the last one, and its type.
const (
	aNumber = 1<<4 | thriftI32
	aFalse  = 1<<4 | thriftFalse
	aV2     = 5<<4 | thriftStruct
)

// lead stands in for hidden values at the front of a reader: a data page, which
// ends in zeros. Its values are decoded and dropped. It lets the leaves of a
// struct, whose pages are full at different rows, begin with the same row.
type lead struct {
	head  []byte
	zeros int64
}

// length is the number of bytes of the page.
func (l lead) length() int64 { return int64(len(l.head)) + l.zeros }

// read reads at off, as far as the page goes.
func (l lead) read(p []byte, off int64) int {
	n := min(int64(len(p)), max(0, l.length()-off))
	if n > 0 {
		clear(p[:n])
		copy(p[:n], l.head[min(off, int64(len(l.head))):])
	}
	return int(n)
}

// zeroBits is how many bits a zero or an empty string has in encoding PLAIN; -1
// where zero is no value that can be decoded, as day 0 of INT96.
func zeroBits(leaf *schema.Column) int64 {
	switch leaf.PhysicalType() {
	case parquet.Types.Boolean:
		return 1
	case parquet.Types.ByteArray:
		return 8 * 4
	case parquet.Types.Int96:
		return -1
	}
	return 8 * fixedWidth(leaf.PhysicalType(), leaf.TypeLength())
}

// leadOf makes a page of n rows of a flat column, null if they can be.
func (l *leaf) leadOf(n int64) (lead, bool) {
	if n == 0 {
		return lead{}, true
	}
	nulls, zeros := int64(0), (n*l.zero+7)/8
	var defs []byte
	if l.defined > 0 {
		nulls, zeros = n, 0
		defs = append(binary.AppendUvarint(nil, uint64(n)<<1), 0)
		if l.defined > 0xff {
			defs = append(defs, 0)
		}
	}
	if n > maxLead || zeros > maxLead {
		return lead{}, false
	}
	size := int64(len(defs)) + zeros
	head := []byte{}
	for _, v := range []int64{pageDataV2, size, size} {
		head = binary.AppendVarint(append(head, aNumber), v)
	}
	head = append(head, aV2)
	for _, v := range []int64{n, nulls, n, int64(parquet.Encodings.Plain), int64(len(defs)), 0} {
		head = binary.AppendVarint(append(head, aNumber), v)
	}
	head = append(head, aFalse, 0, 0) // not compressed; the ends of both structs
	return lead{append(head, defs...), zeros}, true
}

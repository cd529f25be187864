package parquetfile

import (
	"encoding/binary"
	"errors"
)

// errThrift means that bytes are not one whole value of Thrift's compact protocol.
var errThrift = errors.New("malformed Thrift")

// maxDepth is how deep Thrift values may nest; Parquet's own need less than ten.
const maxDepth = 48

// The types of fields in Thrift's compact protocol; zero ends a struct. A
// boolean field carries its value in its type.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
	thriftUUID   = 13
)

// thrift reads Thrift's compact protocol. After bytes that make no sense it
// is bad and yields zeros. It never takes memory: a length is checked against
// the bytes that are there, so whatever it has walked over once can be given
// to a decoder that trusts lengths.
type thrift struct {
	b       []byte
	pos     int
	bad     bool
	unknown [][2]int // parts that say what is not known here
}

func (t *thrift) take(n uint64) []byte {
	if t.bad || n > uint64(len(t.b)-t.pos) {
		t.bad = true
		return nil
	}
	p := t.b[t.pos : t.pos+int(n)]
	t.pos += int(n)
	return p
}

func (t *thrift) byte() byte {
	if p := t.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (t *thrift) uvarint() uint64 {
	if t.bad {
		return 0
	}
	v, n := binary.Uvarint(t.b[t.pos:])
	if n <= 0 {
		t.bad = true
		return 0
	}
	t.pos += n
	return v
}

func (t *thrift) varint() int64 {
	u := t.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// field reads the head of a struct's next field. last is the field before it,
// at first 0, and becomes this one; the type 0 means that there is none.
func (t *thrift) field(last *int64) byte {
	head := t.byte()
	kind := head & 0x0f
	if kind == 0 {
		return 0
	}
	if delta := head >> 4; delta != 0 {
		*last += int64(delta)
	} else {
		*last = t.varint()
	}
	return kind
}

// integer reads the field's value if it is an integer that fits 32 bits.
func (t *thrift) integer(kind byte) int64 {
	if kind != thriftI16 && kind != thriftI32 {
		t.bad = true
		return 0
	}
	v := t.varint()
	if v != int64(int32(v)) {
		t.bad = true
	}
	return v
}

// skip passes over one value.
func (t *thrift) skip(kind byte, depth int) {
	if depth > maxDepth {
		t.bad = true
	}
	switch kind {
	case thriftTrue, thriftFalse:
	case thriftByte:
		t.byte()
	case thriftI16, thriftI32, thriftI64:
		t.uvarint()
	case thriftDouble:
		t.take(8)
	case thriftUUID:
		t.take(16)
	case thriftBinary:
		t.take(t.uvarint())
	case thriftList, thriftSet:
		t.skipList(depth)
	case thriftMap:
		t.skipMap(depth)
	case thriftStruct:
		for last := int64(0); !t.bad; {
			kind := t.field(&last)
			if kind == 0 {
				return
			}
			t.skip(kind, depth+1)
		}
	default:
		t.bad = true
	}
}

func (t *thrift) skipList(depth int) {
	n, kind := t.list()
	t.skipElements(n, []byte{kind}, depth)
}

// list reads the head of a list.
func (t *thrift) list() (n uint64, kind byte) {
	head := t.byte()
	n, kind = uint64(head>>4), head&0x0f
	if n == 15 {
		n = t.uvarint()
	}
	return n, kind
}

func (t *thrift) skipMap(depth int) {
	n := t.uvarint()
	if n == 0 {
		return
	}
	kinds := t.byte()
	t.skipElements(n, []byte{kinds >> 4, kinds & 0x0f}, depth)
}

// skipElements passes over n groups of values. Each value has a byte or more,
// also a boolean, which here has a byte of its own.
func (t *thrift) skipElements(n uint64, kinds []byte, depth int) {
	if n > uint64(len(t.b)-t.pos) {
		t.bad = true
	}
	for ; n > 0 && !t.bad; n-- {
		for _, kind := range kinds {
			if kind == thriftTrue || kind == thriftFalse {
				kind = thriftByte
			}
			t.skip(kind, depth+1)
		}
	}
}

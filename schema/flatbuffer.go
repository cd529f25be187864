package schema

import "encoding/binary"

// A flatbuffer is tables that point at each other, and nothing but decency
// keeps two pointers from the same target: thirty levels of fields with two
// pointers each are a thousand million fields in a kilobyte. So before arrow-go
// unfolds a schema, walk it and count.

// Slots of the tables of an IPC schema message.
const (
	slotMessageHeaderType = 1
	slotMessageHeader     = 2
	slotMessageBodyLength = 3
	slotMessageMetadata   = 4
	slotSchemaFields      = 1
	slotSchemaMetadata    = 2
	slotFieldName         = 0
	slotFieldTypeType     = 2
	slotFieldType         = 3
	slotFieldChildren     = 5
	slotFieldMetadata     = 6
	slotPairKey           = 0
	slotPairValue         = 1
	slotUnionCodes        = 1
)

const (
	headerIsSchema = 1
	typeIsUnion    = 14
)

// flatbuffer walks a buffer. left is how many bytes of tables and strings may
// still be seen: more than the buffer has means that some are seen again and
// again.
type flatbuffer struct {
	b    []byte
	left int
	bad  bool
}

// checkMessage walks the message and fails unless it is a schema whose
// unfolded size is about the message's own.
func checkMessage(message []byte) error {
	// Strings and small tables may well be shared by a writer that is clever.
	f := &flatbuffer{b: message, left: 8*len(message) + 1024}
	root := f.target(0)
	header := f.slot(root, slotMessageHeader)
	kind, body := f.slot(root, slotMessageHeaderType), f.slot(root, slotMessageBodyLength)
	if header == 0 || kind == 0 || f.uint8(kind) != headerIsSchema || body != 0 && f.uint64(body) != 0 {
		return ErrMessage
	}
	s := f.target(header)
	f.vector(f.slot(s, slotSchemaFields), func(at int) { f.field(at, 0) })
	f.vector(f.slot(s, slotSchemaMetadata), f.pair)
	f.vector(f.slot(root, slotMessageMetadata), f.pair)
	if f.bad {
		return ErrMessage
	}
	return nil
}

func (f *flatbuffer) field(at, depth int) {
	if depth > 64 {
		f.bad = true
		return
	}
	f.spend(16)
	f.text(f.slot(at, slotFieldName))
	if kind, p := f.slot(at, slotFieldTypeType), f.slot(at, slotFieldType); kind != 0 && p != 0 && f.uint8(kind) == typeIsUnion {
		f.length(f.slot(f.target(p), slotUnionCodes))
	}
	f.vector(f.slot(at, slotFieldChildren), func(at int) { f.field(at, depth+1) })
	f.vector(f.slot(at, slotFieldMetadata), f.pair)
}

func (f *flatbuffer) pair(at int) {
	f.spend(8)
	f.text(f.slot(at, slotPairKey))
	f.text(f.slot(at, slotPairValue))
}

// text walks over the string that the pointer at p leads to; 0 is no pointer.
func (f *flatbuffer) text(p int) {
	if p == 0 {
		return
	}
	at := f.target(p)
	n := int(f.uint32(at))
	f.spend(n)
	if n > len(f.b)-at {
		f.bad = true
	}
}

// vector calls visit for every table of the vector that the pointer at p leads to.
func (f *flatbuffer) vector(p int, visit func(at int)) {
	n := f.length(p)
	for i := 0; i < n && !f.bad; i++ {
		visit(f.target(f.target(p) + 4 + 4*i))
	}
}

// length returns the length of a vector of 4-byte elements; 0 if there is none.
func (f *flatbuffer) length(p int) int {
	if p == 0 {
		return 0
	}
	n := int(f.uint32(f.target(p)))
	if n > len(f.b)/4 {
		f.bad = true
		return 0
	}
	return n
}

// slot returns where the table at keeps the given slot, 0 if it does not.
func (f *flatbuffer) slot(at, slot int) int {
	vtable := at - int(int32(f.uint32(at)))
	// A table of odd length has half an entry at its end, which arrow-go reads.
	if entry := 4 + 2*slot; entry < int(f.uint16(vtable)) {
		if offset := int(f.uint16(vtable + entry)); offset != 0 {
			return at + offset
		}
	}
	return 0
}

// target follows the pointer at p.
func (f *flatbuffer) target(p int) int { return p + int(f.uint32(p)) }

func (f *flatbuffer) spend(n int) {
	if f.left -= n; f.left < 0 {
		f.bad = true
	}
}

func (f *flatbuffer) bytes(at, n int) []byte {
	if f.bad || at < 0 || at > len(f.b)-n {
		f.bad = true
		return make([]byte, n)
	}
	return f.b[at : at+n]
}

func (f *flatbuffer) uint8(at int) byte    { return f.bytes(at, 1)[0] }
func (f *flatbuffer) uint16(at int) uint16 { return binary.LittleEndian.Uint16(f.bytes(at, 2)) }
func (f *flatbuffer) uint32(at int) uint32 { return binary.LittleEndian.Uint32(f.bytes(at, 4)) }
func (f *flatbuffer) uint64(at int) uint64 { return binary.LittleEndian.Uint64(f.bytes(at, 8)) }

package arrowfile

import (
	"encoding/binary"
)

// flat is a flatbuffer that nobody has verified. Offsets in it are followed
// only after they are found to lie inside; the first fault sticks in err and
// everything read after it is zero, so that callers check once at the end.
//
// Offsets may point to the same bytes again and again, which lets a few hundred
// bytes describe a tree of billions of nodes. Every visit therefore spends from
// a budget a little above what a buffer without shared parts can need.
type flat struct {
	b    []byte
	left int
	err  error
}

func newFlat(b []byte) *flat { return &flat{b: b, left: 4*len(b) + 4096} }

// table is one table of a flatbuffer; the zero table is absent and yields
// defaults.
type table struct {
	f      *flat
	pos    int
	vtable []byte
}

func (f *flat) fail(cause string) {
	if f.err == nil {
		f.err = corruptf("%s", cause)
	}
}

// bytes returns n bytes from pos, nil after a fault.
func (f *flat) bytes(pos, n int) []byte {
	if f.err != nil {
		return nil
	}
	if pos < 0 || n < 0 || pos > len(f.b) || n > len(f.b)-pos {
		f.fail("metadata points outside of itself")
		return nil
	}
	if f.left -= n; f.left < 0 {
		f.fail("metadata refers to the same bytes over and over")
		return nil
	}
	return f.b[pos : pos+n]
}

func (f *flat) u16(pos int) uint16 {
	if b := f.bytes(pos, 2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (f *flat) u32(pos int) uint32 {
	if b := f.bytes(pos, 4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (f *flat) u64(pos int) uint64 {
	if b := f.bytes(pos, 8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// follow returns where the offset stored at pos leads.
func (f *flat) follow(pos int) int {
	o := f.u32(pos)
	if int64(o) > int64(len(f.b)) {
		f.fail("metadata points outside of itself")
		return 0
	}
	return pos + int(o)
}

// root returns the outermost table.
func (f *flat) root() table { return f.table(f.follow(0)) }

func (f *flat) table(pos int) table {
	at := int64(pos) - int64(int32(f.u32(pos)))
	if at < 0 || at > int64(len(f.b)) {
		f.fail("metadata points outside of itself")
		return table{}
	}
	vtable := f.bytes(int(at), int(f.u16(int(at))))
	if len(vtable) < 4 {
		f.fail("metadata has a table without a layout")
	}
	if f.err != nil {
		return table{}
	}
	return table{f: f, pos: pos, vtable: vtable}
}

func (t table) present() bool { return t.f != nil }

// field returns where the value of a slot is stored, 0 if it is absent.
func (t table) field(slot int) int {
	at := 4 + 2*slot
	if t.f == nil || at+2 > len(t.vtable) {
		return 0
	}
	o := binary.LittleEndian.Uint16(t.vtable[at:])
	if o == 0 {
		return 0
	}
	return t.pos + int(o)
}

func (t table) bool(slot int) bool { return t.u8(slot) != 0 }

func (t table) u8(slot int) uint8 {
	if pos := t.field(slot); pos > 0 {
		if b := t.f.bytes(pos, 1); b != nil {
			return b[0]
		}
	}
	return 0
}

func (t table) i16(slot int, missing int16) int16 {
	if pos := t.field(slot); pos > 0 {
		return int16(t.f.u16(pos))
	}
	return missing
}

func (t table) i32(slot int, missing int32) int32 {
	if pos := t.field(slot); pos > 0 {
		return int32(t.f.u32(pos))
	}
	return missing
}

func (t table) i64(slot int) int64 {
	if pos := t.field(slot); pos > 0 {
		return int64(t.f.u64(pos))
	}
	return 0
}

func (t table) table(slot int) table {
	if pos := t.field(slot); pos > 0 {
		return t.f.table(t.f.follow(pos))
	}
	return table{}
}

// vector returns the bytes and the count of a vector of elements of width
// bytes each.
func (t table) vector(slot, width int) (data []byte, n int) {
	data, n, _ = t.vectorAt(slot, width)
	return data, n
}

func (t table) vectorAt(slot, width int) (data []byte, n, pos int) {
	at := t.field(slot)
	if at == 0 {
		return nil, 0, 0
	}
	at = t.f.follow(at)
	count := int64(t.f.u32(at))
	if count > int64(len(t.f.b)/width) {
		t.f.fail("metadata counts more elements than it has bytes")
		return nil, 0, 0
	}
	data = t.f.bytes(at+4, int(count)*width)
	if t.f.err != nil {
		return nil, 0, 0
	}
	return data, int(count), at + 4
}

func (t table) string(slot int) string {
	b, _ := t.vector(slot, 1)
	return string(b)
}

// tables returns a vector of tables.
func (t table) tables(slot int) []table {
	_, n, pos := t.vectorAt(slot, 4)
	if n == 0 {
		return nil
	}
	out := make([]table, n)
	for i := range out {
		out[i] = t.f.table(t.f.follow(pos + 4*i))
	}
	if t.f.err != nil {
		return nil
	}
	return out
}

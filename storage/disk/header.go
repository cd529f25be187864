package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/headrace/headrace/storage/cache"
)

// A block's file is an Arrow IPC file that others can read, too. Its first message, the schema, is a flatbuffer, which
// begins with the place of its root table. The header of ours lies between the two, where nobody else looks, so that it
// always has the same place:
//
//	 0  ARROW1, two zeros, the mark that begins a message
//	12  bytes from 16 to the end of the message
//	16  the place of the root table, four zeros
//	24  mark
//	40  CRC-32C of the head with zeros here
//	44  bytes of the fields
//	48  fields: varints, and texts behind their lengths; then the schema's flatbuffer
//
// The head ends on a multiple of 64 and is covered by its own checksum, all that follows by one for each MiB.
const (
	begin    = "ARROW1\x00\x00\xff\xff\xff\xff"
	mark     = "headrace block 1"
	lengthAt = len(begin)
	rootAt   = lengthAt + 4
	markAt   = rootAt + 8
	sumAt    = markAt + len(mark)
	countAt  = sumAt + 4
	fieldsAt = countAt + 4

	maxHead = 8 << 20 // bytes
	grain   = 1 << 20 // bytes that one checksum covers
)

// errDamaged means that a file of ours is not what was written.
var errDamaged = errors.New("damaged block")

func damagedf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errDamaged, fmt.Sprintf(format, args...))
}

// castagnoli has instructions of its own in processors, and finds any error within 32 bits of a MiB for certain.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is what a file says of itself.
type header struct {
	version string // of whoever wrote it
	plan    string // that it was loaded for
	key     cache.Key
	columns []string // names, as cache.Columns has them
	rest    int64    // bytes behind the head
	sums    []uint32
	frames  []stored
	size    int64 // bytes of the head
}

// stored is a frame: of each column, its arrays in pre-order.
type stored struct {
	rows    int64
	columns [][]node
}

// node is one array: its buffers as arrow's array data has them, those that are absent included.
type node struct {
	rows    int64
	nulls   int64 // -1: unknown
	buffers []span
}

// span is bytes behind the head.
type span struct{ off, len int64 }

// bytes is what a file with the header has.
func (h *header) bytes() int64 { return h.size + h.rest }

// pieces is how many checksums so many bytes have.
func pieces(rest int64) int64 { return (rest + grain - 1) / grain }

// marshal returns the head of a file, which has a schema's message.
func (h *header) marshal(schema []byte) ([]byte, error) {
	fields := h.fields()
	shift := (fieldsAt - rootAt + len(fields) + 63) &^ 63 // the schema's own places are relative, and 64 keeps their alignment
	end := (rootAt + shift + len(schema) + 63) &^ 63
	if end > maxHead {
		return nil, fmt.Errorf("a head of %d bytes", end)
	}
	head := make([]byte, end)
	copy(head, begin)
	le := binary.LittleEndian
	le.PutUint32(head[lengthAt:], uint32(end-rootAt))
	le.PutUint32(head[rootAt:], uint32(shift)+le.Uint32(schema))
	copy(head[markAt:], mark)
	le.PutUint32(head[countAt:], uint32(len(fields)))
	copy(head[fieldsAt:], fields)
	copy(head[rootAt+shift:], schema)
	le.PutUint32(head[sumAt:], crc32.Checksum(head, castagnoli))
	h.size = int64(end)
	return head, nil
}

func (h *header) fields() (b []byte) {
	b = text(b, h.version)
	b = text(b, h.plan)
	b = text(b, h.key.Object)
	b = number(b, int64(h.key.Segment))
	b = number(b, h.key.From)
	b = number(b, int64(len(h.columns)))
	for _, name := range h.columns {
		b = text(b, name)
	}
	b = number(b, h.rest)
	for _, sum := range h.sums {
		b = binary.LittleEndian.AppendUint32(b, sum)
	}
	b = number(b, int64(len(h.frames)))
	for _, f := range h.frames {
		b = number(b, f.rows)
		for _, nodes := range f.columns {
			b = number(b, int64(len(nodes)))
			for _, n := range nodes {
				b = n.append(b)
			}
		}
	}
	return b
}

func (n node) append(b []byte) []byte {
	b = number(b, n.rows)
	b = number(b, n.nulls+1)
	b = number(b, int64(len(n.buffers)))
	for _, s := range n.buffers {
		b = number(b, s.off)
		b = number(b, s.len)
	}
	return b
}

func number(b []byte, n int64) []byte { return binary.AppendUvarint(b, uint64(n)) }

func text(b []byte, s string) []byte { return append(number(b, int64(len(s))), s...) }

// ours tells whether a file that has such a name has our mark, as far as damage left it, or has nothing where that should
// be: a crash leaves such files.
func ours(r io.ReaderAt) bool {
	var b [sumAt]byte
	n, err := r.ReadAt(b[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return false
	}
	const enough = 12 // bytes of the mark
	same := 0
	for i := range mark {
		if b[markAt+i] == mark[i] {
			same++
		}
	}
	return same >= enough || b == [sumAt]byte{} || n < sumAt && begun(b[:n])
}

// begun tells whether bytes are the first of a head.
func begun(b []byte) bool {
	if len(b) > markAt && string(b[markAt:]) != mark[:len(b)-markAt] {
		return false
	}
	n := min(len(b), len(begin))
	return string(b[:n]) == begin[:n]
}

// readHeader reads and checks the head of a file of so many bytes.
func readHeader(r io.ReaderAt, size int64) (*header, error) {
	const usual = 8 << 10 // bytes, enough for most
	head := make([]byte, min(usual, size))
	if _, err := r.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(head) < fieldsAt || string(head[:lengthAt]) != begin || string(head[markAt:sumAt]) != mark {
		return nil, damagedf("there is no header")
	}
	end := int64(rootAt) + int64(binary.LittleEndian.Uint32(head[lengthAt:]))
	if end > maxHead || end > size || end < int64(fieldsAt) {
		return nil, damagedf("a head of %d bytes in a file of %d", end, size)
	}
	if have := int64(len(head)); end > have {
		head = append(make([]byte, 0, end), head...)[:end]
		if _, err := r.ReadAt(head[have:], have); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
	h, err := parse(head[:end])
	if err == nil && h.bytes() != size {
		err = damagedf("%d bytes of %d", size, h.bytes())
	}
	return h, err
}

// parse checks and reads a whole head. Everything in it is of bounded size: lengths are those of bytes that are there.
func parse(head []byte) (*header, error) {
	want := binary.LittleEndian.Uint32(head[sumAt:])
	sum := crc32.Update(0, castagnoli, head[:sumAt])
	sum = crc32.Update(sum, castagnoli, []byte{0, 0, 0, 0})
	if crc32.Update(sum, castagnoli, head[countAt:]) != want {
		return nil, damagedf("the checksum of the head differs")
	}
	n := int64(binary.LittleEndian.Uint32(head[countAt:]))
	if n > int64(len(head)-fieldsAt) {
		return nil, damagedf("%d bytes of fields in a head of %d", n, len(head))
	}
	f := &fields{b: head[fieldsAt:][:n]}
	h := &header{size: int64(len(head))}
	h.version, h.plan, h.key.Object = f.text(), f.text(), f.text()
	h.key.Segment, h.key.From = int(f.number()), f.number()
	h.columns = make([]string, f.count(1))
	for i := range h.columns {
		h.columns[i] = f.text()
	}
	if h.rest = f.number(); pieces(h.rest) > int64(len(f.b)/4) {
		f.fail()
	}
	if f.err != nil {
		return nil, f.err
	}
	for range pieces(h.rest) {
		h.sums = append(h.sums, f.sum())
	}
	h.frames = make([]stored, f.count(1))
	for i := range h.frames {
		h.frames[i] = f.frame(len(h.columns), h.rest)
	}
	return h, f.err
}

// fields reads what is there; after the first fault all is zero.
type fields struct {
	b   []byte
	err error
}

func (f *fields) fail() {
	f.b = nil
	if f.err == nil {
		f.err = damagedf("the head contradicts itself")
	}
}

// number is not negative, and far from overflow.
func (f *fields) number() int64 {
	v, n := binary.Uvarint(f.b)
	if n <= 0 || v > 1<<50 {
		f.fail()
		return 0
	}
	f.b = f.b[n:]
	return int64(v)
}

// count is of things that take at least so many bytes each.
func (f *fields) count(least int64) int64 {
	n := f.number()
	if n > int64(len(f.b))/least {
		f.fail()
		return 0
	}
	return n
}

func (f *fields) text() string {
	n := f.count(1)
	s := string(f.b[:n])
	f.b = f.b[n:]
	return s
}

func (f *fields) sum() uint32 {
	if len(f.b) < 4 {
		f.fail()
		return 0
	}
	v := binary.LittleEndian.Uint32(f.b)
	f.b = f.b[4:]
	return v
}

func (f *fields) frame(columns int, rest int64) (s stored) {
	s.rows = f.number()
	for range columns {
		const least = 3 // of a node
		nodes := make([]node, f.count(least))
		for i := range nodes {
			nodes[i] = f.node(rest)
		}
		if f.err != nil {
			return stored{}
		}
		s.columns = append(s.columns, nodes)
	}
	return s
}

func (f *fields) node(rest int64) (n node) {
	n.rows, n.nulls = f.number(), f.number()-1
	n.buffers = make([]span, f.count(2))
	for i := range n.buffers {
		s := span{f.number(), f.number()}
		if s.off > rest || s.len > rest-s.off {
			f.fail()
		}
		n.buffers[i] = s
	}
	return n
}

package arrowfile

import (
	"cmp"
	"context"
	"encoding/binary"

	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/budget"
)

const (
	maxMessage   = 16 << 20 // bytes of one message's metadata
	continuation = 0xFFFFFFFF
	readAhead    = 8 << 10
)

// The numbers of the union of message headers, and of metadata versions, in the
// format's schema definition.
const (
	headerSchema     = 1
	headerDictionary = 2
	headerBatch      = 3

	version4 = 3
	version5 = 4
)

func le32(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }
func le64(b []byte) int64  { return int64(binary.LittleEndian.Uint64(b)) }

// Place is where a message lies in its object.
type Place struct {
	Offset int64 // of the length prefix
	Meta   int32 // bytes of prefix, metadata and padding; the body follows them
	Body   int64 // bytes of the body
}

func (p Place) body() int64 { return p.Offset + int64(p.Meta) }
func (p Place) end() int64  { return p.body() + p.Body }

// window reads an object piecewise through one small buffer.
type window struct {
	obj  *bucket.Object
	off  int64
	buf  []byte
	step int   // bytes to read at once at least; 0 stands for readAhead
	room int64 // bytes that may be held beyond those that are needed
}

// widen takes memory for a window on an object in a store, where each read is a
// round trip: without it less is read at a time. The function it returns gives
// the memory back.
func (w *window) widen(l *budget.Ledger) (narrow func()) {
	w.room = scant
	if l == nil || !w.obj.Remote() {
		return func() {}
	}
	g, err := l.Try(room)
	if err != nil {
		return func() {}
	}
	if g.ChargeHeap(budget.Input, room) != nil {
		g.Close()
		return func() {}
	}
	w.room = room
	return func() {
		g.CreditHeap(budget.Input, room)
		g.Close()
	}
}

// follow takes the next message to be about as long as the one at p. Only that
// tells where the one behind it is, so each is a round trip in a store: several
// that are short are read with one.
func (w *window) follow(p Place) {
	w.step = readAhead
	if w.obj.Remote() && p.end()-p.Offset <= w.room/8 {
		w.step = int(w.room)
	}
}

// bytes returns n bytes from off; they are valid until the next call. The
// caller has made sure that the object is long enough and n not too large.
func (w *window) bytes(ctx context.Context, off int64, n int) ([]byte, error) {
	if at := off - w.off; at >= 0 && at+int64(n) <= int64(len(w.buf)) {
		return w.buf[at : at+int64(n)], nil
	}
	want := int(min(int64(max(n, cmp.Or(w.step, readAhead))), w.obj.Size()-off))
	if cap(w.buf) < want {
		w.buf = make([]byte, want)
	}
	w.buf, w.off = w.buf[:want], off
	if err := w.obj.ReadAt(ctx, w.buf, off); err != nil {
		w.buf = w.buf[:0]
		return nil, err
	}
	return w.buf[:n], nil
}

// message is the outermost table of a message.
type message struct {
	place   Place
	raw     []byte // prefix and metadata as stored
	version int16
	kind    uint8
	header  table
}

// message reads the metadata of the message at off. A nil message is the mark
// that ends a stream. The message is valid until the next use of w.
func (w *window) message(ctx context.Context, off int64) (*message, error) {
	prefix, length, err := w.prefix(ctx, off)
	if err != nil || length == 0 {
		return nil, err
	}
	raw, err := w.bytes(ctx, off, prefix+length)
	if err != nil {
		return nil, err
	}
	f := newFlat(raw[prefix:])
	t := f.root()
	m := &message{
		place:   Place{Offset: off, Meta: int32(prefix + length), Body: t.i64(3)},
		raw:     raw,
		version: t.i16(0, 0),
		kind:    t.u8(1),
		header:  t.table(2),
	}
	if f.err != nil {
		return nil, f.err
	}
	if err := checkVersion(m.version); err != nil {
		return nil, err
	}
	if !m.header.present() {
		return nil, corruptf("a message without a header")
	}
	if m.place.Body < 0 || m.place.Body > w.obj.Size()-m.place.body() {
		return nil, corruptf("it ends inside a message: cut short, or still being written")
	}
	return m, nil
}

// prefix reads what stands before the metadata: its length, and in files
// written since format version 0.15 a mark before that. It returns the bytes
// that both take.
func (w *window) prefix(ctx context.Context, off int64) (prefix, length int, err error) {
	rest := w.obj.Size() - off
	if rest < 4 {
		return 0, 0, corruptf("it ends inside a message: cut short, or still being written")
	}
	b, err := w.bytes(ctx, off, int(min(rest, 8)))
	if err != nil {
		return 0, 0, err
	}
	n := le32(b)
	prefix = 4
	if n == continuation {
		if len(b) < 8 {
			return 0, 0, corruptf("it ends inside a message: cut short, or still being written")
		}
		n, prefix = le32(b[4:]), 8
	}
	switch left := rest - int64(prefix); {
	case int32(n) < 0:
		return 0, 0, corruptf("a message of negative length")
	case int64(n) > left:
		return 0, 0, corruptf("it ends inside a message: cut short, or still being written")
	case n > maxMessage:
		return 0, 0, unsupportedf("a message with more than %d bytes of metadata", maxMessage)
	}
	return prefix, int(n), nil
}

func checkVersion(v int16) error {
	if v != version4 && v != version5 {
		return unsupportedf("metadata version V%d, only V4 and V5 are", int(v)+1)
	}
	return nil
}

// codec is how the buffers of a body are compressed.
type codec int8

const (
	uncompressed codec = iota
	lz4Frame
	zstdFrame
)

// node is what a batch says of one array.
type node struct{ rows, nulls int64 }

// span is a run of bytes of a body.
type span struct{ off, len int64 }

// batch is the header of a record batch, or of the batch inside a dictionary.
type batch struct {
	rows     int64
	nodes    []node
	buffers  []span
	variadic []int64 // numbers of data buffers, one for each array of views
	codec    codec
	version  int16
}

// dictionaryHead is the header of a dictionary message around its batch.
type dictionaryHead struct {
	id    int64
	delta bool
	batch *batch
}

func (m *message) dictionary() (*dictionaryHead, error) {
	if m.kind != headerDictionary {
		return nil, corruptf("a message of another kind where a dictionary should be")
	}
	b, err := readBatch(m.header.table(1), m.version, m.place.Body)
	if err != nil {
		return nil, err
	}
	d := &dictionaryHead{id: m.header.i64(0), delta: m.header.bool(2), batch: b}
	return d, m.header.f.err
}

func (m *message) batch() (*batch, error) {
	if m.kind != headerBatch {
		return nil, corruptf("a message of another kind where a record batch should be")
	}
	return readBatch(m.header, m.version, m.place.Body)
}

func readBatch(t table, version int16, body int64) (*batch, error) {
	if !t.present() {
		return nil, corruptf("a dictionary without values")
	}
	b := &batch{rows: t.i64(0), version: version}
	data, n := t.vector(1, 16)
	b.nodes = make([]node, n)
	for i := range b.nodes {
		b.nodes[i] = node{le64(data[16*i:]), le64(data[16*i+8:])}
	}
	data, n = t.vector(2, 16)
	b.buffers = make([]span, n)
	for i := range b.buffers {
		b.buffers[i] = span{le64(data[16*i:]), le64(data[16*i+8:])}
	}
	data, n = t.vector(4, 8)
	b.variadic = make([]int64, n)
	for i := range b.variadic {
		b.variadic[i] = le64(data[8*i:])
	}
	if err := b.readCodec(t.table(3)); err != nil {
		return nil, err
	}
	if t.f.err != nil {
		return nil, t.f.err
	}
	return b, b.check(body)
}

func (b *batch) readCodec(t table) error {
	if !t.present() {
		return nil
	}
	c, method := t.u8(0), t.u8(1)
	if t.f.err != nil {
		return t.f.err
	}
	if c > 1 || method != 0 {
		return unsupportedf("body compression codec %d, method %d", c, method)
	}
	b.codec = lz4Frame + codec(c)
	return nil
}

// maxRows is more than any batch can hold; it keeps sums of rows far from
// overflow whatever a file claims.
const maxRows = 1 << 40

// check refuses numbers that cannot be true whatever the schema is.
func (b *batch) check(body int64) error {
	if b.rows < 0 || b.rows > maxRows {
		return corruptf("a batch of %d rows", b.rows)
	}
	for _, n := range b.nodes {
		if n.rows < 0 || n.rows > maxRows || n.nulls < -1 || n.nulls > n.rows {
			return corruptf("an array of %d rows with %d nulls", n.rows, n.nulls)
		}
	}
	for _, s := range b.buffers {
		if s.len == 0 {
			continue // some writers let it point anywhere
		}
		if s.len < 0 || s.off < 0 || s.off > body || s.len > body-s.off {
			return corruptf("a buffer outside of its message: %d bytes at %d of %d", s.len, s.off, body)
		}
	}
	return nil
}

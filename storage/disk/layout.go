package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/message"
)

const (
	align = 64 // where buffers begin, in bytes
	magic = "ARROW1"
)

var zeros [align]byte

// layout is a block's file behind the head, as runs of bytes, most of them in frames.
type layout struct {
	runs   [][]byte
	size   int64
	frames []stored
	blocks []place // of the messages
	writer message.Writer

	// of the frame at hand
	body     int64 // where its body begins
	buffers  []span
	nodes    []node
	variadic []int64
}

// place is where a message lies: bytes behind the head, of its metadata and of its body.
type place struct{ at, meta, body int64 }

// errNotPlain means that an array is not as frames hold them.
var errNotPlain = errors.New("the array begins behind an offset, or is encoded")

// layOut lays out frames of a schema. It copies no rows: the layout is good as long as the frames are.
func layOut(frames []*frame.Lease) (*layout, error) {
	l := &layout{}
	for _, f := range frames {
		if err := l.frame(f.Batch()); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (l *layout) put(b []byte) {
	l.runs = append(l.runs, b)
	l.size += int64(len(b))
}

// frame adds the message of a batch.
func (l *layout) frame(batch arrow.RecordBatch) error {
	s := stored{rows: batch.NumRows()}
	from := len(l.runs)
	l.runs = append(l.runs, nil) // for the metadata, whose size nothing in the body depends on
	l.buffers, l.nodes, l.variadic, l.body = l.buffers[:0], l.nodes[:0], l.variadic[:0], l.size
	for i, column := range batch.Columns() {
		first := len(l.nodes)
		if err := l.array(column.Data()); err != nil {
			return fmt.Errorf("column %q: %w", batch.ColumnName(i), err)
		}
		s.columns = append(s.columns, append([]node(nil), l.nodes[first:]...))
	}
	body := l.size - l.body
	meta := l.writer.Write(message.Batch{
		Rows: batch.NumRows(), Nodes: len(l.nodes), Node: func(i int) (int, int) { return int(l.nodes[i].rows), int(l.nodes[i].nulls) },
		Buffers: len(l.buffers), Buffer: func(i int) (int, int) { return int(l.buffers[i].off), int(l.buffers[i].len) },
		Variadic: l.variadic, Body: int(body), Codec: message.Uncompressed,
	})
	meta = enclosed(meta)
	l.runs[from] = meta
	l.size += int64(len(meta))
	for _, nodes := range s.columns {
		for _, n := range nodes {
			for i := range n.buffers {
				n.buffers[i].off += int64(len(meta))
			}
		}
	}
	l.blocks = append(l.blocks, place{l.body, int64(len(meta)), body})
	l.frames = append(l.frames, s)
	return nil
}

// enclosed is a message's metadata with what stands before it, padded so that the body begins on a border.
func enclosed(meta []byte) []byte {
	const prefix = 8
	n := (prefix + len(meta) + align - 1) &^ (align - 1)
	b := make([]byte, n)
	binary.LittleEndian.PutUint32(b, 0xffffffff)
	binary.LittleEndian.PutUint32(b[4:], uint32(n-prefix))
	copy(b[prefix:], meta)
	return b
}

// array adds an array and those below it.
func (l *layout) array(d arrow.ArrayData) error {
	t := plain(d.DataType())
	if d.Offset() != 0 || t.ID() == arrow.DICTIONARY {
		return errNotPlain
	}
	n := node{rows: int64(d.Len()), nulls: int64(d.NullN()), buffers: make([]span, len(d.Buffers()))}
	for i, b := range d.Buffers() {
		var data []byte
		if b != nil {
			data = b.Bytes()
		}
		n.buffers[i] = span{l.size, int64(len(data))}
		if i > 0 || validity(t) {
			l.buffers = append(l.buffers, span{l.size - l.body, int64(len(data))})
		}
		if len(data) > 0 {
			l.put(data)
			l.put(zeros[:-len(data)&(align-1)])
		}
	}
	if t.ID() == arrow.STRING_VIEW || t.ID() == arrow.BINARY_VIEW {
		l.variadic = append(l.variadic, int64(len(d.Buffers())-2))
	}
	l.nodes = append(l.nodes, n)
	for _, child := range d.Children() {
		if err := l.array(child); err != nil {
			return err
		}
	}
	return nil
}

// plain looks through extension types, which only say what their storage means.
func plain(t arrow.DataType) arrow.DataType {
	for t.ID() == arrow.EXTENSION {
		t = t.(arrow.ExtensionType).StorageType()
	}
	return t
}

// validity tells whether the format has a bitmap for arrays of a type.
func validity(t arrow.DataType) bool {
	switch t.ID() {
	case arrow.NULL, arrow.SPARSE_UNION, arrow.DENSE_UNION, arrow.RUN_END_ENCODED:
		return false
	}
	return true
}

// finish adds what ends a file whose head has so many bytes.
func (l *layout) finish(head int64, schema []byte) {
	footer := footer(schema, l.blocks, head)
	end := []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}
	end = append(end, footer...)
	end = binary.LittleEndian.AppendUint32(end, uint32(len(footer)))
	l.put(append(end, magic...))
}

// emit writes all.
func (l *layout) emit(w io.Writer) error {
	for _, run := range l.runs {
		if _, err := w.Write(run); err != nil {
			return err
		}
	}
	return nil
}

// summer makes checksums of what is written to it.
type summer struct {
	sums []uint32
	left int // bytes that the last one still is for
}

func (s *summer) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		if s.left == 0 {
			s.sums, s.left = append(s.sums, 0), grain
		}
		n := min(s.left, len(rest))
		last := &s.sums[len(s.sums)-1]
		*last = crc32.Update(*last, castagnoli, rest[:n])
		rest, s.left = rest[n:], s.left-n
	}
	return len(b), nil
}

// schemaMessage is the flatbuffer of a schema's message.
func schemaMessage(s *arrow.Schema) ([]byte, error) {
	var b bytes.Buffer
	w := ipc.NewWriter(&b, ipc.WithSchema(s))
	if err := w.Close(); err != nil {
		return nil, err
	}
	const prefix = 8
	n := binary.LittleEndian.Uint32(b.Bytes()[4:])
	return b.Bytes()[prefix : prefix+n], nil
}

// footer lists the messages of a file. The schema in it is that of the schema's message, which it holds whole.
func footer(schema []byte, blocks []place, head int64) []byte {
	const (
		slotHeader = 2 // of Message

		slotVersion = 0 // of Footer
		slotSchema  = 1
		slotBatches = 3
		footerSlots = 5
		versionV5   = 4
	)
	var root flatbuffers.Table
	root.Bytes, root.Pos = schema, flatbuffers.GetUOffsetT(schema)
	at := root.Indirect(root.Pos + flatbuffers.UOffsetT(root.Offset(4+2*slotHeader)))

	b := flatbuffers.NewBuilder(len(schema) + 256)
	b.StartVector(1, len(schema), 8)
	for i := len(schema) - 1; i >= 0; i-- {
		b.PlaceByte(schema[i])
	}
	inside := b.Offset() - at // places count from the end
	b.EndVector(len(schema))
	b.StartVector(24, len(blocks), 8)
	for i := len(blocks) - 1; i >= 0; i-- {
		b.Prep(8, 24)
		b.PrependInt64(blocks[i].body)
		b.Pad(4)
		b.PrependInt32(int32(blocks[i].meta))
		b.PrependInt64(head + blocks[i].at)
	}
	batches := b.EndVector(len(blocks))
	b.StartObject(footerSlots)
	b.PrependUOffsetTSlot(slotBatches, batches, 0)
	b.PrependUOffsetTSlot(slotSchema, inside, 0)
	b.PrependInt16Slot(slotVersion, versionV5, 0)
	b.Finish(b.EndObject())
	return b.FinishedBytes()
}

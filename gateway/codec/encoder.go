package codec

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"google.golang.org/grpc/mem"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/message"
)

// Errors of this package; memory that cannot be had is budget.ErrExhausted.
var (
	// ErrUnsupported names a type that is not sent: dictionaries, which frames hold as plain values.
	ErrUnsupported = errors.New("type cannot be sent")
	// ErrCorrupt means that an array's buffers contradict each other.
	ErrCorrupt = errors.New("corrupt array")
)

// metaRoom is the application metadata that Size allows for, in bytes.
const metaRoom = 512

// bufferAlign is the multiple at which each buffer begins in the body, in bytes.
const bufferAlign = 64

// Encoder turns record batches into bodies for one stream. It is used by one goroutine at a time.
type Encoder struct {
	compression Compression
	layout      layout
	meta        message.Writer
	compressor  compressor
	progress    *Progress
}

// NewEncoder returns an encoder. What has to be copied or compressed is taken from pool and charged to g; it is given
// back with the message, or by Body.Release.
func NewEncoder(c Compression, pool *frame.Pool, g *budget.Grant) *Encoder {
	return &Encoder{compression: c, layout: layout{arena: arena{pool: pool, grant: g}}, progress: newProgress()}
}

// Progress tells how far the messages are that were made of the encoder's bodies.
func (e *Encoder) Progress() *Progress { return e.progress }

// Encode lays a batch out as an Arrow IPC RecordBatch message of metadata version 5. The body refers to the batch's
// memory, which must stay as it is until the message made of it is finished. Only the bytes of the batch's rows are
// sent: offsets that do not start at zero and bitmaps that do not start on a byte are copied, values are not.
func (e *Encoder) Encode(rec arrow.RecordBatch) (*Body, error) {
	l := &e.layout
	l.reset()
	if err := e.encode(rec); err != nil {
		l.arena.held.release()
		return nil, err
	}
	b := &Body{held: l.arena.held, progress: e.progress}
	l.arena.held = holding{}
	b.place(l)
	b.header = e.meta.Write(message.Batch{
		Rows: rec.NumRows(), Nodes: len(l.nodes), Node: func(i int) (int, int) { return l.nodes[i].rows, l.nodes[i].nulls },
		Buffers: len(l.buffers), Buffer: func(i int) (int, int) { return l.buffers[i].offset, l.buffers[i].size },
		Variadic: l.variadic, Body: b.size, Codec: e.compression.codec(),
	})
	return b, nil
}

func (e *Encoder) encode(rec arrow.RecordBatch) error {
	for i, col := range rec.Columns() {
		d := col.Data()
		if d.Len() != int(rec.NumRows()) {
			return fmt.Errorf("%w: column %q has %d rows, its batch has %d", ErrCorrupt, rec.ColumnName(i), d.Len(), rec.NumRows())
		}
		if err := e.layout.array(d, d.Offset(), d.Len()); err != nil {
			return fmt.Errorf("column %q: %w", rec.ColumnName(i), err)
		}
	}
	if e.compression == None {
		return nil
	}
	return e.compressor.compress(e.compression, &e.layout)
}

// Body is an encoded record batch that lacks its application metadata. Make one Message of it or Release it.
type Body struct {
	header []byte // the flatbuffer
	parts  []part
	size   int // bytes of the body
	copied int
	held   holding

	progress *Progress
}

// Size is the number of bytes of the message's protobuf form with at most 512 bytes of application metadata.
func (b *Body) Size() int {
	const tags = 1 + 10 + 1 + 10 + 2 + 10 // tags and lengths of three fields, at their longest
	return tags + len(b.header) + bodyAlign + metaRoom + b.size
}

// Copied is the number of body bytes that are copies, compression not counted: rebased offsets, shifted bitmaps,
// rewritten views, and buffers of at most 1 KiB, for whose end gRPC has no signal.
func (b *Body) Copied() int { return b.copied }

// Release gives back what the body holds when no message is made of it. More calls do nothing.
func (b *Body) Release() { b.held.release() }

// Message completes the body. It takes over lease, the claim on the memory that the batch lies in (nil when that is
// garbage collected), and everything the body holds. ctx is the context of the RPC that sends the message: it leads to
// the connection, whose end gives the message up.
func (b *Body) Message(ctx context.Context, appMetadata []byte, lease *frame.Lease) *Message {
	held := b.held
	b.held = holding{}
	if lease != nil {
		held.leases = append(held.leases, lease)
	}
	return newMessage(batchHead(b.header, appMetadata, b.size), b.parts, held, connOf(ctx), b.progress)
}

// preamble is what an encapsulated message begins with: a mark, and the length of the header that follows, in bytes.
const preamble = 8

// Whole is the number of bytes of the body as an encapsulated message of an IPC stream.
func (b *Body) Whole() int { return b.start() + b.size }

// start is where the buffers begin in an encapsulated message that itself begins at a multiple of bufferAlign.
func (b *Body) start() int { return preamble + len(b.header) + padding(preamble+len(b.header)) }

// Write fills to, which has as many bytes as Whole says, with the encapsulated message.
func (b *Body) Write(to []byte) {
	start := b.start()
	binary.LittleEndian.PutUint32(to, math.MaxUint32)
	binary.LittleEndian.PutUint32(to[4:], uint32(start-preamble))
	clear(to[preamble+copy(to[preamble:], b.header) : start])
	for _, p := range b.parts {
		start += copy(to[start:], p.data)
	}
}

// place puts the buffers one after the other at their offsets. Buffers too small for gRPC to tell their end are copied
// and joined with the zeros around them.
func (b *Body) place(l *layout) {
	var small, parts int
	for i := range l.buffers {
		small += padding(l.buffers[i].size)
	}
	for _, p := range l.pieces {
		if mem.IsBelowBufferPoolingThreshold(len(p.data)) {
			small += len(p.data)
		} else {
			parts += 2
		}
	}
	b.copied = l.copied
	glue := make([]byte, 0, small)
	b.parts = make([]part, 0, parts+1)
	from := 0 // where the run of glue that is not yet a part begins
	for i := range l.buffers {
		buf := &l.buffers[i]
		buf.offset = b.size
		for _, p := range l.pieces[buf.first : buf.first+buf.count] {
			if !mem.IsBelowBufferPoolingThreshold(len(p.data)) {
				b.flush(glue[from:])
				from = len(glue)
				b.parts = append(b.parts, part{data: p.data[:len(p.data):len(p.data)], lent: true})
				continue
			}
			glue = append(glue, p.data...)
			if !p.copy {
				b.copied += len(p.data)
			}
		}
		pad := padding(buf.size)
		glue = glue[:len(glue)+pad] // zeros as made
		b.size += buf.size + pad
	}
	b.flush(glue[from:])
}

func (b *Body) flush(glue []byte) {
	if len(glue) > 0 {
		b.parts = append(b.parts, part{data: glue})
	}
}

// padding is the number of bytes from n to the next place where a buffer may begin.
func padding(n int) int { return -n & (bufferAlign - 1) }

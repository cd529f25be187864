// Package message writes the metadata of Arrow IPC record batch messages, for those who lay the bodies out themselves.
package message

import (
	"bytes"

	flatbuffers "github.com/google/flatbuffers/go"
)

// The values and slots below are those of the Arrow format's Message.fbs; the format never renumbers them.
const (
	versionV5         = 4
	headerRecordBatch = 3

	slotVersion    = 0 // of Message
	slotHeaderType = 1
	slotHeader     = 2
	slotBodyLength = 3
	messageSlots   = 5

	slotLength      = 0 // of RecordBatch
	slotNodes       = 1
	slotBuffers     = 2
	slotCompression = 3
	slotVariadic    = 4
	batchSlots      = 5

	slotCodec        = 0 // of BodyCompression; slot 1 is the method, whose default is "each buffer"
	compressionSlots = 2
)

// Codec is how the buffers of a body are compressed.
type Codec int8

// The codecs by the format's own numbers, which count from LZ4.
const (
	Uncompressed Codec = iota - 1
	LZ4
	Zstd
)

// Batch describes a record batch whose body is laid out.
type Batch struct {
	Rows     int64
	Nodes    int                             // arrays, in pre-order
	Node     func(i int) (rows, nulls int)   // of array i
	Buffers  int                             // in the order of the arrays
	Buffer   func(i int) (offset, bytes int) // of buffer i in the body
	Variadic []int64                         // data buffers of each array of views
	Body     int                             // bytes of the body, padding included
	Codec    Codec
}

// Writer writes flatbuffers of record batches, one at a time. The zero Writer is ready.
type Writer struct{ b *flatbuffers.Builder }

// Write returns a Message of metadata version 5 with a RecordBatch header.
func (w *Writer) Write(batch Batch) []byte {
	if w.b == nil {
		w.b = flatbuffers.NewBuilder(1 << 10)
	}
	b := w.b
	b.Reset()
	nodes := pairs(b, batch.Nodes, batch.Node)
	buffers := pairs(b, batch.Buffers, batch.Buffer)
	variadic := longs(b, batch.Variadic)
	compression := bodyCompression(b, batch.Codec)
	b.StartObject(batchSlots)
	b.PrependInt64Slot(slotLength, batch.Rows, 0)
	b.PrependUOffsetTSlot(slotNodes, nodes, 0)
	b.PrependUOffsetTSlot(slotBuffers, buffers, 0)
	b.PrependUOffsetTSlot(slotCompression, compression, 0)
	b.PrependUOffsetTSlot(slotVariadic, variadic, 0)
	header := b.EndObject()
	b.StartObject(messageSlots)
	b.PrependInt64Slot(slotBodyLength, int64(batch.Body), 0)
	b.PrependUOffsetTSlot(slotHeader, header, 0)
	b.PrependInt16Slot(slotVersion, versionV5, 0)
	b.PrependByteSlot(slotHeaderType, headerRecordBatch, 0)
	b.Finish(b.EndObject())
	return bytes.Clone(b.FinishedBytes())
}

// pairs writes a vector of structs of two 64-bit integers: nodes (rows, nulls) and buffers (offset, bytes).
func pairs(b *flatbuffers.Builder, n int, at func(int) (int, int)) flatbuffers.UOffsetT {
	b.StartVector(16, n, 8)
	for i := n - 1; i >= 0; i-- {
		first, second := at(i)
		b.Prep(8, 16)
		b.PrependInt64(int64(second))
		b.PrependInt64(int64(first))
	}
	return b.EndVector(n)
}

// longs writes a vector of 64-bit integers; none at all when it would be empty.
func longs(b *flatbuffers.Builder, v []int64) flatbuffers.UOffsetT {
	if len(v) == 0 {
		return 0
	}
	b.StartVector(8, len(v), 8)
	for i := len(v) - 1; i >= 0; i-- {
		b.PrependInt64(v[i])
	}
	return b.EndVector(len(v))
}

func bodyCompression(b *flatbuffers.Builder, c Codec) flatbuffers.UOffsetT {
	if c == Uncompressed {
		return 0
	}
	b.StartObject(compressionSlots)
	b.PrependInt8Slot(slotCodec, int8(c), 0)
	return b.EndObject()
}

package codec

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
	codecLZ4         = 0
	codecZstd        = 1
)

// metadata writes the flatbuffers of record batches.
type metadata struct{ b *flatbuffers.Builder }

// recordBatch returns a Message with a RecordBatch header for a body of size bytes.
func (m *metadata) recordBatch(rows int64, l *layout, size int, c Compression) []byte {
	if m.b == nil {
		m.b = flatbuffers.NewBuilder(1 << 10)
	}
	b := m.b
	b.Reset()
	nodes := pairs(b, len(l.nodes), func(i int) (int, int) { return l.nodes[i].rows, l.nodes[i].nulls })
	buffers := pairs(b, len(l.buffers), func(i int) (int, int) { return l.buffers[i].offset, l.buffers[i].size })
	variadic := longs(b, l.variadic)
	compression := bodyCompression(b, c)
	b.StartObject(batchSlots)
	b.PrependInt64Slot(slotLength, rows, 0)
	b.PrependUOffsetTSlot(slotNodes, nodes, 0)
	b.PrependUOffsetTSlot(slotBuffers, buffers, 0)
	b.PrependUOffsetTSlot(slotCompression, compression, 0)
	b.PrependUOffsetTSlot(slotVariadic, variadic, 0)
	header := b.EndObject()
	b.StartObject(messageSlots)
	b.PrependInt64Slot(slotBodyLength, int64(size), 0)
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

func bodyCompression(b *flatbuffers.Builder, c Compression) flatbuffers.UOffsetT {
	if c == None {
		return 0
	}
	codec := int8(codecLZ4)
	if c == Zstd {
		codec = codecZstd
	}
	b.StartObject(compressionSlots)
	b.PrependInt8Slot(slotCodec, codec, 0)
	return b.EndObject()
}

// Package codec sends frames over gRPC without copying them.
//
// An Encoder lays a record batch out as an Arrow IPC body: a list of slices that point into the frame's own memory,
// with small pieces and paddings between them. The gRPC codec hands those slices to the transport as they are, and a
// Message keeps the frame's lease until the transport has let go of the last of them.
package codec

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that everything but a Message goes to
	"google.golang.org/grpc/mem"
)

// Codec returns the codec for grpc.ForceServerCodecV2. A *Message becomes its header bytes followed by the slices of
// its body, uncopied; every other type is left to gRPC's "proto" codec, so one server can offer other services too.
func Codec() encoding.CodecV2 {
	return codec{encoding.GetCodecV2("proto")}
}

type codec struct{ encoding.CodecV2 }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(*Message); ok {
		return m.lend()
	}
	return c.CodecV2.Marshal(v)
}

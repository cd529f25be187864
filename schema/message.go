package schema

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Message returns the flatbuffer of the IPC message that carries s: the
// data_header of a stream's first message. Equal schemas give equal bytes.
func Message(s *arrow.Schema) []byte {
	p := ipc.GetSchemaPayload(s, memory.NewGoAllocator())
	defer p.Release()
	meta := p.Meta()
	defer meta.Release()
	return append([]byte(nil), meta.Bytes()...)
}

// Encapsulated returns message as IPC streams frame it: a continuation mark,
// the length (little-endian), the message padded to a multiple of 8 bytes.
// These are the schema bytes of FlightInfo and GetSchema.
func Encapsulated(message []byte) []byte {
	const prefix = 8
	padded := (len(message) + 7) &^ 7
	out := make([]byte, prefix+padded)
	binary.LittleEndian.PutUint32(out, 0xFFFFFFFF)
	binary.LittleEndian.PutUint32(out[4:], uint32(padded))
	copy(out[prefix:], message)
	return out
}

// Fingerprint returns the SHA-256 of s as an encapsulated message, in
// lower-case hex.
func Fingerprint(s *arrow.Schema) string {
	sum := sha256.Sum256(Encapsulated(Message(s)))
	return hex.EncodeToString(sum[:])
}

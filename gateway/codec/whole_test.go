package codec

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"pgregory.net/rapid"
)

// whole is an IPC stream of a batch, whose message was written in one piece.
func whole(t testing.TB, s *store, rec arrow.RecordBatch, kind Compression) []byte {
	t.Helper()
	enc := NewEncoder(kind, s.pool, s.grant)
	b, err := enc.Encode(rec)
	if err != nil {
		t.Fatalf("%v: %v", rec.Schema(), err)
	}
	defer b.Release()
	for i, buf := range enc.layout.buffers {
		if buf.offset%bufferAlign != 0 {
			t.Errorf("%v: buffer %d begins at %d", rec.Schema(), i, buf.offset)
		}
	}
	stream := b.stream(rec.Schema())
	n := len(stream) - b.size - (len(b.header)+7)&^7 - preamble // what comes before the batch
	room := bytes.Repeat([]byte{0xa5}, b.Whole()+1)
	b.Write(room[:b.Whole()])
	if room[b.Whole()] != 0xa5 {
		t.Fatal("more was written than there is room for")
	}
	message := room[:b.Whole()]
	start := preamble + int(binary.LittleEndian.Uint32(message[4:]))
	if start%bufferAlign != 0 || len(message)-start != b.size {
		t.Fatalf("%d bytes of buffers begin at %d of %d", b.size, start, len(message))
	}
	if !bytes.Equal(message[start:], stream[len(stream)-b.size:]) {
		t.Fatal("the buffers are not those of the wire")
	}
	return append(stream[:n:n], message...)
}

// A message that is written in one piece is read as the batch it is, of every type, whole and sliced, compressed and not.
func TestWholeMessages(t *testing.T) {
	_, batches := made(t)
	s := newStore(t)
	for _, name := range sorted(batches) {
		for _, w := range windows(batches[name].NumRows()) {
			for _, kind := range []Compression{None, LZ4, Zstd} {
				want := batches[name].NewSlice(w[0], w[0]+w[1])
				if got := decode(t, whole(t, s, want, kind)); !equal(want, got) {
					t.Errorf("%s rows %v, compression %d: they differ", name, w, kind)
				}
				want.Release()
			}
		}
	}
}

// So it is with any batch.
func TestWholeMessagesOfAnyBatch(t *testing.T) {
	s := newStore(t)
	rapid.Check(t, func(rt *rapid.T) {
		rec := randomBatch(rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 2)))
		kind := Compression(rapid.IntRange(0, 2).Draw(rt, "compression"))
		if got := decode(t, whole(t, s, rec, kind)); !equal(rec, got) {
			rt.Fatalf("written\n%v\nread\n%v", rec, got)
		}
	})
}

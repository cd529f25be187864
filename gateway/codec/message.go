package codec

import (
	"encoding/binary"
	"errors"
	"runtime"
	"sync/atomic"

	"google.golang.org/grpc/mem"

	"github.com/headrace/headrace/storage/frame"
)

// errSent is what gRPC reports for a message that is sent again or after its Release.
var errSent = errors.New("the message was sent or released before")

// part is a run of bytes of a message. A lent one lies in memory that is given back when gRPC has freed every lent part.
type part struct {
	data []byte
	lent bool
}

// holding is memory that must stay until a message has been sent.
type holding struct {
	leases  []*frame.Lease
	regions []*frame.Region
}

func (h *holding) release() {
	for _, l := range h.leases {
		l.Release()
	}
	for _, r := range h.regions {
		r.Free()
	}
	h.leases, h.regions = nil, nil
}

// Message is one FlightData message, to be given to grpc.ServerStream.SendMsg once.
//
// gRPC frees each slice on its own, as soon as that slice has been written, so one count covers them all: the sender's
// own hold and one for each lent part. What the message holds is given back when the count is zero, or when the sender has
// let go and gRPC can no longer read: its connection has ended, or the slices were collected as garbage.
type Message struct {
	head  []byte
	parts []part
	size  int
	held  holding
	conn  *conn

	progress *Progress // of its stream; nil: nobody asks

	refs     atomic.Int32
	lentOut  atomic.Bool // handed to gRPC
	released atomic.Bool // by the sender
	orphaned atomic.Bool // gRPC reads it no more
	done     atomic.Bool
	backstop runtime.Cleanup
}

// newMessage makes a message that the sender holds.
func newMessage(head []byte, parts []part, held holding, c *conn, p *Progress) *Message {
	m := &Message{head: head, parts: parts, size: len(head), held: held, conn: c, progress: p}
	for _, p := range parts {
		m.size += len(p.data)
	}
	m.refs.Store(1)
	m.progress.begin()
	m.conn.add(m)
	return m
}

// SchemaMessage is the first message of a DoGet: the schema's flatbuffer and, unless it is nil, a serialized
// FlightDescriptor. It holds no lease.
func SchemaMessage(schema, descriptor []byte) *Message {
	var head []byte
	if descriptor != nil {
		head = appendField(head, tagDescriptor, descriptor)
	}
	return newMessage(appendField(head, tagHeader, schema), nil, holding{}, nil, nil)
}

// Size is the number of bytes of the message's protobuf form.
func (m *Message) Size() int { return m.size }

// Release ends the sender's own hold. Call it after SendMsg, whatever that returned; more calls do nothing.
func (m *Message) Release() {
	if m.released.Swap(true) {
		return
	}
	if m.refs.Add(-1) == 0 || m.orphaned.Load() {
		m.finish()
	}
}

// lend turns the message into buffers for gRPC. Each lent part is a buffer of its own, whose end gRPC reports by
// calling Put of the pool it came with.
func (m *Message) lend() (mem.BufferSlice, error) {
	if m.released.Load() || m.lentOut.Swap(true) {
		return nil, errSent
	}
	out := make(mem.BufferSlice, 0, len(m.parts)+1)
	out = append(out, mem.SliceBuffer(m.head))
	end := &giveBack{m}
	lent := false
	for i := range m.parts {
		p := &m.parts[i]
		if !p.lent {
			out = append(out, mem.SliceBuffer(p.data))
			continue
		}
		lent = true
		for _, piece := range cut(p.data) {
			m.refs.Add(1)
			out = append(out, mem.NewBuffer(&piece, end))
		}
	}
	if lent {
		// gRPC drops, without freeing it, a frame that reaches its writer just after the stream was reset. While gRPC can
		// read the parts it reaches end through them; once it cannot, end is garbage.
		m.backstop = runtime.AddCleanup(end, (*Message).orphan, m)
	}
	return out, nil
}

// lentAtOnce is about how many bytes gRPC is lent at once: it tells of their end only when all of them were written, and
// a slow client's stream has to be seen to move.
const lentAtOnce = 1 << 20

// cut cuts bytes into pieces, none of them too small for gRPC to tell their end.
func cut(data []byte) [][]byte {
	pieces := make([][]byte, 0, len(data)/lentAtOnce+1)
	for len(data) >= 2*lentAtOnce {
		pieces = append(pieces, data[:lentAtOnce:lentAtOnce])
		data = data[lentAtOnce:]
	}
	return append(pieces, data)
}

// giveBack is the pool of a message's lent buffers: nothing is taken from it, and each Put ends one hold.
type giveBack struct{ m *Message }

// Get implements mem.BufferPool for the one case gRPC never has: a pool of lent memory has nothing to give.
func (*giveBack) Get(n int) *[]byte { b := make([]byte, n); return &b }

// Put implements mem.BufferPool. It runs on the goroutine that writes the connection.
func (g *giveBack) Put(*[]byte) {
	g.m.progress.free()
	if g.m.refs.Add(-1) == 0 {
		g.m.finish()
	}
}

// orphan notes that gRPC will not read the message any more, although it did not free all of it. The sender may still
// be reading: its own hold counts on.
func (m *Message) orphan() {
	m.orphaned.Store(true)
	if m.released.Load() {
		m.finish()
	}
}

func (m *Message) finish() {
	if m.done.Swap(true) {
		return
	}
	m.conn.remove(m)
	m.backstop.Stop()
	m.held.release()
	m.progress.end()
}

// The fields of FlightData, in the order in which they are sent; the body is last so that it can be left out of the header.
const (
	tagDescriptor  = 1<<3 | 2
	tagHeader      = 2<<3 | 2
	tagAppMetadata = 3<<3 | 2
	tagBody        = 1000<<3 | 2
)

// bodyAlign is the multiple at which a body begins in its message. Receivers join a message in memory that is aligned
// to 16, so more would be of no use.
const bodyAlign = 16

func appendField(b []byte, tag uint64, data []byte) []byte {
	b = binary.AppendUvarint(b, tag)
	b = binary.AppendUvarint(b, uint64(len(data)))
	return append(b, data...)
}

// batchHead is the part of a message before its body. The header is followed by zeros, which belong to its field and
// which flatbuffers ignore, until the body begins at a multiple of bodyAlign.
func batchHead(header, appMetadata []byte, body int) []byte {
	tail := make([]byte, 0, len(appMetadata)+24)
	if len(appMetadata) > 0 {
		tail = appendField(tail, tagAppMetadata, appMetadata)
	}
	tail = binary.AppendUvarint(tail, tagBody)
	tail = binary.AppendUvarint(tail, uint64(body))
	n := len(header)
	for (1+uvarintLen(n)+n+len(tail))%bodyAlign != 0 {
		n++
	}
	head := make([]byte, 0, 1+uvarintLen(n)+n+len(tail))
	head = binary.AppendUvarint(head, tagHeader)
	head = binary.AppendUvarint(head, uint64(n))
	head = append(head, header...)
	head = append(head, make([]byte, n-len(header))...)
	return append(head, tail...)
}

func uvarintLen(n int) int {
	var b [binary.MaxVarintLen64]byte
	return binary.PutUvarint(b[:], uint64(n))
}

package shm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headrace/headrace/storage/budget"
)

const (
	// Slots is how many a ring has.
	Slots = 16
	// Stride is the room of each in bytes: for the longest message and what it says of itself. What is not used takes no
	// memory.
	Stride = 65 << 20
	// most is how many bytes a ring takes that could do with fewer, and few how many slots it has in any case.
	most = 32 << 20
	few  = 3
	// align is where the message begins behind its metadata.
	align = 64
)

// Wire is the slot of a message that goes over Flight.
const Wire = 1<<32 - 1

// taken is the bit of what a client tells that stands for "taken". Without it, it stands for "given back".
const taken = 0x80

// magic begins what is sent with the descriptor; Stride and Slots follow. joined follows when a stream has the ring.
const magic = "hrshm1\x00\x00"

var (
	joined = []byte{1}
	past   = time.Unix(1, 0)
)

// Ring is memory that one stream's messages pass through. It is used by one goroutine at a time.
type Ring struct {
	host *Host
	conn *net.UnixConn
	file *os.File
	mem  []byte

	grant  *budget.Grant
	slots  [Slots]slot
	free   []int // the last one used comes last: its memory is in the caches
	unread int   // messages that the client has not taken
	paid   int64 // bytes, of all slots
	told   atomic.Int64

	ctx  context.Context // of the stream
	stop func() bool     // ends the watch over ctx; nil: no stream has begun
}

// slot is in one of three states: free, out and not yet taken, or in use by the client.
type slot struct {
	paid        int64
	out, unread bool
}

func newRing(h *Host, conn *net.UnixConn) (*Ring, error) {
	file, mem, err := memory(Slots * Stride)
	if err != nil {
		return nil, err
	}
	r := &Ring{host: h, conn: conn, file: file, mem: mem}
	for i := Slots - 1; i >= 0; i-- {
		r.free = append(r.free, i)
	}
	return r, nil
}

// Begin lets a stream use the ring; the grant pays for what is used of it, until the client has given that back. Once ctx
// ends, nothing waits for the client.
func (r *Ring) Begin(ctx context.Context, g *budget.Grant) {
	r.grant = g
	r.ctx = ctx
	r.stop = context.AfterFunc(ctx, func() { _ = r.conn.SetDeadline(past) })
}

// Put lets fill write a message of n bytes into a slot, behind its metadata, and tells the client of it. It waits while
// there is no slot and the client still has messages to take. False: the message is to go over Flight, for it is too large,
// or the client keeps as much as memory can be had for. The error is that of Begin's ctx, or ErrGone.
func (r *Ring) Put(meta []byte, n int, fill func([]byte)) (done bool, err error) {
	start := (len(meta) + align - 1) / align * align
	i, ok := 0, false
	if start+n <= Stride {
		i, ok, err = r.take(int64(start + n))
	}
	if err == nil && !ok {
		err = r.tell(Wire, 0, 0)
	}
	if err != nil || !ok {
		return false, r.failed(err)
	}
	mem := r.mem[i*Stride:][:start+n]
	copy(mem, meta)
	fill(mem[start:])
	return true, r.failed(r.tell(uint32(i), len(meta), n))
}

// failed says why the client could not be reached.
func (r *Ring) failed(err error) error {
	switch {
	case err == nil:
		return nil
	case r.ctx.Err() != nil:
		return r.ctx.Err()
	default:
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
}

// tell tells the client of a message.
func (r *Ring) tell(slot uint32, meta, n int) error {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, 16), slot)
	b = binary.LittleEndian.AppendUint32(b, uint32(meta))
	_, err := r.conn.Write(binary.LittleEndian.AppendUint64(b, uint64(n)))
	return err
}

// take takes a free slot with room for n bytes, if there is one or comes to be one.
func (r *Ring) take(n int64) (i int, ok bool, err error) {
	if i, ok = r.find(n, false); ok {
		return i, true, nil
	}
	for wait := false; ; wait = true {
		if err := r.hear(wait); err != nil {
			return 0, false, err
		}
		if i, ok = r.get(n); ok || r.unread == 0 {
			return i, ok, nil
		}
	}
}

// get takes a free slot that has room for n bytes, or can get it, be it by what other free slots have.
func (r *Ring) get(n int64) (i int, ok bool) {
	for _, grow := range []bool{false, true} {
		if i, ok = r.find(n, grow); ok {
			return i, true
		}
	}
	r.drop()
	return r.find(n, true)
}

// find takes the free slot that was used last and has room for n bytes, or one that can get it.
func (r *Ring) find(n int64, grow bool) (int, bool) {
	for at, i := range slices.Backward(r.free) {
		switch {
		case r.slots[i].paid >= n:
		case !grow:
			continue
		case !r.grow(i, n):
			return 0, false // what one cannot have, no other can
		}
		r.free = slices.Delete(r.free, at, at+1)
		r.slots[i].out, r.slots[i].unread = true, true
		r.unread++
		return i, true
	}
	return 0, false
}

// grow pays for a slot's first n bytes, and has the system find memory for them while it can still say that there is none.
func (r *Ring) grow(i int, n int64) bool {
	s := &r.slots[i]
	page := int64(os.Getpagesize())
	n = (n + page - 1) / page * page
	more := n - s.paid
	if r.paid+more > max(most, few*n) || !r.pay(more) {
		return false
	}
	if provide(r.file, int64(i)*Stride+s.paid, more) != nil {
		r.credit(more)
		return false
	}
	s.paid += more
	return true
}

// pay charges the grant, within what all rings may take.
func (r *Ring) pay(n int64) bool {
	if r.host.paid.Add(n) > r.host.most || r.grant.Charge(budget.Batches, n) != nil {
		r.host.paid.Add(-n)
		return false
	}
	r.paid += n
	return true
}

// credit gives n bytes back.
func (r *Ring) credit(n int64) {
	r.grant.Credit(budget.Batches, n)
	r.host.paid.Add(-n)
	r.paid -= n
}

// hear follows what the client has told by now, or waits until it tells more.
func (r *Ring) hear(wait bool) error {
	var told [256]byte
	read := r.conn.Read
	if !wait {
		read = func(to []byte) (int, error) { return poll(r.conn, to) }
	}
	n, err := read(told[:])
	for _, b := range told[:n] {
		i, back := int(b&^taken), b&taken == 0
		if i >= Slots || !r.slots[i].out || !back && !r.slots[i].unread {
			return fmt.Errorf("it told what cannot be: %#x", b)
		}
		r.note(i, back)
		r.told.Add(1)
	}
	return err
}

// Told is how often the client has told of a slot, as far as the stream knows. It may be called by any goroutine.
func (r *Ring) Told() int64 { return r.told.Load() }

// note notes that the client has taken a slot's message, or has given the slot back.
func (r *Ring) note(i int, back bool) {
	s := &r.slots[i]
	if s.unread {
		s.unread = false
		r.unread--
	}
	if back {
		s.out = false
		r.free = append(r.free, i)
	}
}

// Spare gives back what can be had back of the ring's memory: it waits until the client has taken all messages.
func (r *Ring) Spare() error {
	err := r.hear(false)
	for err == nil && r.unread > 0 {
		err = r.hear(true)
	}
	r.drop()
	return r.failed(err)
}

// End says that the stream uses the ring no more: the client is told so. It may still take what it was told of, and what it
// has not given back stays as it is, also when the host closes. It has gone when it has closed its socket, it and all
// processes that were forked from it, so that none is left who reads.
func (r *Ring) End() {
	if r.stop != nil {
		r.stop()
	}
	unmap(r.mem)
	_ = r.conn.CloseWrite()
	r.drop()
	if r.paid == 0 {
		r.close()
		return
	}
	r.host.work.Go(r.linger)
}

// linger follows what the client gives back until that is all, or one of both has gone.
func (r *Ring) linger() {
	var err error
	for r.paid > 0 && err == nil {
		if err = r.hear(true); errors.Is(err, os.ErrDeadlineExceeded) { // for the stream, not for what is left of it
			err = r.conn.SetDeadline(time.Time{})
		}
		r.drop()
	}
	if !errors.Is(err, net.ErrClosed) { // it was the client, which may have the file mapped and not pay
		for i := range r.slots {
			r.empty(i)
		}
	}
	r.close()
}

// close lets go of the memory and of the client.
func (r *Ring) close() {
	r.host.hangUp(r.conn)
	if r.paid > 0 {
		r.credit(r.paid)
	}
	r.file.Close()
}

// drop gives the memory of all free slots back.
func (r *Ring) drop() {
	for _, i := range r.free {
		r.empty(i)
	}
}

// empty gives the memory of a slot back.
func (r *Ring) empty(i int) {
	if s := &r.slots[i]; s.paid > 0 {
		release(r.file, int64(i)*Stride, s.paid)
		r.credit(s.paid)
		s.paid = 0
	}
}

// greeting is what is sent with the descriptor.
func greeting() []byte {
	b := binary.LittleEndian.AppendUint64([]byte(magic), Stride)
	return binary.LittleEndian.AppendUint64(b, Slots)
}

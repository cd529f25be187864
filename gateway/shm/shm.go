// Package shm hands a stream's messages to a client on the same host through memory that both have mapped.
//
// A client that asks is offered the address of a socket and a key, which is good for one stream of its own tenant. Whoever
// shows the key there is sent a ring: the descriptor of a file in memory, divided into slots. The stream whose call has the
// key joins it. From then on the gateway puts each of the stream's messages into a slot and tells of it over the socket;
// what has no place in a slot goes over Flight, and the socket tells of that, too, so that the order is known. When the
// gateway has no more to tell, Flight says why. The client tells of each slot that it has taken the message, and that it has
// no more use for it.
//
//	client:  the key, 32 hex digits
//	gateway: 24 bytes: "hrshm1", two zeros; bytes of a slot (8); slots (8); with them the descriptor. All is little endian
//	gateway: one byte, 1, before the stream's schema, if it has joined
//	gateway: 16 bytes for each message: slot (4), or Wire; bytes of the metadata (4); of the message (8)
//	client:  a byte for each event: the number of a slot that is given back; with the highest bit set, of one that was taken
//
// In a slot lie the metadata, and from the next multiple of 64 the message as in an IPC stream.
//
// What a client uses is not touched until it gives that back or closes its end of the socket, even when the stream has ended.
//
// No ring serves two streams, for whoever had its descriptor may read it for as long as it likes. The file cannot be cut
// short, so a client can take nothing away under the gateway; it can write into its own messages, which the gateway never
// reads again.
package shm

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// ErrUnsupported means that this system has no files in memory that can be handed over, or that the gateway is told not to.
var ErrUnsupported = errors.New("no shared memory here")

// ErrGone means that the client has closed its end of the ring, or told what cannot be.
var ErrGone = errors.New("the client of the shared memory has gone")

// ErrBusy means that too many offers wait for somebody to take them up.
var ErrBusy = errors.New("too many offers of shared memory at once")

const (
	keyBytes  = 16
	maxOffers = 2048 // half of them for the first tenant that asks
	// patience is how long an offer stands, and how long whoever connects has to show its key.
	patience = 10 * time.Second
	// maxStrangers is how many connections may be open that have shown no key yet.
	maxStrangers = 64
)

// Host offers rings on a socket.
type Host struct {
	listener  *net.UnixListener
	most      int64
	paid      atomic.Int64 // bytes, by all rings
	patience  time.Duration
	strangers chan struct{}
	work      sync.WaitGroup

	mu     sync.Mutex
	offers map[string]*offer // by key
	conns  map[net.Conn]struct{}
	closed bool
}

// offer is a ring that no stream has yet.
type offer struct {
	tenant string
	ring   *Ring // nil: nobody has shown the key
	expiry *time.Timer
}

// New offers rings on a listener, which the host closes. All together they take no more than most bytes, for clients may keep
// what they use of them as long as they like.
func New(l *net.UnixListener, most int64) (*Host, error) {
	if !Supported {
		return nil, ErrUnsupported
	}
	return host(l, most, patience), nil
}

func host(l *net.UnixListener, most int64, patience time.Duration) *Host {
	h := &Host{listener: l, most: most, patience: patience, strangers: make(chan struct{}, maxStrangers), offers: map[string]*offer{}, conns: map[net.Conn]struct{}{}}
	h.work.Go(h.accept)
	return h
}

// Address is where the socket is: a path, or @ and a name that is no file's.
func (h *Host) Address() string { return h.listener.Addr().String() }

// Offer returns a key to be shown at the socket, good for one stream of a tenant.
func (h *Host) Offer(tenant string) (key string, err error) {
	var b [keyBytes]byte
	_, _ = rand.Read(b[:]) // never fails
	key = hex.EncodeToString(b[:])
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.standing(tenant) >= maxOffers-len(h.offers) {
		return "", ErrBusy
	}
	h.offers[key] = &offer{tenant: tenant, expiry: time.AfterFunc(h.patience, func() { h.expire(key) })}
	return key, nil
}

// standing counts the offers of a tenant. Nobody has more than are left for all others, so that some always are. The lock is
// held.
func (h *Host) standing(tenant string) (n int) {
	for _, o := range h.offers {
		if o.tenant == tenant {
			n++
		}
	}
	return n
}

// Join returns the ring of whoever showed a key, for the one stream that may use it, and lets the client know; nil if nobody
// did, or the key is not the tenant's. The stream is to End it.
func (h *Host) Join(key, tenant string) *Ring {
	h.mu.Lock()
	o := h.offers[key]
	h.mu.Unlock()
	if o == nil || o.tenant != tenant {
		return nil
	}
	r := h.withdraw(key)
	if r == nil {
		return nil
	}
	if _, err := r.conn.Write(joined); err != nil {
		r.End()
		return nil
	}
	return r
}

// expire ends an offer that nobody has come back to, unless Close does.
func (h *Host) expire(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	if r := h.remove(key); r != nil {
		h.work.Go(r.End)
	}
}

// withdraw ends an offer and returns its ring if it had one.
func (h *Host) withdraw(key string) *Ring {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.remove(key)
}

// remove is withdraw under the lock.
func (h *Host) remove(key string) *Ring {
	o := h.offers[key]
	if o == nil {
		return nil
	}
	delete(h.offers, key)
	o.expiry.Stop()
	return o.ring
}

// Close ends all connections and waits until what they had was given back. Streams that use rings are to have ended.
func (h *Host) Close() {
	_ = h.listener.Close()
	h.mu.Lock()
	h.closed = true
	for c := range h.conns {
		c.Close()
	}
	keys := make([]string, 0, len(h.offers))
	for key := range h.offers {
		keys = append(keys, key)
	}
	h.mu.Unlock()
	for _, key := range keys {
		if r := h.withdraw(key); r != nil {
			r.End()
		}
	}
	h.work.Wait()
}

func (h *Host) accept() {
	for {
		h.strangers <- struct{}{}
		conn, err := h.listener.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // such as too many open files: there may be fewer soon
			<-h.strangers
			time.Sleep(10 * time.Millisecond)
		case !h.know(conn):
			_ = conn.Close()
			<-h.strangers
		default:
			h.work.Go(func() {
				defer func() { <-h.strangers }()
				h.greet(conn)
			})
		}
	}
}

// know remembers a connection, to be closed with the host.
func (h *Host) know(c net.Conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.conns[c] = struct{}{}
	}
	return !h.closed
}

// hangUp ends a connection.
func (h *Host) hangUp(c net.Conn) {
	h.mu.Lock()
	delete(h.conns, c) // first: whoever sees the end of the connection finds it gone
	h.mu.Unlock()
	c.Close()
}

// greet sends a ring to whoever shows the key of an offer that nobody has taken up, and to others nothing.
func (h *Host) greet(conn *net.UnixConn) {
	_ = conn.SetDeadline(time.Now().Add(h.patience))
	key := make([]byte, 2*keyBytes)
	if _, err := io.ReadFull(conn, key); err != nil || !h.stands(string(key)) {
		h.hangUp(conn)
		return
	}
	r, err := newRing(h, conn)
	if err != nil {
		h.hangUp(conn)
		return
	}
	if conn.SetDeadline(time.Time{}) != nil || !h.give(string(key), r) {
		r.End()
	}
}

// stands tells whether a key is that of an offer that nobody has taken up.
func (h *Host) stands(key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := h.offers[key]
	return o != nil && o.ring == nil
}

// give makes a ring that of an offer, unless it has one or stands no more, and sends it.
func (h *Host) give(key string, r *Ring) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := h.offers[key]
	if o == nil || o.ring != nil || r.send() != nil { // nobody waits: nothing was written to the socket before
		return false
	}
	o.ring = r
	return true
}

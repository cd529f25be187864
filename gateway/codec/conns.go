package codec

import (
	"context"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/stats"
)

// Conns is the stats.Handler that knows which messages each connection still has. gRPC does not free what is queued
// when a connection dies; Conns gives those messages up once the connection's writer has stopped.
type Conns struct {
	messages atomic.Int64
	bytes    atomic.Int64
}

// NewConns returns a handler for grpc.StatsHandler; one server needs one.
func NewConns() *Conns { return &Conns{} }

// Queued returns how many messages exist that still hold memory, and their bytes: those being sent and those that
// gRPC has not yet written.
func (c *Conns) Queued() (messages, bytes int64) { return c.messages.Load(), c.bytes.Load() }

// conn is the set of one connection's messages. A nil conn keeps none.
type conn struct {
	owner *Conns
	mu    sync.Mutex
	ended bool
	live  map[*Message]struct{}
}

type connKey struct{}

// connOf finds the connection of an RPC's context; nil without a Conns at the server.
func connOf(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}

func (c *conn) add(m *Message) {
	if c == nil {
		return
	}
	c.owner.messages.Add(1)
	c.owner.bytes.Add(int64(m.size))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		m.orphaned.Store(true)
		return
	}
	c.live[m] = struct{}{}
}

func (c *conn) remove(m *Message) {
	if c == nil {
		return
	}
	c.owner.messages.Add(-1)
	c.owner.bytes.Add(-int64(m.size))
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.live, m)
}

// end gives up whatever is left. Messages made later by handlers that still run are given up as soon as they are
// released.
func (c *conn) end() {
	c.mu.Lock()
	left := c.live
	c.live, c.ended = nil, true
	c.mu.Unlock()
	for m := range left {
		m.orphan()
	}
}

// TagConn implements stats.Handler.
func (c *Conns) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, connKey{}, &conn{owner: c, live: make(map[*Message]struct{})})
}

// HandleConn implements stats.Handler. The end of a connection is reported after its writer has stopped.
func (c *Conns) HandleConn(ctx context.Context, s stats.ConnStats) {
	if _, ok := s.(*stats.ConnEnd); !ok {
		return
	}
	if set := connOf(ctx); set != nil {
		set.end()
	}
}

// TagRPC implements stats.Handler.
func (c *Conns) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (c *Conns) HandleRPC(context.Context, stats.RPCStats) {}

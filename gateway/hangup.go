package gateway

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/headrace/headrace/gateway/codec"
)

// reachable is a listener whose connections can be found again by the calls they carry.
type reachable struct{ net.Listener }

// Accept implements net.Listener.
func (l reachable) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return line{conn}, nil
}

// line is a connection that its own peer's address leads back to.
type line struct{ net.Conn }

// RemoteAddr implements net.Conn.
func (l line) RemoteAddr() net.Addr { return caller{l.Conn.RemoteAddr(), l.Conn} }

// caller is a peer's address and the connection to it.
type caller struct {
	net.Addr
	conn net.Conn
}

// hangUpGrace is how long a client whose stream was ended has to take what was already on its way to it.
const hangUpGrace = 5 * time.Second

// hangUp closes the connection of a call that was ended because its client took nothing, if that takes nothing still and
// others still wait for memory. Ending a stream does not free what gRPC keeps for it until the client has made room; ending
// the connection does. Other streams of the same client end with it, and resume like after any lost connection.
func (s *Server) hangUp(call context.Context, p *codec.Progress) {
	if p == nil {
		return
	}
	grace, cancel := context.WithTimeout(s.running, min(hangUpGrace, s.StallTimeout))
	defer cancel()
	if p.Wait(grace) == nil || s.Ledger.Waiting().IsZero() {
		return
	}
	if from, ok := peer.FromContext(call); ok {
		if c, ok := from.Addr.(caller); ok {
			_ = c.conn.Close() // it may be gone already, which is as good
		}
	}
}

// Package gateway speaks Flight: identify, plan, feed, send; errors become status codes here and nowhere else.
//
// A call passes four doors in this order: its identity (before anything of the call is read), the principal's rights,
// the request's own rules, and memory. Only then is a row decoded.
package gateway

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/headrace/headrace/auth"
	"github.com/headrace/headrace/gateway/codec"
	"github.com/headrace/headrace/gateway/feed"
	"github.com/headrace/headrace/gateway/shm"
	"github.com/headrace/headrace/storage"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/cache"
	"github.com/headrace/headrace/storage/disk"
	"github.com/headrace/headrace/storage/frame"
)

// Options are what a gateway is made of.
type Options struct {
	Store    *storage.Store
	Pool     *frame.Pool
	Ledger   *budget.Ledger
	Cache    *cache.Cache
	Disk     *disk.Tier // below the cache; nil: none
	Verifier auth.Verifier
	Policy   auth.Policy
	// AdmissionTimeout is how long a stream may wait in line for memory.
	AdmissionTimeout time.Duration
	// StallTimeout is how long a stream's client may take nothing while others wait for memory; 0 is for ever.
	StallTimeout time.Duration
	Decoders     feed.Decoders
	Shm          *shm.Host // for clients on the same host; nil: there is none
	Events       Events
}

// Server answers Flight calls.
type Server struct {
	flight.BaseFlightServer
	Options
	grpc    *grpc.Server
	health  *health.Server
	conns   *codec.Conns
	feed    *feed.Feed
	flights flights
	plans   plans
	adding  chan struct{} // holds whoever adds up receipts, or follows epochs
	// senders are the goroutines that send batches: a handler may end before its sender has noticed.
	senders  sync.WaitGroup
	draining atomic.Bool
	// collecting says that the garbage is about to be collected.
	collecting atomic.Bool
	cut        context.CancelCauseFunc // ends the running streams at a batch border
	running    context.Context
}

// Pings may come every 10 s, also between calls; 9 s forgives a client's timer. The server's own pings find dead peers.
var (
	clientPings = keepalive.EnforcementPolicy{MinTime: 9 * time.Second, PermitWithoutStream: true}
	serverPings = keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}
)

// maxHeader bounds a call's headers: a token is at most 16 KiB, and tracing needs room too.
const maxHeader = 32 << 10

// New makes a server. The extra options are the caller's: credentials and telemetry.
func New(o Options, extra ...grpc.ServerOption) *Server {
	s := &Server{Options: o, conns: codec.NewConns(), health: health.NewServer(), feed: feed.New(o.Store, o.Pool, o.Ledger, o.Cache, o.Decoders), adding: make(chan struct{}, 1)}
	s.Events = s.Events.withDefaults()
	s.running, s.cut = context.WithCancelCause(context.Background())
	s.grpc = grpc.NewServer(append([]grpc.ServerOption{
		grpc.InTapHandle(s.identify),
		grpc.ChainUnaryInterceptor(s.guardUnary),
		grpc.ChainStreamInterceptor(s.guardStream),
		grpc.UnknownServiceHandler(unknownMethod),
		grpc.ForceServerCodecV2(codec.Codec()),
		grpc.StatsHandler(s.conns),
		grpc.KeepaliveEnforcementPolicy(clientPings),
		grpc.KeepaliveParams(serverPings),
		grpc.MaxHeaderListSize(maxHeader),
	}, extra...)...)
	flight.RegisterFlightServiceServer(s.grpc, s)
	healthpb.RegisterHealthServer(s.grpc, s.health)
	return s
}

// Serve answers on a listener until Drain or Close; several listeners may be served at once.
func (s *Server) Serve(l net.Listener) error { return s.grpc.Serve(reachable{l}) }

// Drain refuses new streams and lets running ones finish until ctx ends; then they end at their next batch border.
// Health says so at once, so that balancers look elsewhere. Close is still to be called.
func (s *Server) Drain(ctx context.Context) {
	s.draining.Store(true)
	s.health.Shutdown()
	s.flights.wait(ctx)
	s.cut(errDraining)
}

// closeGrace is how long a client has to take the last messages and the final status of its streams.
const closeGrace = 2 * time.Second

// Close ends every call and connection, and waits until nothing of theirs is left.
func (s *Server) Close() {
	s.draining.Store(true)
	s.health.Shutdown()
	s.cut(errDraining)
	timer := time.AfterFunc(closeGrace, s.grpc.Stop)
	s.grpc.GracefulStop()
	timer.Stop()
	s.senders.Wait()
}

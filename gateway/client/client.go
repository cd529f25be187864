// Package client is the Go client; it never imports the server.
//
// It is what the commands speak to a gateway with: listing, plans, schemas, streams and actions. Every error keeps the
// gRPC code that the gateway gave it, so that status.Code says what went wrong however deeply it is wrapped.
package client

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/headrace/headrace/gateway/wire"
)

// Token returns the bearer token to send, asked anew for every call so that a rotated one is picked up.
type Token func(ctx context.Context) (string, error)

// Options say how to reach a gateway; the zero value is one without tokens, with the system's roots.
type Options struct {
	Token Token       // nil: no token is sent
	TLS   *tls.Config // for grpc+tls; nil: TLS 1.2 or newer against the system's roots
}

// Client is a connection to one gateway, made when first used and again when lost. It is safe for use by many
// goroutines.
type Client struct {
	conn *grpc.ClientConn
	rpc  flight.FlightServiceClient
}

// Dial prepares a client for a gateway at grpc://HOST:PORT, grpc+tls://HOST:PORT or grpc+unix:///PATH. It does not
// connect: a gateway that is not there fails the first call, with Unavailable.
func Dial(uri string, o Options) (*Client, error) {
	to, err := parseURI(uri)
	if err != nil {
		return nil, err
	}
	security := insecure.NewCredentials()
	if to.tls {
		security = credentials.NewTLS(o.TLS)
		if o.TLS == nil {
			security = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
		}
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(security),
		// A row larger than any limit still comes alone in one message.
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
		// A gateway behind a slow store may be silent for long; a dead one must not be waited for.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}),
	}
	if o.Token != nil {
		options = append(options, grpc.WithPerRPCCredentials(bearer{o.Token}))
	}
	conn, err := grpc.NewClient(to.target, options...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURI, err)
	}
	return &Client{conn: conn, rpc: flight.NewFlightServiceClient(conn)}, nil
}

// Close ends all calls and the connection.
func (c *Client) Close() error { return c.conn.Close() }

// bearer puts the token on every call.
type bearer struct{ token Token }

func (b bearer) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	token, err := b.token(ctx)
	if err != nil {
		return nil, fmt.Errorf("token: %w", err)
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity is false for gateways on loopback and on unix sockets; the gateway refuses to listen in
// plaintext elsewhere unless forced.
func (bearer) RequireTransportSecurity() bool { return false }

// Dataset is one entry of a listing.
type Dataset struct {
	Name   string
	Schema *arrow.Schema // nil when the dataset cannot be served; Meta.Error says why
	Meta   wire.ListedMeta
}

// List returns the datasets the caller may read, by name prefix or glob; "" is all.
func (c *Client) List(ctx context.Context, criteria string) ([]Dataset, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.rpc.ListFlights(ctx, &flight.Criteria{Expression: []byte(criteria)})
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	var all []Dataset
	for {
		info, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
		d, err := dataset(info)
		if err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
		all = append(all, d)
	}
}

func dataset(info *flight.FlightInfo) (d Dataset, err error) {
	path := info.GetFlightDescriptor().GetPath()
	if d.Name, err = wire.DatasetName(path); err != nil {
		d.Name = strconv.Quote(strings.Join(path, "/")) // listed, though no request can name it: its error says so
	}
	if d.Meta, err = meta[wire.ListedMeta](info.GetAppMetadata()); err != nil {
		return d, err
	}
	if len(info.GetSchema()) > 0 {
		d.Schema, err = flight.DeserializeSchema(info.GetSchema(), memory.DefaultAllocator)
	}
	return d, err
}

// Info is what a gateway planned for a request.
type Info struct {
	Schema    *arrow.Schema
	Meta      wire.InfoMeta
	Rows      int64 // over all endpoints; -1: without end
	Bytes     int64 // -1: unknown
	Ordered   bool
	Endpoints []Endpoint
}

// Endpoint is one stream to be fetched with its ticket.
type Endpoint struct {
	Ticket []byte
	Meta   wire.EndpointMeta
}

// Dataset asks for a whole dataset as stored, one endpoint a shard or a group of shards.
func (c *Client) Dataset(ctx context.Context, name string) (*Info, error) {
	return c.info(ctx, named(name))
}

// Plan asks for the plan of a request.
func (c *Client) Plan(ctx context.Context, r *wire.Request) (*Info, error) {
	return c.info(ctx, &flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: r.Canonical()})
}

func named(name string) *flight.FlightDescriptor {
	return &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{name}}
}

func (c *Client) info(ctx context.Context, what *flight.FlightDescriptor) (*Info, error) {
	got, err := c.rpc.GetFlightInfo(ctx, what)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	info := &Info{Rows: got.GetTotalRecords(), Bytes: got.GetTotalBytes(), Ordered: got.GetOrdered()}
	if info.Schema, err = flight.DeserializeSchema(got.GetSchema(), memory.DefaultAllocator); err != nil {
		return nil, fmt.Errorf("plan: schema: %w", err)
	}
	if info.Meta, err = meta[wire.InfoMeta](got.GetAppMetadata()); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	for _, e := range got.GetEndpoint() {
		m, err := meta[wire.EndpointMeta](e.GetAppMetadata())
		if err != nil {
			return nil, fmt.Errorf("plan: endpoint: %w", err)
		}
		info.Endpoints = append(info.Endpoints, Endpoint{Ticket: e.GetTicket().GetTicket(), Meta: m})
	}
	return info, nil
}

// Schema asks for a dataset's schema.
func (c *Client) Schema(ctx context.Context, name string) (*arrow.Schema, error) {
	got, err := c.rpc.GetSchema(ctx, named(name))
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	s, err := flight.DeserializeSchema(got.GetSchema(), memory.DefaultAllocator)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	return s, nil
}

// Action runs an action and returns the bodies of its results.
func (c *Client) Action(ctx context.Context, name string, body []byte) (all [][]byte, err error) {
	err = c.follow(ctx, name, body, func(result []byte) error {
		all = append(all, result)
		return nil
	})
	return all, err
}

// follow runs an action and hands out the bodies of its results as they come.
func (c *Client) follow(ctx context.Context, name string, body []byte, each func([]byte) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.rpc.DoAction(ctx, &flight.Action{Type: name, Body: body})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for {
		result, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = each(result.GetBody())
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
}

// Forecast asks what the epochs of a request would find in memory, and fetch.
func (c *Client) Forecast(ctx context.Context, r *wire.ForecastRequest) (f wire.ForecastMeta, err error) {
	err = c.follow(ctx, "headrace.forecast", r.Marshal(), func(result []byte) error { return json.Unmarshal(result, &f) })
	return f, err
}

// Warm has the gateway load what a request will need, and returns how far that went. told hears of every step.
func (c *Client) Warm(ctx context.Context, r *wire.Request, told func(wire.WarmMeta)) (last wire.WarmMeta, err error) {
	err = c.follow(ctx, "headrace.warm", r.Canonical(), func(result []byte) error {
		last = wire.WarmMeta{}
		if err := json.Unmarshal(result, &last); err != nil {
			return err
		}
		told(last)
		return nil
	})
	return last, err
}

// meta reads metadata; servers that are not ours send none.
func meta[M wire.BatchMeta | wire.InfoMeta | wire.EndpointMeta | wire.ListedMeta](b []byte) (M, error) {
	if len(b) == 0 {
		var none M
		return none, nil
	}
	return wire.ParseMeta[M](b)
}

package client

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headrace/headrace/gateway/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var schema = arrow.NewSchema([]arrow.Field{
	{Name: "id", Type: arrow.PrimitiveTypes.Int64},
	{Name: "text", Type: arrow.BinaryTypes.String, Nullable: true},
}, nil)

// server is a small real Flight server: what it says depends on the name or ticket it is asked for.
type server struct {
	flight.BaseFlightServer
	token atomic.Value // of the last call
}

func (s *server) note(ctx context.Context) {
	md, _ := metadata.FromIncomingContext(ctx)
	s.token.Store(strings.Join(md.Get("authorization"), ","))
}

func bytesOf(s *arrow.Schema) []byte { return flight.SerializeSchema(s, memory.DefaultAllocator) }

func (s *server) ListFlights(c *flight.Criteria, out flight.FlightService_ListFlightsServer) error {
	s.note(out.Context())
	if string(c.GetExpression()) == "refused" {
		return status.Error(codes.Unauthenticated, "who are you")
	}
	sound := &flight.FlightInfo{
		FlightDescriptor: named("team/a"), Schema: bytesOf(schema),
		AppMetadata: wire.ListedMeta{Rows: 7, Bytes: 70, Shards: 2, Format: "parquet", Skipped: 1}.Marshal(),
	}
	broken := &flight.FlightInfo{FlightDescriptor: named("b"), AppMetadata: wire.ListedMeta{Error: "mixed formats"}.Marshal()}
	return errors.Join(out.Send(sound), out.Send(broken))
}

func (s *server) GetFlightInfo(ctx context.Context, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	s.note(ctx)
	if d.GetType() == flight.DescriptorCMD {
		if _, err := wire.Parse(d.GetCmd()); err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
	} else if d.GetPath()[0] != "team/a" {
		return nil, status.Error(codes.NotFound, "no such dataset")
	}
	return &flight.FlightInfo{
		Schema: bytesOf(schema), TotalRecords: 7, TotalBytes: -1, Ordered: true,
		AppMetadata: wire.InfoMeta{Plan: "p", Rows: 7, Steps: 2}.Marshal(),
		Endpoint: []*flight.FlightEndpoint{
			{Ticket: &flight.Ticket{Ticket: []byte("good")}, AppMetadata: wire.EndpointMeta{Shard: "k", Rows: 7}.Marshal()},
			{Ticket: &flight.Ticket{Ticket: []byte("late")}},
		},
	}, nil
}

func (s *server) GetSchema(ctx context.Context, d *flight.FlightDescriptor) (*flight.SchemaResult, error) {
	s.note(ctx)
	if d.GetPath()[0] != "team/a" {
		return nil, status.Error(codes.NotFound, "no such dataset")
	}
	return &flight.SchemaResult{Schema: bytesOf(schema)}, nil
}

func (s *server) DoAction(a *flight.Action, out flight.FlightService_DoActionServer) error {
	s.note(out.Context())
	if a.GetType() != "echo" {
		return status.Error(codes.Unimplemented, "no such action")
	}
	return errors.Join(out.Send(&flight.Result{Body: a.GetBody()}), out.Send(&flight.Result{Body: []byte("end")}))
}

func (s *server) DoGet(t *flight.Ticket, out flight.FlightService_DoGetServer) error {
	s.note(out.Context())
	ticket := string(t.GetTicket())
	switch ticket {
	case "early":
		return status.Error(codes.FailedPrecondition, "snapshot gone")
	case "nothing":
		return nil
	case "garbage":
		return out.Send(&flight.FlightData{DataHeader: []byte("garbage")})
	}
	w := flight.NewRecordWriter(out, ipc.WithSchema(schema))
	for i := range int64(3) {
		if ticket == "late" && i == 2 {
			return status.Error(codes.DataLoss, "a.parquet: bad page")
		}
		b := batch(i)
		err := w.WriteWithAppMetadata(b, wire.BatchMeta{Step: i, Sum: fmt.Sprint(i)}.Marshal())
		b.Release()
		if err != nil {
			return err
		}
		if ticket == "marker" {
			return out.Send(&flight.FlightData{AppMetadata: []byte("{}")})
		}
	}
	if ticket == "endless" {
		<-out.Context().Done()
		return out.Context().Err()
	}
	return w.Close()
}

// batch makes one of 8 MB, above the receive limit that gRPC has by default.
func batch(n int64) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).Append(n)
	b.Field(1).(*array.StringBuilder).Append(strings.Repeat("x", 8<<20))
	return b.NewRecordBatch()
}

// serve runs the server on l until the test ends.
func serve(t *testing.T, l net.Listener, options ...grpc.ServerOption) *server {
	t.Helper()
	s := &server{}
	g := grpc.NewServer(options...)
	flight.RegisterFlightServiceServer(g, s)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

func listen(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func dial(t *testing.T, uri string, o Options) *Client {
	t.Helper()
	c, err := Dial(uri, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// start returns a client of a fresh server on loopback.
func start(t *testing.T, o Options) (*Client, *server) {
	t.Helper()
	l := listen(t, "tcp", "127.0.0.1:0")
	s := serve(t, l)
	return dial(t, "grpc://"+l.Addr().String(), o), s
}

func TestList(t *testing.T) {
	c, _ := start(t, Options{})
	all, err := c.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || all[0].Name != "team/a" || !all[0].Schema.Equal(schema) || all[0].Meta.Rows != 7 {
		t.Errorf("%+v", all)
	}
	if all[1].Name != "b" || all[1].Schema != nil || all[1].Meta.Error != "mixed formats" {
		t.Errorf("%+v", all[1])
	}
}

func TestPlanAndSchema(t *testing.T) {
	c, _ := start(t, Options{})
	for name, ask := range map[string]func() (*Info, error){
		"dataset": func() (*Info, error) { return c.Dataset(t.Context(), "team/a") },
		"plan":    func() (*Info, error) { return c.Plan(t.Context(), wire.New("team/a")) },
	} {
		info, err := ask()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := &Info{
			info.Schema,
			wire.InfoMeta{Plan: "p", Rows: 7, Steps: 2},
			7, -1, true,
			[]Endpoint{{[]byte("good"), wire.EndpointMeta{Shard: "k", Rows: 7}}, {[]byte("late"), wire.EndpointMeta{}}},
		}
		if !reflect.DeepEqual(info, want) || !info.Schema.Equal(schema) {
			t.Errorf("%s: %+v", name, info)
		}
	}
	if s, err := c.Schema(t.Context(), "team/a"); err != nil || !s.Equal(schema) {
		t.Error(s, err)
	}
}

func TestStreamToItsEnd(t *testing.T) {
	c, _ := start(t, Options{})
	s, err := c.Stream(t.Context(), []byte("good"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !s.Schema().Equal(schema) {
		t.Error(s.Schema())
	}
	for i := range int64(3) {
		b, m, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		if got := b.Column(0).(*array.Int64).Value(0); got != i || m.Step != i || m.Sum != fmt.Sprint(i) {
			t.Errorf("batch %d: id %d, %+v", i, got, m)
		}
	}
	for range 2 {
		if _, _, err := s.Next(); !errors.Is(err, io.EOF) || err.Error() != "EOF" {
			t.Errorf("at the end: %v", err)
		}
	}
}

// Whatever goes wrong keeps its code, and is never taken for the end.
func TestErrorsKeepTheirCode(t *testing.T) {
	c, _ := start(t, Options{})
	drain := func(ticket string) error {
		s, err := c.Stream(t.Context(), []byte(ticket))
		if err != nil {
			return err
		}
		defer s.Close()
		for {
			if _, _, err := s.Next(); err != nil {
				return err
			}
		}
	}
	_, list := c.List(t.Context(), "refused")
	_, info := c.Dataset(t.Context(), "missing")
	_, plan := c.Plan(t.Context(), wire.New("../up"))
	_, schema := c.Schema(t.Context(), "missing")
	_, action := c.Action(t.Context(), "unknown", nil)
	for name, e := range map[string]struct {
		err  error
		code codes.Code
		text string
	}{
		"list":   {list, codes.Unauthenticated, "who are you"},
		"info":   {info, codes.NotFound, "no such dataset"},
		"plan":   {plan, codes.InvalidArgument, "not a dataset's name"},
		"schema": {schema, codes.NotFound, "no such dataset"},
		"action": {action, codes.Unimplemented, "no such action"},
		"early":  {drain("early"), codes.FailedPrecondition, "snapshot gone"},
		"late":   {drain("late"), codes.DataLoss, "a.parquet: bad page"},
	} {
		if status.Code(e.err) != e.code || !strings.Contains(e.err.Error(), e.text) {
			t.Errorf("%s: %v", name, e.err)
		}
	}
	for _, ticket := range []string{"nothing", "garbage", "marker"} {
		if err := drain(ticket); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", ticket, err)
		}
	}
}

func TestAction(t *testing.T) {
	c, _ := start(t, Options{})
	got, err := c.Action(t.Context(), "echo", []byte("body"))
	if err != nil || !reflect.DeepEqual(got, [][]byte{[]byte("body"), []byte("end")}) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestCloseInMidStream(t *testing.T) {
	c, _ := start(t, Options{})
	for _, ticket := range []string{"good", "endless"} {
		s, err := c.Stream(t.Context(), []byte(ticket))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Next(); err != nil {
			t.Error(err)
		}
		s.Close()
	}
	ctx, cancel := context.WithCancel(t.Context())
	s, err := c.Stream(ctx, []byte("endless"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	cancel()
	for err == nil {
		_, _, err = s.Next()
	}
	if status.Code(err) != codes.Canceled {
		t.Error(err)
	}
}

func TestTokenIsAskedForEveryCall(t *testing.T) {
	calls := 0
	c, s := start(t, Options{Token: func(context.Context) (string, error) {
		calls++
		if calls == 3 {
			return "", errors.New("no key file")
		}
		return fmt.Sprintf("token-%d", calls), nil
	}})
	for i := 1; i <= 2; i++ {
		if _, err := c.Schema(t.Context(), "team/a"); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("Bearer token-%d", i); s.token.Load() != want {
			t.Errorf("got %q, want %q", s.token.Load(), want)
		}
	}
	if _, err := c.Schema(t.Context(), "team/a"); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "no key file") {
		t.Error(err)
	}
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	serve(t, listen(t, "unix", path))
	c := dial(t, "grpc+unix://"+path, Options{})
	if _, err := c.Schema(t.Context(), "team/a"); err != nil {
		t.Error(err)
	}
}

func TestTLS(t *testing.T) {
	cert, pool := certificate(t)
	l := listen(t, "tcp", "127.0.0.1:0")
	serve(t, l, grpc.Creds(credentials.NewServerTLSFromCert(&cert)))
	uri := "grpc+tls://" + l.Addr().String()
	if _, err := dial(t, uri, Options{TLS: &tls.Config{RootCAs: pool}}).Schema(t.Context(), "team/a"); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]*Client{"unknown root": dial(t, uri, Options{}), "plaintext": dial(t, "grpc://"+l.Addr().String(), Options{})} {
		if _, err := c.Schema(t.Context(), "team/a"); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestNobodyThere(t *testing.T) {
	l := listen(t, "tcp", "127.0.0.1:0")
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := dial(t, "grpc://"+address, Options{}).List(t.Context(), ""); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}

func TestURIs(t *testing.T) {
	for uri, want := range map[string]address{
		"grpc://127.0.0.1:8815":       {"127.0.0.1:8815", false},
		"grpc://[::1]:8815/":          {"[::1]:8815", false},
		"grpc+tls://data.example:443": {"data.example:443", true},
		"grpc+unix:///run/headrace":   {"unix:///run/headrace", false},
	} {
		if got, err := parseURI(uri); err != nil || got != want {
			t.Errorf("%s: %+v, %v", uri, got, err)
		}
	}
	for _, uri := range []string{"", "127.0.0.1:8815", "http://h:1", "grpc://", "grpc://h", "grpc://:1", "grpc://h:", "grpc+unix://run/x", "GRPC://h:1"} {
		if _, err := Dial(uri, Options{}); !errors.Is(err, ErrURI) {
			t.Errorf("%q: %v", uri, err)
		}
	}
}

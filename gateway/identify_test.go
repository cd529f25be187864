package gateway_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// calls are all methods there are, and some that are not, each with the code that a known caller gets for an empty or
// foreign argument.
var calls = []struct {
	method string
	stream bool
	known  codes.Code
}{
	{"/arrow.flight.protocol.FlightService/Handshake", true, codes.Unimplemented},
	{"/arrow.flight.protocol.FlightService/ListFlights", true, codes.OK},
	{"/arrow.flight.protocol.FlightService/GetFlightInfo", false, codes.InvalidArgument},
	{"/arrow.flight.protocol.FlightService/PollFlightInfo", false, codes.Unimplemented},
	{"/arrow.flight.protocol.FlightService/GetSchema", false, codes.InvalidArgument},
	{"/arrow.flight.protocol.FlightService/DoGet", true, codes.InvalidArgument},
	{"/arrow.flight.protocol.FlightService/DoPut", true, codes.Unimplemented},
	{"/arrow.flight.protocol.FlightService/DoExchange", true, codes.Unimplemented},
	{"/arrow.flight.protocol.FlightService/DoAction", true, codes.Unimplemented},
	{"/arrow.flight.protocol.FlightService/ListActions", true, codes.OK},
	{"/arrow.flight.protocol.FlightService/Nothing", false, codes.Unimplemented},
	{"/grpc.health.v1.Health/Check", false, codes.OK},
	{"/grpc.health.v1.Health/Watch", true, codes.OK},
	{"/no.such.Service/Method", false, codes.Unimplemented},
	{"/no.such.Service/Stream", true, codes.Unimplemented},
}

// call makes the call with raw bytes as its message and returns the status of its end, or OK once an answer has come.
func call(ctx context.Context, conn *grpc.ClientConn, method string, streaming bool, message []byte) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	codec := grpc.ForceCodec(rawBytes{})
	if !streaming {
		var answer []byte
		return conn.Invoke(ctx, method, message, &answer, codec)
	}
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, codec)
	if err != nil {
		return err
	}
	if err := s.SendMsg(message); err != nil && err != io.EOF {
		return err
	}
	_ = s.CloseSend()
	var answer []byte
	if err := s.RecvMsg(&answer); err != io.EOF {
		return err
	}
	return nil
}

// rawBytes sends what it is given.
type rawBytes struct{}

func (rawBytes) Marshal(v any) ([]byte, error)   { return v.([]byte), nil }
func (rawBytes) Unmarshal(b []byte, v any) error { *v.(*[]byte) = b; return nil }
func (rawBytes) Name() string                    { return "proto" }

func TestB41B43EveryCallNeedsAnIdentity(t *testing.T) {
	h := start(t, twoTeams(t))
	good := h.token(t, "a/**")
	for _, who := range []struct {
		name    string
		headers []string
	}{
		{"nobody", nil},
		{"empty", []string{""}},
		{"no scheme", []string{good}},
		{"basic", []string{"Basic dXNlcjpwYXNz"}},
		{"forged", []string{"Bearer " + good[:len(good)-4] + "AAAA"}},
		{"two", []string{"Bearer " + good, "Bearer " + good}},
		{"scheme only", []string{"Bearer "}},
	} {
		for _, c := range calls {
			for _, message := range [][]byte{nil, []byte("\xff\xff not a message"), make([]byte, 5<<20)} {
				err := call(bearer(t.Context(), who.headers...), h.dial(t), c.method, c.stream, message)
				if status.Code(err) != codes.Unauthenticated {
					t.Errorf("%s calls %s with %d bytes: %v", who.name, c.method, len(message), err)
				}
			}
		}
	}
}

func TestKnownCallers(t *testing.T) {
	h := start(t, twoTeams(t))
	for _, scheme := range []string{"Bearer ", "bearer ", "BEARER ", "BeArEr  "} {
		for _, c := range calls {
			err := call(bearer(t.Context(), scheme+h.token(t, "a/**")), h.dial(t), c.method, c.stream, nil)
			if status.Code(err) != c.known {
				t.Errorf("%s%s: %v, want %v", scheme, c.method, err, c.known)
			}
		}
	}
}

// What may not be read looks like what does not exist.
func TestB43RightsOnEveryCall(t *testing.T) {
	h := start(t, twoTeams(t))
	c := h.client(t)
	ctx := bearer(t.Context(), "Bearer "+h.token(t, "a/**", `{"datasets": "b/*", "columns": ["id"]}`))
	narrow := bearer(t.Context(), "Bearer "+h.token(t, "a/**"))

	texts := map[string]string{}
	for _, name := range []string{"b/two", "b/none"} {
		d := &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: strings.Split(name, "/")}
		_, err1 := c.GetFlightInfo(narrow, d)
		_, err2 := c.GetSchema(narrow, d)
		err3 := drain(c.DoGet(narrow, &flight.Ticket{Ticket: []byte(`{"dataset":"` + name + `"}`)}))
		for _, err := range []error{err1, err2, err3} {
			if status.Code(err) != codes.NotFound {
				t.Errorf("%s: %v", name, err)
			}
			texts[strings.ReplaceAll(status.Convert(err).Message(), name, "X")] = name
		}
	}
	if len(texts) != 1 {
		t.Errorf("a hidden dataset is told from a missing one: %v", texts)
	}

	// A ticket does not carry rights: redeemed by somebody else it is nothing.
	d := &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{"b", "two"}}
	info, err := c.GetFlightInfo(ctx, d)
	if err != nil {
		t.Fatal(err)
	}
	if err := drain(c.DoGet(narrow, info.Endpoint[0].Ticket)); status.Code(err) != codes.NotFound {
		t.Errorf("another's ticket: %v", err)
	}
	if err := drain(c.DoGet(ctx, info.Endpoint[0].Ticket)); err != nil {
		t.Errorf("the own ticket: %v", err)
	}

	// Columns that are not granted are not there, wherever they are named.
	hidden := drain(c.DoGet(ctx, &flight.Ticket{Ticket: []byte(`{"dataset":"b/two","columns":["secret"]}`)}))
	missing := drain(c.DoGet(ctx, &flight.Ticket{Ticket: []byte(`{"dataset":"b/two","columns":["nothing"]}`)}))
	if a, b := status.Convert(hidden), status.Convert(missing); a.Code() != codes.NotFound ||
		strings.ReplaceAll(a.Message(), "secret", "nothing") != b.Message() {
		t.Errorf("hidden column: %v\nmissing column: %v", hidden, missing)
	}
	schema, err := flight.DeserializeSchema(info.Schema, nil)
	if err != nil || schema.NumFields() != 1 || schema.Field(0).Name != "id" {
		t.Errorf("schema of granted columns: %v %v", schema, err)
	}
}

// What is wrong with the files of a dataset may name columns that are not granted.
func TestErrorsNameNoHiddenColumn(t *testing.T) {
	dir := t.TempDir()
	python(t, `
import os
for name, columns in {"types": [{"secret": ["x"]}, {"secret": [1]}], "lacks": [{"secret": [1]}, {"id": [1]}]}.items():
    os.makedirs(f"{root}/a/{name}")
    for i, shard in enumerate(columns):
        pq.write_table(pa.table({"id": [1], **shard}), f"{root}/a/{name}/{i}.parquet")
os.makedirs(f"{root}/a/flaw")
pq.write_table(pa.table({"id": [1]}), f"{root}/a/flaw/0.parquet")
pq.write_table(pa.table({"id": [1], "secret": [1]}), f"{root}/a/flaw/1.parquet", compression="lz4", write_statistics=False)
b = open(f"{root}/a/flaw/1.parquet", "rb").read()
open(f"{root}/a/flaw/1.parquet", "wb").write(b[:4] + b[40:])
`, dir)
	h := start(t, dir)
	c := h.client(t)
	all := bearer(t.Context(), "Bearer "+h.token(t, "a/**"))
	some := bearer(t.Context(), "Bearer "+h.token(t, `{"datasets": "a/*", "columns": ["id"]}`))
	for _, name := range []string{"types", "lacks", "flaw"} {
		ticket := &flight.Ticket{Ticket: []byte(`{"dataset":"a/` + name + `"}`)}
		told, kept := status.Convert(drain(c.DoGet(all, ticket))), status.Convert(drain(c.DoGet(some, ticket)))
		if told.Code() != kept.Code() || kept.Code() == codes.OK || strings.Contains(kept.Message(), "secret") || strings.Contains(kept.Message(), ".parquet") {
			t.Errorf("%s: %v\nto those who may read all: %v", name, kept, told)
		}
		if name != "flaw" && !strings.Contains(told.Message(), "secret") {
			t.Errorf("%s: who may read all is told %v", name, told)
		}
		if log := h.refused(); log[len(log)-1] != told.Message() {
			t.Errorf("%s: logged is %q", name, log)
		}
	}
	s, err := c.ListFlights(some, &flight.Criteria{})
	if err != nil {
		t.Fatal(err)
	}
	listed := 0
	for info, err := s.Recv(); err == nil; info, err = s.Recv() {
		listed++
		if meta := string(info.AppMetadata); strings.Contains(meta, "secret") || !strings.Contains(meta, "more is told to those") {
			t.Errorf("listed as %s", meta)
		}
	}
	if listed != 3 {
		t.Errorf("%d are listed", listed)
	}
}

func TestListings(t *testing.T) {
	h := start(t, twoTeams(t))
	for _, c := range []struct {
		grants   []string
		criteria string
		want     string
	}{
		{[]string{"**"}, "", "a/one b/two"},
		{[]string{"**"}, "a/", "a/one"},
		{[]string{"**"}, "*/two", "b/two"},
		{[]string{"**"}, "**", "a/one b/two"},
		{[]string{"a/*"}, "", "a/one"},
		{[]string{"a/*"}, "b", ""},
		{nil, "", ""},
	} {
		ctx := bearer(t.Context(), "Bearer "+h.token(t, c.grants...))
		s, err := h.client(t).ListFlights(ctx, &flight.Criteria{Expression: []byte(c.criteria)})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for {
			info, err := s.Recv()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, strings.Join(info.FlightDescriptor.Path, "/"))
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("grants %v, criteria %q: %q, want %q", c.grants, c.criteria, got, c.want)
		}
	}
}

// drain reads a stream to its end and returns how it ended.
func drain(s flight.FlightService_DoGetClient, err error) error {
	for err == nil {
		_, err = s.Recv()
	}
	if err == io.EOF {
		return nil
	}
	return err
}

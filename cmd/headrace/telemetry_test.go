package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/headrace/headrace/configs"
	"github.com/headrace/headrace/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver is an OTLP collector that keeps what it is sent.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans []*tracepb.Span
}

func (r *receiver) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range req.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			r.spans = append(r.spans, scope.Spans...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// listenTCP opens a loopback port.
func listenTCP(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// folder makes a dataset of 1,000 rows.
func folder(t *testing.T) string {
	t.Helper()
	python := os.Getenv("HEADRACE_PYTHON")
	if python == "" {
		python = "../../.venv/bin/python"
		if _, err := os.Stat(python); err != nil {
			t.Skip("no Python environment: run make venv")
		}
	}
	dir := t.TempDir()
	script := "import sys, pyarrow as pa, pyarrow.parquet as pq\npq.write_table(pa.table({'a': range(1000)}), sys.argv[1])"
	if out, err := exec.Command(python, "-c", script, filepath.Join(dir, "x.parquet")).CombinedOutput(); err != nil {
		t.Fatalf("python: %v\n%s", err, out)
	}
	return dir
}

// One DoGet is one trace: the client's span, the RPC's, and a child for each stage.
func TestTraceOfOneRead(t *testing.T) {
	dir := folder(t) // before anything runs: it may skip the test
	var r receiver
	otlp := grpc.NewServer()
	collector.RegisterTraceServiceServer(otlp, &r)
	port := listenTCP(t)
	var serving sync.WaitGroup
	serving.Go(func() { _ = otlp.Serve(port) })

	cfg, err := configs.Load(configs.Source{Flags: map[string]string{"telemetry.otlp": "http://" + port.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	var log lockedBuffer
	a, err := newApp(t.Context(), cfg, []storage.Mount{{URL: dir, Tree: true}}, newLog(&log, "info"), anybody)
	if err != nil {
		t.Fatal(err)
	}
	flights := listenTCP(t)
	serving.Go(func() { _ = a.gateway.Serve(flights) })
	const trace = "0af7651916cd43dd8448eb211c80319c"
	readAll(t, flights.Addr().String(), filepath.Base(dir), "00-"+trace+"-b7ad6b7169203331-01")
	a.close()
	otlp.GracefulStop()
	serving.Wait()

	byName := map[string]*tracepb.Span{}
	for _, s := range r.spans {
		if hex.EncodeToString(s.TraceId) == trace {
			byName[s.Name] = s
		}
	}
	rpc := byName["arrow.flight.protocol.FlightService/DoGet"]
	if rpc == nil || hex.EncodeToString(rpc.ParentSpanId) != "b7ad6b7169203331" {
		t.Fatalf("no span of the RPC under the client's: %v", byName)
	}
	for child, parent := range map[string]string{"plan": rpc.Name, "admission": rpc.Name, "first batch": rpc.Name, "load": rpc.Name, "decode": rpc.Name} {
		span := byName[child]
		if span == nil || hex.EncodeToString(span.ParentSpanId) != hex.EncodeToString(byName[parent].SpanId) {
			t.Errorf("no span %q under %q: %v", child, parent, span)
		}
	}
	checkLog(t, log.String(), trace)
}

// checkLog finds the audit line of the read, with the ids of its trace.
func checkLog(t *testing.T, log, trace string) {
	t.Helper()
	for line := range strings.Lines(log) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("log line %q: %v", line, err)
		}
		if entry["msg"] == "read" && entry["method"] == "DoGet" && entry["trace_id"] == trace && entry["rows"] == 1000.0 {
			return
		}
	}
	t.Errorf("no audit line with the trace id:\n%s", log)
}

func readAll(t *testing.T, address, dataset, traceparent string) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", traceparent)
	stream, err := flight.NewFlightServiceClient(conn).DoGet(ctx, &flight.Ticket{Ticket: []byte(`{"dataset":"` + dataset + `"}`)})
	for err == nil {
		_, err = stream.Recv()
	}
	if err != io.EOF {
		t.Fatal(err)
	}
}

// lockedBuffer may be written by several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

package codec

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

// clientEnv makes the test binary a client of the server at that address; see leases_test.go.
const clientEnv = "HEADRACE_CODEC_TEST_CLIENT"

func TestMain(m *testing.M) {
	if address := os.Getenv(clientEnv); address != "" {
		victim(address)
		return
	}
	var err error
	if madeDir, err = os.MkdirTemp("", "codec"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(madeDir)
		os.Exit(code)
	}))
}

// The Python client's data is made once, in a folder that TestMain removes.
var (
	madeDir  string
	madeOnce sync.Once
)

// store is a pool and a grant whose end the test checks: no memory, no lease, no charge may be left.
type store struct {
	pool   *frame.Pool
	ledger *budget.Ledger
	grant  *budget.Grant
}

func newStore(t testing.TB) *store {
	t.Helper()
	s := &store{pool: frame.NewPool(frame.Options{Idle: 16 << 20, Poison: true}), ledger: budget.New(budget.Options{Limit: 2 << 30})}
	var err error
	if s.grant, err = s.ledger.Admit(t.Context(), 1<<20); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.grant.Close()
		if got := s.pool.Stats(); got.Leases != 0 || got.Frames != 0 || got.Regions != 0 {
			t.Errorf("memory left: %+v", got)
		}
		if got := s.ledger.Stats(); len(got.Used) != 0 || got.Reserved != 0 {
			t.Errorf("charges left: %+v", got)
		}
		if err := s.pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// frame copies a batch into a frame.
func (s *store) frame(t testing.TB, rec arrow.RecordBatch) *frame.Lease {
	t.Helper()
	l, err := s.pool.Assemble(s.grant, budget.Frames, rec.Schema(), []frame.Piece{frame.PieceOf(rec, 0, rec.NumRows())})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// server is a Flight server on loopback whose DoGet is the test's.
type server struct {
	flight.BaseFlightServer
	*grpc.Server
	conns   *Conns
	address string
	serving sync.WaitGroup
	doGet   func(ticket []byte, stream grpc.ServerStream) error
}

func (s *server) DoGet(ticket *flight.Ticket, stream flight.FlightService_DoGetServer) error {
	return s.doGet(ticket.GetTicket(), stream)
}

func serve(t testing.TB, doGet func([]byte, grpc.ServerStream) error, more ...grpc.ServerOption) *server {
	t.Helper()
	s := &server{conns: NewConns(), doGet: doGet}
	s.Server = grpc.NewServer(append(more, grpc.ForceServerCodecV2(Codec()), grpc.StatsHandler(s.conns))...)
	flight.RegisterFlightServiceServer(s.Server, s)
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = lis.Addr().String()
	s.serving.Go(func() { _ = s.Serve(lis) })
	t.Cleanup(func() {
		s.Stop()
		s.serving.Wait()
		s.waitForQueue(t)
	})
	return s
}

// waitForQueue waits until every message has given back what it held.
func (s *server) waitForQueue(t testing.TB) {
	t.Helper()
	eventually(t, "messages are given back", func() bool {
		messages, bytes := s.conns.Queued()
		return messages == 0 && bytes == 0
	})
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func dial(t testing.TB, address string) (*grpc.ClientConn, flight.FlightServiceClient) {
	t.Helper()
	c, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, flight.NewFlightServiceClient(c)
}

// schemaBytes is the flatbuffer of a schema.
func schemaBytes(s *arrow.Schema) []byte {
	b := flight.SerializeSchema(s, memory.DefaultAllocator)
	return b[8 : 8+binary.LittleEndian.Uint32(b[4:])]
}

// send sends a message and releases it.
func send(stream grpc.ServerStream, m *Message) error {
	defer m.Release()
	return stream.SendMsg(m)
}

// stream is the Arrow IPC stream of one encoded batch.
func (b *Body) stream(s *arrow.Schema) []byte {
	var out bytes.Buffer
	message := func(header []byte) {
		n := (len(header) + 7) &^ 7
		_ = binary.Write(&out, binary.LittleEndian, []uint32{0xffffffff, uint32(n)})
		out.Write(header)
		out.Write(make([]byte, n-len(header)))
	}
	message(schemaBytes(s))
	message(b.header)
	for _, p := range b.parts {
		out.Write(p.data)
	}
	return out.Bytes()
}

// decode reads the one batch of an IPC stream with arrow-go.
func decode(t testing.TB, stream []byte) arrow.RecordBatch {
	t.Helper()
	r, err := ipc.NewReader(bytes.NewReader(stream))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	if !r.Next() {
		t.Fatalf("no batch: %v", r.Err())
	}
	rec := r.RecordBatch()
	rec.Retain()
	return rec
}

// python finds the interpreter that has pyarrow.
func python(t testing.TB) string {
	t.Helper()
	if p := os.Getenv("HEADRACE_PYTHON"); p != "" {
		return p
	}
	p, err := filepath.Abs("../../.venv/bin/python")
	if err == nil {
		_, err = os.Stat(p)
	}
	if err != nil {
		t.Skip("no Python with pyarrow: neither HEADRACE_PYTHON nor .venv exists")
	}
	return p
}

func runClient(t testing.TB, args ...string) []byte {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), python(t), append([]string{"testdata/client.py"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// job is one comparison that the Python client makes.
type job struct {
	Ticket  *ticket `json:"ticket,omitempty"`
	File    string  `json:"file"`
	From    int64   `json:"from"`
	N       int64   `json:"n"`
	URI     string  `json:"uri,omitempty"`
	Stream  string  `json:"stream,omitempty"`
	Aligned bool    `json:"aligned,omitempty"` // every buffer on 16 bytes
}

// ticket names rows of a file and how to send them.
type ticket struct {
	File        string
	From, N     int64
	Compression Compression
}

func writeJobs(t testing.TB, dir string, jobs []job) {
	t.Helper()
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	for _, j := range jobs {
		if err := enc.Encode(j); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "jobs.jsonl"), out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// made is the folder of the Python client's data and its batches by file name.
func made(t testing.TB) (dir string, batches map[string]arrow.RecordBatch) {
	t.Helper()
	python(t)
	madeOnce.Do(func() { runClient(t, "make", madeDir) })
	files, err := filepath.Glob(filepath.Join(madeDir, "*.arrows"))
	if err != nil || len(files) == 0 {
		t.Fatal("no data made: ", err)
	}
	batches = map[string]arrow.RecordBatch{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		batches[filepath.Base(f)] = decode(t, b)
	}
	return madeDir, batches
}

// receive reads a stream to its end and gives each record batch with its metadata.
func receive(stream flight.FlightService_DoGetClient, each func(rec arrow.RecordBatch, appMetadata []byte) error) error {
	r, err := flight.NewRecordReader(stream)
	if err != nil {
		return err
	}
	defer r.Release()
	for r.Next() {
		if err := each(r.RecordBatch(), r.LatestAppMetadata()); err != nil {
			return err
		}
	}
	if err := r.Err(); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

package codec

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

var sampleSchema = arrow.NewSchema([]arrow.Field{
	{Name: "id", Type: arrow.PrimitiveTypes.Int64},
	{Name: "name", Type: arrow.BinaryTypes.String},
	{Name: "flag", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
}, nil)

// sample is a batch whose every value follows from its number.
func sample(number, rows int) arrow.RecordBatch {
	b := array.NewRecordBuilder(heap, sampleSchema)
	defer b.Release()
	for i := range rows {
		b.Field(0).(*array.Int64Builder).Append(int64(number*1_000_003 + i))
		b.Field(1).(*array.StringBuilder).Append(fmt.Sprintf("batch %d row %d", number, i))
		if flag := b.Field(2).(*array.BooleanBuilder); i%5 == 0 {
			flag.AppendNull()
		} else {
			flag.Append((i+number)%3 == 0)
		}
	}
	return b.NewRecordBatch()
}

// checksum covers every value of a sample, as its reader sees it.
func checksum(rec arrow.RecordBatch) uint32 {
	ids, names, flags := rec.Column(0).(*array.Int64), rec.Column(1).(*array.String), rec.Column(2).(*array.Boolean)
	sum := crc32.ChecksumIEEE(arrow.Int64Traits.CastToBytes(ids.Int64Values()))
	sum = crc32.Update(sum, crc32.IEEETable, names.ValueBytes())
	rows := make([]byte, 0, 5*rec.NumRows())
	for i := range int(rec.NumRows()) {
		rows = binary.LittleEndian.AppendUint32(rows, uint32(names.ValueOffset(i)-names.ValueOffset(0)))
		rows = append(rows, 0)
		if flags.IsValid(i) && flags.Value(i) {
			rows[len(rows)-1] = 1
		}
	}
	return crc32.Update(sum, crc32.IEEETable, rows)
}

// endless serves one frame again and again until a send fails, each time under a lease of its own.
func endless(s *store, lease *frame.Lease, rows int64) func([]byte, grpc.ServerStream) error {
	return func(_ []byte, stream grpc.ServerStream) error {
		if err := send(stream, SchemaMessage(schemaBytes(lease.Batch().Schema()), nil)); err != nil {
			return err
		}
		enc := NewEncoder(None, s.pool, s.grant)
		for {
			rec := lease.Batch().NewSlice(1, 1+rows)
			body, err := enc.Encode(rec)
			rec.Release()
			if err != nil {
				return err
			}
			if err := send(stream, body.Message(stream.Context(), nil, lease.Share())); err != nil {
				return err
			}
		}
	}
}

// victim reads one batch, says so and waits to be killed.
func victim(address string) {
	c, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		panic(err)
	}
	stream, err := flight.NewFlightServiceClient(c).DoGet(context.Background(), &flight.Ticket{})
	for range 2 {
		if err == nil {
			_, err = stream.Recv()
		}
	}
	fmt.Println("read", err)
	select {}
}

// B36: 200 clients read one batch and are killed in mid-stream. Goroutines, open files, leases and memory are back
// afterwards.
func TestB36_ClientsKilledInMidStream(t *testing.T) {
	s := newStore(t)
	lease := s.frame(t, sample(1, 40_000))
	defer lease.Release()
	srv := serve(t, endless(s, lease, 39_000))
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const clients, atOnce = 200, 10
	var wait sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for range clients {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			if err := killClient(t.Context(), self, srv.address); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	srv.waitForQueue(t)
	eventually(t, "leases are back", func() bool { return s.pool.Stats().Leases == 1 })
	eventually(t, "goroutines are back", func() bool { return runtime.NumGoroutine() <= goroutines })
	eventually(t, "open files are back", func() bool { return openFiles(t) <= files })
}

// killClient starts a client, waits until it has read a batch, and kills it.
func killClient(ctx context.Context, self, address string) error {
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), clientEnv+"="+address)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	line := make([]byte, 64)
	n, err := out.Read(line)
	if err == nil && string(line[:n]) != "read <nil>\n" {
		err = fmt.Errorf("the client says %q", line[:n])
	}
	kill := cmd.Process.Kill()
	_ = cmd.Wait() // "signal: killed"
	return errors.Join(err, kill)
}

func openFiles(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0 // not Linux
	}
	return len(entries)
}

// B36 again: 200 streams are cancelled, and give their leases back while their connection goes on.
func TestB36_ClientsThatCancel(t *testing.T) {
	s := newStore(t)
	lease := s.frame(t, sample(1, 12_000))
	defer lease.Release()
	srv := serve(t, endless(s, lease, 11_000))
	_, client := dial(t, srv.address)
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := client.DoGet(ctx, &flight.Ticket{})
		for range 3 {
			if err == nil {
				_, err = stream.Recv()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		cancel()
	}
	eventually(t, "leases are back", func() bool {
		runtime.GC() // for frames that gRPC drops without freeing
		return s.pool.Stats().Leases == 1
	})
}

// A message that gRPC refuses to send gives its lease back, and the client gets an error instead of an early end.
func TestLeasesAfterSendError(t *testing.T) {
	s := newStore(t)
	lease := s.frame(t, sample(1, 40_000))
	defer lease.Release()
	srv := serve(t, endless(s, lease, 39_000), grpc.MaxSendMsgSize(1<<20))
	_, client := dial(t, srv.address)
	stream, err := client.DoGet(t.Context(), &flight.Ticket{})
	for err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("the client got %v", err)
	}
	srv.waitForQueue(t)
	if got := s.pool.Stats().Leases; got != 1 {
		t.Errorf("%d leases", got)
	}
}

// A graceful stop lets running streams finish; a stop ends them. Both give every lease back.
func TestLeasesAfterDrain(t *testing.T) {
	s := newStore(t)
	lease := s.frame(t, sample(1, 10_000))
	defer lease.Release()
	drain := make(chan struct{})
	srv := serve(t, func(_ []byte, stream grpc.ServerStream) error {
		enc := NewEncoder(LZ4, s.pool, s.grant)
		err := send(stream, SchemaMessage(schemaBytes(lease.Batch().Schema()), nil))
		for more := 10; more > 0 && err == nil; {
			var body *Body
			if body, err = enc.Encode(lease.Batch()); err == nil {
				err = send(stream, body.Message(stream.Context(), nil, lease.Share()))
			}
			select {
			case <-drain:
				more--
			default:
			}
		}
		return err
	})
	var clients sync.WaitGroup
	var started sync.WaitGroup
	for range 4 {
		_, client := dial(t, srv.address)
		started.Add(1)
		clients.Go(func() {
			stream, err := client.DoGet(t.Context(), &flight.Ticket{})
			for n := 0; err == nil; n++ {
				if n == 3 {
					started.Done()
				}
				_, err = stream.Recv()
			}
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
		})
	}
	started.Wait()
	close(drain)
	srv.GracefulStop()
	clients.Wait()
	srv.waitForQueue(t)
	if got := s.pool.Stats().Leases; got != 1 {
		t.Errorf("%d leases", got)
	}
}

// What gRPC drops without freeing comes back when its connection ends, and without one when it is garbage. What the
// sender still holds stays.
func TestLeasesThatGRPCForgets(t *testing.T) {
	s := newStore(t)
	lease := s.frame(t, sample(1, 5000))
	defer lease.Release()
	encode := func(ctx context.Context) *Message {
		body, err := NewEncoder(None, s.pool, s.grant).Encode(lease.Batch())
		if err != nil {
			t.Fatal(err)
		}
		return body.Message(ctx, nil, lease.Share())
	}
	leases := func(want int, when string) {
		t.Helper()
		if got := s.pool.Stats().Leases; got != want {
			t.Errorf("%d leases %s, want %d", got, when, want)
		}
	}
	set := &conn{owner: NewConns(), live: map[*Message]struct{}{}}
	ctx := context.WithValue(t.Context(), connKey{}, set)
	forgotten, held := encode(ctx), encode(ctx)
	buffers, err := forgotten.lend()
	if err != nil {
		t.Fatal(err)
	}
	forgotten.Release()
	forgotten.Release()
	leases(3, "while gRPC holds one message and its sender the other")
	set.end()
	leases(2, "when the connection has ended")
	buffers.Free() // late: nothing is given back twice
	late, err := held.lend()
	if err != nil {
		t.Fatal("a message of a dead connection: ", err)
	}
	held.Release()
	leases(1, "when the sender has let go too")
	late.Free()
	after := encode(ctx)
	leases(2, "with a message made after the end")
	after.Release()
	leases(1, "when that is released")
	if messages, bytes := set.owner.Queued(); messages != 0 || bytes != 0 {
		t.Errorf("queued: %d messages, %d bytes", messages, bytes)
	}

	drop(t, encode(t.Context()))
	eventually(t, "dropped buffers are collected", func() bool { runtime.GC(); return s.pool.Stats().Leases == 1 })
}

func drop(t *testing.T, m *Message) {
	t.Helper()
	if _, err := m.lend(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.lend(); !errors.Is(err, errSent) {
		t.Errorf("sent twice: %v", err)
	}
	m.Release()
}

// gRPC frees each slice once that slice is written. A lease must not end before the last one.
func TestLeaseEndsWithTheLastSlice(t *testing.T) {
	s := newStore(t)
	lease := s.frame(t, sample(1, 20_000))
	body, err := NewEncoder(None, s.pool, s.grant).Encode(lease.Batch())
	if err != nil {
		t.Fatal(err)
	}
	m := body.Message(t.Context(), nil, lease)
	buffers, err := m.lend()
	if err != nil {
		t.Fatal(err)
	}
	m.Release()
	want := bytes.Join(func() (all [][]byte) {
		for _, b := range buffers {
			all = append(all, bytes.Clone(b.ReadOnlyData()))
		}
		return all
	}(), nil)
	var got []byte
	for len(buffers) > 0 {
		piece := make([]byte, 1000)
		n, rest := mem.ReadUnsafe(piece, buffers[0])
		got = append(got, piece[:n]...)
		if rest == nil {
			buffers = buffers[1:]
		}
	}
	if !bytes.Equal(got, want) {
		t.Error("bytes changed while they were being read")
	}
	if live := s.pool.Stats().Leases; live != 0 {
		t.Errorf("%d leases", live)
	}
}

// No byte of a freed region reaches a client: frames are made, sent and let go at once while others reuse and overwrite
// their memory, some streams are slow, some are cancelled, and each client checks every batch.
func TestNoRecycledByteReachesAClient(t *testing.T) {
	s := newStore(t)
	var samples []arrow.RecordBatch
	for i := range 16 {
		samples = append(samples, sample(i, 3000+100*i))
	}
	var sent atomic.Int64
	srv := serve(t, func(_ []byte, stream grpc.ServerStream) error {
		if err := send(stream, SchemaMessage(schemaBytes(sampleSchema), nil)); err != nil {
			return err
		}
		for i := range batchesPerStream {
			m, err := s.message(stream.Context(), samples[sent.Add(1)%16], int64(i), Compression(i%3))
			if err != nil {
				return err
			}
			if err := send(stream, m); err != nil {
				return err
			}
		}
		return nil
	})
	var clients sync.WaitGroup
	for i := range 6 {
		_, client := dial(t, srv.address)
		clients.Go(func() {
			for range 2 { // streams that share a connection
				if err := readAndCheck(t, client, i%3 == 2, i%3 == 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	clients.Wait()
	srv.waitForQueue(t)
	if got := s.pool.Stats(); got.Leases != 0 || got.Regions != 0 {
		t.Errorf("memory left: %+v", got)
	}
}

const batchesPerStream = 30

// message makes a frame of a batch and a message of its rows after the first skip, with their checksum as metadata.
func (s *store) message(ctx context.Context, whole arrow.RecordBatch, skip int64, c Compression) (*Message, error) {
	lease, err := s.pool.Assemble(s.grant, budget.Frames, sampleSchema, []frame.Piece{frame.PieceOf(whole, 0, whole.NumRows())})
	if err != nil {
		return nil, err
	}
	part := lease.Batch().NewSlice(skip, whole.NumRows())
	body, err := NewEncoder(c, s.pool, s.grant).Encode(part)
	if err != nil {
		lease.Release()
		return nil, err
	}
	return body.Message(ctx, binary.LittleEndian.AppendUint32(nil, checksum(part)), lease), nil
}

func readAndCheck(t *testing.T, client flight.FlightServiceClient, slow, cancels bool) error {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := client.DoGet(ctx, &flight.Ticket{})
	if err != nil {
		return err
	}
	count := 0
	err = receive(stream, func(rec arrow.RecordBatch, meta []byte) error {
		if got := checksum(rec); got != binary.LittleEndian.Uint32(meta) {
			return fmt.Errorf("batch %d: checksum %x, sent %x", count, got, meta)
		}
		if count++; cancels && count == 10 {
			cancel()
		}
		if slow {
			time.Sleep(time.Millisecond)
		}
		return nil
	})
	if cancels && status.Code(err) == codes.Canceled {
		return nil
	}
	if err == nil && count != batchesPerStream {
		return fmt.Errorf("%d batches", count)
	}
	return err
}

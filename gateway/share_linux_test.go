package gateway_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/headrace/headrace/gateway"
	"github.com/headrace/headrace/gateway/shm"
	"github.com/headrace/headrace/storage/budget"
)

// sharing gives a gateway a host for rings.
func sharing(t *testing.T) func(*gateway.Options) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@headrace-test-" + rand.Text(), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	host, err := shm.New(l, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	return func(o *gateway.Options) { o.Shm = host }
}

// ring is a client's end of shared memory.
type ring struct {
	key  string
	conn *net.UnixConn
	mem  []byte
	wire int // messages that came over Flight
}

// message is what arrives of a part, by either way.
type message struct {
	meta         string
	header, body []byte
	slot         byte
}

func (h *house) offer(ctx context.Context, t *testing.T) (socket, key string, err error) {
	t.Helper()
	results, err := h.client(t).DoAction(ctx, &flight.Action{Type: "headrace.shm"})
	if err != nil {
		return "", "", err
	}
	result, err := results.Recv()
	if err != nil {
		return "", "", err
	}
	var o struct{ Socket, Key string }
	err = json.Unmarshal(result.GetBody(), &o)
	return o.Socket, o.Key, err
}

// ring asks for shared memory as a tenant.
func (h *house) ring(t *testing.T, tenant string) *ring {
	t.Helper()
	socket, key, err := h.offer(bearer(t.Context(), "Bearer "+h.tokenOf(t, tenant)), t)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	r := &ring{key: key, conn: conn}
	t.Cleanup(r.close)
	if _, err := conn.Write([]byte(key)); err != nil {
		t.Fatal(err)
	}
	greeting, rights := make([]byte, 24), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.ReadMsgUnix(greeting, rights)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil {
		t.Fatal(err)
	}
	descriptors, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(descriptors[0])
	if r.mem, err = unix.Mmap(descriptors[0], 0, shm.Slots*shm.Stride, unix.PROT_READ, unix.MAP_SHARED); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *ring) close() {
	if r.conn.Close() == nil {
		_ = unix.Munmap(r.mem)
	}
}

// joined tells whether the stream whose schema has come uses the ring.
func (r *ring) joined() bool {
	one := make([]byte, 1)
	_ = r.conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	n, _ := r.conn.Read(one)
	_ = r.conn.SetReadDeadline(time.Time{})
	return n == 1
}

func (r *ring) tell(events ...byte) { _, _ = r.conn.Write(events) }

// next returns the next message, or why there is none. What it has of a slot lies there.
func (r *ring) next(stream flight.FlightService_DoGetClient) (message, error) {
	var n struct {
		Slot, Meta uint32
		Size       uint64
	}
	if err := binary.Read(r.conn, binary.LittleEndian, &n); err != nil || n.Slot == shm.Wire {
		m, err := received(stream)
		if err == nil {
			r.wire++
		}
		return m, err
	}
	slot := r.mem[n.Slot*shm.Stride:][:shm.Stride]
	whole := slot[(n.Meta+63)/64*64:][:n.Size]
	start := 8 + binary.LittleEndian.Uint32(whole[4:])
	return message{string(slot[:n.Meta]), whole[8:start], whole[start:], byte(n.Slot)}, nil
}

func received(stream flight.FlightService_DoGetClient) (message, error) {
	data, err := stream.Recv()
	return message{string(data.GetAppMetadata()), data.GetDataHeader(), data.GetDataBody(), 0xff}, err
}

// stream begins to read over a ring, or with nil without; the schema has come.
func (h *house) stream(t *testing.T, r *ring, request string) flight.FlightService_DoGetClient {
	t.Helper()
	ctx := bearer(t.Context(), "Bearer "+h.token(t, "d"))
	if r != nil {
		ctx = metadata.AppendToOutgoingContext(ctx, "headrace-shm", r.key)
	}
	stream, err := h.client(t).DoGet(ctx, &flight.Ticket{Ticket: []byte(request)}, grpc.MaxCallRecvMsgSize(128<<20))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	return stream
}

// waited is what of the metadata is the time that a batch took.
var waited = regexp.MustCompile(`"(wait|store|decode)_us":\d+,?`)

// all reads a stream to its end.
func all(t *testing.T, next func() (message, error)) (out []message) {
	t.Helper()
	for {
		m, err := next()
		if errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatalf("after %d messages: %v", len(out), err)
		}
		m.meta = waited.ReplaceAllString(m.meta, "")
		m.header, m.body = bytes.TrimRight(bytes.Clone(m.header), "\x00"), bytes.Clone(m.body)
		out = append(out, m)
	}
}

// Messages in shared memory are those of the wire, byte for byte, and so is what is said with them.
func TestSharedMemoryCarriesTheSame(t *testing.T) {
	dir := t.TempDir()
	python(t, `
import os, random
os.makedirs(f"{root}/d")
for shard in range(2):
    rows = range(shard * 20_000, (shard + 1) * 20_000)
    table = pa.table({"id": rows, "text": [None if i % 7 == 0 else "t" * (i % 90) + str(i) for i in rows], "list": [list(range(i % 5)) for i in rows]})
    pq.write_table(table, f"{root}/d/{shard}.parquet", row_group_size=7000)
`, dir)
	h := start(t, dir, sharing(t))
	for _, request := range []string{
		`{"dataset": "d"}`,
		`{"dataset": "d", "max_message_bytes": 20000}`,
		`{"dataset": "d", "shuffle": "window", "seed": 3, "batch_size": 1000, "num_epochs": 2}`,
		`{"dataset": "d", "shuffle": "full", "batch_size": 10000, "max_message_bytes": 30000, "tail": "keep"}`,
		`{"dataset": "d", "shuffle": "window", "batch_size": 512, "compression": "lz4"}`,
		`{"dataset": "d", "compression": "zstd", "columns": ["text"]}`,
	} {
		plain := h.stream(t, nil, request)
		want := all(t, func() (message, error) { return received(plain) })
		r := h.ring(t, "t")
		stream := h.stream(t, r, request)
		if !r.joined() {
			t.Fatal("not joined")
		}
		got := all(t, func() (message, error) {
			m, err := r.next(stream)
			if err == nil && m.slot != 0xff {
				m.body = bytes.Clone(m.body)
				m.header = bytes.Clone(m.header)
				r.tell(m.slot|0x80, m.slot)
			}
			return m, err
		})
		if len(got) != len(want) || len(want) == 0 || r.wire > 0 {
			t.Fatalf("%s: %d messages, want %d; %d over the wire", request, len(got), len(want), r.wire)
		}
		for i := range want {
			if got[i].meta != want[i].meta || !bytes.Equal(got[i].header, want[i].header) || !bytes.Equal(got[i].body, want[i].body) {
				t.Fatalf("%s: message %d differs: %s, want %s", request, i, got[i].meta, want[i].meta)
			}
		}
	}
}

// What is too large for a slot comes over the wire, in its place.
func TestSharedMemoryAndLargeRows(t *testing.T) {
	dir := t.TempDir()
	python(t, `
import os
os.makedirs(f"{root}/d")
sizes = [10, 70_000_000, 20, 66_000_000, 69_000_000, 30]
batches = [pa.record_batch({"x": pa.array([bytes([i]) * size], pa.large_binary())}) for i, size in enumerate(sizes)]
with pa.ipc.new_file(f"{root}/d/0.arrow", batches[0].schema) as w:
    for b in batches:
        w.write_batch(b)
`, dir)
	h := start(t, dir, sharing(t))
	r := h.ring(t, "t")
	stream := h.stream(t, r, `{"dataset": "d"}`)
	if !r.joined() {
		t.Fatal("not joined")
	}
	var ways []bool
	for i := 0; ; i++ {
		m, err := r.next(stream)
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(m.body, []byte{byte(i), byte(i), byte(i)}) {
			t.Errorf("message %d is another", i)
		}
		ways = append(ways, m.slot == 0xff)
		if m.slot != 0xff {
			r.tell(m.slot|0x80, m.slot)
		}
	}
	if fmt.Sprint(ways) != "[false true false false true false]" {
		t.Errorf("over the wire: %v", ways)
	}
}

// The offer is for those who may read, at gateways that have memory to share.
func TestWhoIsOfferedSharedMemory(t *testing.T) {
	h := start(t, t.TempDir(), sharing(t))
	if _, _, err := h.offer(t.Context(), t); status.Code(err) != codes.Unauthenticated {
		t.Error(err)
	}
	with, key, err := h.offer(bearer(t.Context(), "Bearer "+h.token(t)), t)
	if err != nil || with != h.Shm.Address() || len(key) != 32 {
		t.Errorf("%q, %q, %v", with, key, err)
	}
	without := start(t, t.TempDir())
	if _, _, err := without.offer(bearer(t.Context(), "Bearer "+without.token(t)), t); status.Code(err) != codes.Unimplemented {
		t.Error(err)
	}
}

// A key that is no good is as good as none.
func TestKeysOfNoUse(t *testing.T) {
	h := start(t, large(t), sharing(t))
	other := h.ring(t, "u")
	used := h.ring(t, "t")
	if err := readAll(h.stream(t, nil, `{"dataset": "d"}`)); err != nil {
		t.Fatal(err)
	}
	first := h.stream(t, used, `{"dataset": "d"}`)
	for name, r := range map[string]*ring{"of another tenant": other, "in use": used, "of nobody": {key: "0"}, "none": {}} {
		if err := readAll(h.stream(t, r, `{"dataset": "d"}`)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if other.joined() {
		t.Error("joined a ring of another tenant's")
	}
	if !used.joined() {
		t.Error("the first stream has no ring")
	}
	used.close()
	if err := readAll(first); status.Code(err) != codes.Unavailable {
		t.Errorf("its client has gone: %v", err)
	}
}

// Whatever ends a stream, its client is told why, has what it was told of, and nothing is left when it goes.
func TestStreamsWithRingsEnd(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*house, *flight.FlightInfo)
		want codes.Code
	}{
		"cancelled": {func(h *house, info *flight.FlightInfo) {
			body, err := proto.Marshal(&flight.CancelFlightInfoRequest{Info: info})
			if err != nil {
				t.Error(err)
			}
			results, err := h.client(t).DoAction(bearer(t.Context(), "Bearer "+h.token(t, "d")), &flight.Action{Type: flight.CancelFlightInfoActionType, Body: body})
			if err == nil {
				_, err = results.Recv()
			}
			if err != nil {
				t.Error(err)
			}
		}, codes.Canceled},
		"drained": {func(h *house, _ *flight.FlightInfo) {
			now, cancel := context.WithCancel(t.Context())
			cancel()
			h.Drain(now)
		}, codes.Unavailable},
		"closed": {func(h *house, _ *flight.FlightInfo) { h.Close() }, codes.Unavailable},
		"stalled": {func(h *house, _ *flight.FlightInfo) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			g, err := h.ledger.Admit(ctx, h.ledger.Most()-36<<20) // what the client has yet to give back stays
			if err != nil {
				t.Error(err)
				return
			}
			g.Close()
		}, codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, large(t), sharing(t), func(o *gateway.Options) { o.StallTimeout, o.AdmissionTimeout = 300*time.Millisecond, time.Minute })
			info, err := h.client(t).GetFlightInfo(bearer(t.Context(), "Bearer "+h.token(t, "d")),
				&flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: []byte(`{"dataset": "d"}`)})
			if err != nil {
				t.Fatal(err)
			}
			r := h.ring(t, "t")
			stream := h.stream(t, r, string(info.GetEndpoint()[0].GetTicket().GetTicket()))
			await(t, func() bool { return h.ledger.Stats().Used[budget.Batches] > 24<<20 })
			test.end(h, info)
			if !r.joined() {
				t.Fatal("not joined")
			}
			var kept []message
			var sums []string
			for err = nil; err == nil; {
				var m message
				if m, err = r.next(stream); err == nil {
					kept, sums = append(kept, m), append(sums, string(m.body))
				}
			}
			if status.Code(err) != test.want || len(kept) < 6 {
				t.Errorf("%v after %d messages", err, len(kept))
			}
			await(t, func() bool { return h.ledger.Stats().Grants <= 1 })
			for i, m := range kept {
				if string(m.body) != sums[i] || !json.Valid([]byte(m.meta)) {
					t.Errorf("message %d is not what it was", i)
				}
			}
			r.close()
			await(t, func() bool { return h.ledger.Stats().Used[budget.Batches] == 0 })
		})
	}
}

// A client that keeps what it reads takes none of the memory that its stream was promised: when there is no other, messages
// come over the wire.
func TestClientsThatKeepWhatTheyRead(t *testing.T) {
	for name, request := range map[string]string{
		"as stored":  `{"dataset": "d", "compression": "lz4"}`,
		"shuffled":   `{"dataset": "d", "shuffle": "window", "batch_size": 30}`,
		"compressed": `{"dataset": "d", "shuffle": "window", "batch_size": 30, "compression": "zstd"}`,
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, large(t), sharing(t))
			r := h.ring(t, "t")
			stream := h.stream(t, r, request)
			if !r.joined() {
				t.Fatal("not joined")
			}
			var others []*budget.Grant
			defer func() {
				for _, g := range others {
					g.Close()
				}
			}()
			for n := 0; ; n++ {
				if n > 1 { // nothing that comes back is free for long
					s := h.ledger.Stats()
					if g, err := h.ledger.Try(s.Limit - s.Reserved - h.ledger.Slot()); err == nil {
						others = append(others, g)
					}
				}
				if n == 2 {
					time.Sleep(100 * time.Millisecond) // the stream comes to wait for messages to be taken
				}
				m, err := r.next(stream)
				if errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatalf("after %d messages: %v", n, err)
				}
				if m.slot != 0xff {
					r.tell(m.slot | 0x80) // and kept
				}
			}
			if r.wire == 0 {
				t.Error("all had a place")
			}
		})
	}
}

// Streams with rings and without, read by many at once, with clients that go at any time, leave nothing.
func TestManyWithRings(t *testing.T) {
	h := start(t, large(t), sharing(t))
	var readers sync.WaitGroup
	for i := range 6 {
		r := h.ring(t, "t")
		stream := h.stream(t, r, fmt.Sprintf(`{"dataset": "d", "shuffle": "window", "batch_size": 7, "seed": %d}`, i))
		readers.Go(func() {
			defer r.close()
			if !r.joined() {
				t.Error("not joined")
				return
			}
			for n := range 10 * (i + 1) {
				m, err := r.next(stream)
				if err != nil {
					t.Errorf("after %d messages: %v", n, err)
					return
				}
				if m.slot != 0xff {
					r.tell(m.slot|0x80, m.slot)
				}
			}
		})
	}
	readers.Wait()
	await(t, func() bool { return h.ledger.Stats().Used[budget.Batches] == 0 })
}

// A client that takes what it is told of, however slowly, goes on whoever waits, even if it gives nothing back.
func TestSlowStreamWithARingIsNotStalled(t *testing.T) {
	h := start(t, large(t), sharing(t), func(o *gateway.Options) { o.StallTimeout = 400 * time.Millisecond })
	r := h.ring(t, "t")
	stream := h.stream(t, r, `{"dataset": "d"}`)
	if !r.joined() {
		t.Fatal("not joined")
	}
	await(t, func() bool { return h.ledger.Stats().Used[budget.Batches] > 24<<20 })
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	waiting.Go(func() { _, _ = h.ledger.Admit(ctx, h.ledger.Most()) })
	var err error
	for range 6 {
		var m message
		if m, err = r.next(stream); err != nil {
			break
		}
		r.tell(m.slot | 0x80)
		time.Sleep(h.StallTimeout / 3)
	}
	cancel()
	waiting.Wait()
	for err == nil {
		var m message
		if m, err = r.next(stream); m.slot != 0xff {
			r.tell(m.slot | 0x80)
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

// What lies in a ring is its tenant's.
func TestStatsTellOfRings(t *testing.T) {
	h := start(t, large(t), sharing(t))
	r := h.ring(t, "t")
	h.stream(t, r, `{"dataset": "d"}`)
	await(t, func() bool { return h.stats(t, "t").Memory.Used["batches"] > 24<<20 })
	if n := h.stats(t, "u").Memory.Used["batches"]; n != 0 {
		t.Errorf("another tenant is told of %d bytes", n)
	}
}

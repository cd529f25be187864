package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headrace/headrace/gateway"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/cache"
)

// large makes the dataset d of so many bytes that no connection holds them on their way.
func large(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	python(t, `
import os
os.makedirs(f"{root}/d")
for shard in range(3):
    pq.write_table(pa.table({"x": pa.array([os.urandom(100_000) for _ in range(160)])}), f"{root}/d/{shard}.parquet", row_group_size=40)
`, dir)
	return dir
}

// get begins to read the dataset d and returns once its first batch is there.
func (h *house) get(t *testing.T) flight.FlightService_DoGetClient {
	t.Helper()
	stream := h.begin(t)
	for range 2 { // the schema first
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	return stream
}

// begin asks for the dataset d.
func (h *house) begin(t *testing.T) flight.FlightService_DoGetClient {
	t.Helper()
	stream, err := h.client(t).DoGet(bearer(t.Context(), "Bearer "+h.token(t, "d")), &flight.Ticket{Ticket: []byte(`{"dataset": "d"}`)})
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// await waits for something that is to come.
func await(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("in vain")
		}
	}
}

// readAll reads a stream to its end.
func readAll(stream flight.FlightService_DoGetClient) error {
	for {
		if _, err := stream.Recv(); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// A client that stops reading is ended for others who wait for its memory, and not before.
func TestStalledStreamEndsForOthers(t *testing.T) {
	h := start(t, large(t), func(o *gateway.Options) { o.StallTimeout, o.AdmissionTimeout = 300*time.Millisecond, time.Minute })
	stalled := h.get(t)
	time.Sleep(2 * h.StallTimeout) // nobody waits: it may take its time
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	grant, err := h.ledger.Admit(ctx, h.ledger.Most()-1<<20) // not even what was on its way to the client stays
	if err != nil {
		t.Fatal(err)
	}
	grant.Close()
	if err := readAll(stalled); status.Code(err) != codes.Unavailable {
		t.Errorf("the stalled stream ended with %v", err)
	}
}

// A client that reads, however slowly, goes on whoever waits.
func TestSlowStreamIsNotStalled(t *testing.T) {
	h := start(t, large(t), func(o *gateway.Options) { o.StallTimeout = 500 * time.Millisecond })
	slow := h.get(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var waiting sync.WaitGroup
	waiting.Go(func() { _, _ = h.ledger.Admit(ctx, h.ledger.Most()+1-1<<20) })
	for range 8 {
		time.Sleep(h.StallTimeout / 4)
		if _, err := slow.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	waiting.Wait()
	if err := readAll(slow); err != nil {
		t.Error(err)
	}
}

// What can never fit is refused with the numbers; what only has to wait too long may come back.
func TestMemoryThatIsNotThere(t *testing.T) {
	dir := large(t)
	for _, test := range []struct {
		limit, taken int64
		want         codes.Code
	}{{1 << 20, 0, codes.InvalidArgument}, {64 << 20, 60 << 20, codes.Unavailable}} {
		h := start(t, dir, func(o *gateway.Options) {
			o.Ledger, o.AdmissionTimeout = budget.New(budget.Options{Limit: test.limit}), 50*time.Millisecond
		})
		grant, err := h.ledger.Admit(t.Context(), test.taken)
		if err != nil {
			t.Fatal(err)
		}
		err = readAll(h.begin(t))
		if status.Code(err) != test.want {
			t.Errorf("limit %d: %v, want %s", test.limit, err, test.want)
		}
		grant.Close()
	}
}

// While a client does not read, the numbers say where the memory is; afterwards there is none but the gateway's own
// and what it keeps.
func TestMemoryIsToldByKind(t *testing.T) {
	h := start(t, large(t))
	stream := h.get(t)
	var m gateway.Memory
	await(t, func() bool { // the batch that was read is the first: others fill the connection, and the next is queued
		m = h.Memory()
		return m.Queued > 0
	})
	if m.Limit == 0 || m.Reserved == 0 || m.Used["frames"] == 0 || m.Used["heap"] == 0 {
		t.Errorf("%+v", m)
	}
	if err := readAll(stream); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool {
		m := h.Memory()
		kept := m.Used["frames"]
		delete(m.Used, "frames")
		delete(m.Used, "heap")
		delete(m.Used, "idle")
		return m.Reserved == kept && m.Lent == kept && h.Cache.Stats().Kept == kept && m.Queued == 0 && len(m.Used) == 0
	})
}

// A tenant is told what it has, and nothing of what others do.
func TestStatsAreATenantsOwn(t *testing.T) {
	shares := map[string]float64{"t": .25}
	h := start(t, large(t), func(o *gateway.Options) {
		var err error
		if o.Cache, err = cache.New(cache.Options{Ledger: o.Ledger, Pool: o.Pool, Shares: shares}); err != nil {
			t.Fatal(err)
		}
	})
	before := h.stats(t, "other")
	stream := h.get(t)
	own := h.stats(t, "t")
	if own.Streams != 1 || own.Memory.Used["frames"] == 0 || own.Memory.Limit == 0 || own.Memory.Waiting != 0 || own.Cache.Share != .25 || own.Cache.Leased == 0 {
		t.Errorf("%+v", own)
	}
	if other := h.stats(t, "other"); !reflect.DeepEqual(other, before) || other.Streams != 0 || other.Memory.Used["frames"] != 0 {
		t.Errorf("another tenant is told %+v", other)
	}
	if err := readAll(stream); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return h.stats(t, "t").Streams == 0 && h.stats(t, "t").Cache.Leased == 0 })
	own = h.stats(t, "t")
	bytes := own.Cache.Bytes
	if e := own.Cache.Epochs; len(e) != 1 || bytes < 48_000_000 || e[0] != (gateway.Epoch{Dataset: "d", Read: bytes, Fetched: bytes}) {
		t.Errorf("%+v", own.Cache)
	}
	if own.Memory.Used["frames"] != bytes || own.Memory.Used["batches"] != 0 {
		t.Errorf("%+v", own.Memory)
	}
	if len(own.Cache.Served) != 1 || own.Cache.Served[0].Misses != int64(own.Cache.Blocks) || own.Cache.Served[0].Tenant != "t" {
		t.Errorf("%+v", own.Cache.Served)
	}
	if other := h.stats(t, "other"); !reflect.DeepEqual(other.Cache, before.Cache) {
		t.Errorf("another tenant is told %+v", other)
	}
}

// stats asks for those of a tenant.
func (h *house) stats(t *testing.T, tenant string) (st gateway.Stats) {
	t.Helper()
	results, err := h.client(t).DoAction(bearer(t.Context(), "Bearer "+h.tokenOf(t, tenant, "d")), &flight.Action{Type: "headrace.stats"})
	if err != nil {
		t.Fatal(err)
	}
	result, err := results.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(result.GetBody(), &st); err != nil {
		t.Fatal(err)
	}
	return st
}

// A stream that has no memory but its own, and needs some for each batch on its way out, waits for its client and never fails.
func TestStreamWithoutMemoryWaitsForItsClient(t *testing.T) {
	dir := t.TempDir()
	python(t, `
import os
os.makedirs(f"{root}/d")
batch = pa.record_batch({"x": pa.array([os.urandom(100_000) for _ in range(38)])})
with pa.ipc.new_file(f"{root}/d/0.arrow", batch.schema) as w:
    for _ in range(24):
        w.write_batch(batch)
`, dir)
	h := start(t, dir)
	ticket := &flight.Ticket{Ticket: []byte(`{"dataset": "d", "compression": "lz4"}`)}
	stream, err := h.client(t).DoGet(bearer(t.Context(), "Bearer "+h.token(t, "d")), ticket)
	if err != nil {
		t.Fatal(err)
	}
	var all []*budget.Grant
	defer func() {
		for _, g := range all {
			g.Close()
		}
	}()
	for messages := 0; ; messages++ {
		if messages > 1 { // nothing that comes back is free for long
			s := h.ledger.Stats()
			if g, err := h.ledger.Try(s.Limit - s.Reserved - h.ledger.Slot()); err == nil {
				all = append(all, g)
			}
		}
		if _, err := stream.Recv(); errors.Is(err, io.EOF) && messages == 25 {
			return
		} else if err != nil {
			t.Fatalf("after %d messages: %v", messages, err)
		}
	}
}

// Windows take the memory of the columns that are read, and are refused by that.
func TestColumnsDecideWhatWindowsTake(t *testing.T) {
	dir := t.TempDir()
	python(t, `
import os
os.makedirs(f"{root}/d")
table = pa.table({"id": pa.array(range(320), pa.int64()), "x": pa.array([os.urandom(100_000) for _ in range(320)])})
pq.write_table(table, f"{root}/d/0.parquet", row_group_size=40)
`, dir)
	h := start(t, dir, func(o *gateway.Options) { o.Ledger = budget.New(budget.Options{Limit: 32 << 20}) })
	for columns, want := range map[string]codes.Code{`["id"]`: codes.OK, `["id", "x"]`: codes.InvalidArgument} {
		request := fmt.Sprintf(`{"dataset": "d", "shuffle": "window", "window_blocks": 9, "batch_size": 5, "columns": %s}`, columns)
		stream, err := h.client(t).DoGet(bearer(t.Context(), "Bearer "+h.token(t, "d")), &flight.Ticket{Ticket: []byte(request)})
		if err != nil {
			t.Fatal(err)
		}
		if err := readAll(stream); status.Code(err) != want {
			t.Errorf("%s: %v, want %s", columns, err, want)
		}
	}
}

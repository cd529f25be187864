package main

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headrace/headrace/gateway/client"
	"github.com/headrace/headrace/gateway/wire"
)

// narrow is a gateway that sends one stream at a time. The first one waits until another was turned away.
type narrow struct {
	flight.BaseFlightServer
	busy    sync.Mutex
	refused chan struct{}
	once    sync.Once
}

const narrowShards, narrowRows = 7, 3

func (n *narrow) ListFlights(_ *flight.Criteria, out flight.FlightService_ListFlightsServer) error {
	return out.Send(&flight.FlightInfo{
		FlightDescriptor: &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{"d"}},
		AppMetadata:      wire.ListedMeta{Rows: narrowShards * narrowRows, Shards: narrowShards, Snapshot: "s"}.Marshal(),
	})
}

// DoGet sends three rows of any shard but number 2 and 4, which are bad.
func (n *narrow) DoGet(t *flight.Ticket, out flight.FlightService_DoGetServer) error {
	req, err := wire.Parse(t.GetTicket())
	if err != nil {
		return err
	}
	if !n.busy.TryLock() {
		n.once.Do(func() { close(n.refused) })
		return status.Error(codes.Unavailable, "too many streams")
	}
	defer n.busy.Unlock()
	<-n.refused
	if at := req.Shards.From; at == 2 || at == 4 {
		return status.Error(codes.DataLoss, fmt.Sprintf("shard \"part-%d\": a bad page", at))
	}
	return sendRows(out)
}

// sendRows sends three rows.
func sendRows(out flight.FlightService_DoGetServer) error {
	s := arrow.NewSchema([]arrow.Field{{Name: "x", Type: arrow.PrimitiveTypes.Int64}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, s)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues([]int64{1, 2, 3}, nil)
	rows := b.NewRecordBatch()
	defer rows.Release()
	w := flight.NewRecordWriter(out, ipc.WithSchema(s))
	defer w.Close()
	return w.WriteWithAppMetadata(rows, wire.BatchMeta{}.Marshal())
}

// walked is what is found behind a server.
func walked(t *testing.T, behind flight.FlightServer) *verified {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	flight.RegisterFlightServiceServer(server, behind)
	var serving errgroup.Group
	serving.Go(func() error { return server.Serve(l) })
	defer func() { server.Stop(); _ = serving.Wait() }()
	c, err := client.Dial("grpc://"+l.Addr().String(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	v := &verified{Dataset: "d"}
	if err := v.walk(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestVerifyReadsAgainWhatWasTurnedAway: a shard is bad only if it cannot be read while no other is; bad ones are told in
// their order, whichever was read first.
func TestVerifyReadsAgainWhatWasTurnedAway(t *testing.T) {
	v := walked(t, &narrow{refused: make(chan struct{})})
	if v.Rows != (narrowShards-2)*narrowRows || v.done != narrowShards || v.Unread != 0 {
		t.Errorf("%d rows, %d shards, %d unread", v.Rows, v.done, v.Unread)
	}
	if len(v.Bad) != 2 || v.Bad[0].Shard != "part-2" || v.Bad[1].Shard != "part-4" {
		t.Errorf("%+v", v.Bad)
	}
}

// failing is a gateway whose store can be reached for some shards of many.
type failing struct {
	narrow
	code  codes.Code
	sends func(shard int64) bool
	asked sync.Map // shards, by number
}

const failingShards = 500

func (f *failing) ListFlights(_ *flight.Criteria, out flight.FlightService_ListFlightsServer) error {
	return out.Send(&flight.FlightInfo{
		FlightDescriptor: &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{"d"}},
		AppMetadata:      wire.ListedMeta{Rows: failingShards * narrowRows, Shards: failingShards, Snapshot: "s"}.Marshal(),
	})
}

func (f *failing) DoGet(t *flight.Ticket, out flight.FlightService_DoGetServer) error {
	req, err := wire.Parse(t.GetTicket())
	if err != nil {
		return err
	}
	f.asked.Store(req.Shards.From, nil)
	if f.sends(req.Shards.From) {
		return sendRows(out)
	}
	return status.Error(f.code, "shard \"part\": the store does not answer")
}

// TestVerifyTellsWhatItCouldNotAskFor: a store that does not answer, or a token that has expired, says nothing of shards:
// they are not told to be bad, or to be left out, and not asked for one by one for ever.
func TestVerifyTellsWhatItCouldNotAskFor(t *testing.T) {
	for _, code := range []codes.Code{codes.Unavailable, codes.Unauthenticated} {
		f := &failing{code: code, sends: func(shard int64) bool { return shard < 20 }}
		v := walked(t, f)
		asked := 0
		f.asked.Range(func(any, any) bool { asked++; return true })
		if v.Rows != 20*narrowRows || v.Unread != failingShards-20 || len(v.Bad) != 0 || asked > 20+2*verifyAtOnce {
			t.Errorf("%v: %d rows, %d unread, %d asked for, %+v", code, v.Rows, v.Unread, asked, v.Bad)
		}
		var out strings.Builder
		if err := v.tell(&out, false); !errors.Is(err, errUnread) || strings.Contains(out.String(), "exclude") ||
			!strings.Contains(out.String(), "480 shards could not be read just now, which says nothing of what is in there") || !strings.Contains(out.String(), "the store does not answer") {
			t.Errorf("%v\n%s", err, out.String())
		}
	}
	// Some here and there do not keep it from the others.
	v := walked(t, &failing{code: codes.Unavailable, sends: func(shard int64) bool { return shard%10 != 3 }})
	if v.Rows != (failingShards-50)*narrowRows || v.Unread != 50 || len(v.Bad) != 0 {
		t.Errorf("%d rows, %d unread, %+v", v.Rows, v.Unread, v.Bad)
	}
}

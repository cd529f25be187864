package main

import (
	"fmt"
	"net"
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

// TestVerifyReadsAgainWhatWasTurnedAway: a shard is bad only if it cannot be read while no other is; bad ones are told in
// their order, whichever was read first.
func TestVerifyReadsAgainWhatWasTurnedAway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	flight.RegisterFlightServiceServer(server, &narrow{refused: make(chan struct{})})
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
	if v.Rows != (narrowShards-2)*narrowRows || v.done != narrowShards {
		t.Errorf("%d rows, %d shards", v.Rows, v.done)
	}
	if len(v.Bad) != 2 || v.Bad[0].Shard != "part-2" || v.Bad[1].Shard != "part-4" {
		t.Errorf("%+v", v.Bad)
	}
}

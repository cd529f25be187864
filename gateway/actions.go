package gateway

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/headrace/headrace/gateway/wire"
)

// statsAction is the action that tells a tenant how its streams are, and what it has of the gateway's memory.
const statsAction = "headrace.stats"

// planAction is the action that says what a request means, without its schema and tickets.
const planAction = "headrace.plan"

// shmAction is the action that offers shared memory to a client on the same host.
const shmAction = "headrace.shm"

// actions are all that DoAction knows, in the order that ListActions tells.
var actions = []*flight.ActionType{
	{Type: flight.CancelFlightInfoActionType, Description: "End the running streams of a FlightInfo. Body: CancelFlightInfoRequest. Its tickets stay redeemable."},
	{Type: forecastAction, Description: "What a request's epochs will find in memory and on disk, and fetch. Body: {\"request\": {...}, \"limit\": bytes for streams, \"policy\": name, \"disk\": bytes}, the last three if others than the gateway's. Result: JSON."},
	{Type: planAction, Description: "What a request means: rows, steps, order, memory. Body: a JSON request. Result: the metadata of its FlightInfo, JSON."},
	{Type: receiptsAction, Description: "What the receipts of all ranks must add up to, epoch by epoch. Body: a JSON request. Result: JSON."},
	{Type: shmAction, Description: "Shared memory for the messages of one stream, if the caller is on this host. Body: empty. Result: JSON, a socket and the key to show there."},
	{Type: statsAction, Description: "What the caller's tenant has: streams, memory, what is kept and how often it served. Body: empty. Result: JSON."},
	{Type: warmAction, Description: "Load what a request will need, as far as memory goes that nobody needs. Body: a JSON request. Results: JSON, one a window."},
}

// ListActions lists what DoAction knows.
func (s *Server) ListActions(_ *flight.Empty, stream flight.FlightService_ListActionsServer) error {
	for _, a := range actions {
		if err := stream.Send(a); err != nil {
			return err
		}
	}
	return nil
}

// DoAction runs one of the actions.
func (s *Server) DoAction(a *flight.Action, stream flight.FlightService_DoActionServer) (err error) {
	var body []byte
	switch a.GetType() {
	case flight.CancelFlightInfoActionType:
		body, err = s.cancelFlight(stream.Context(), a.GetBody())
	case forecastAction:
		body, err = s.forecast(stream.Context(), a.GetBody())
	case planAction:
		body, err = s.explain(stream.Context(), a.GetBody())
	case receiptsAction:
		body, err = s.receipts(stream.Context(), a.GetBody())
	case shmAction:
		body, err = s.offer(stream.Context())
	case statsAction:
		body, err = s.stats(stream.Context())
	case warmAction:
		return s.warm(stream.Context(), a.GetBody(), stream.Send)
	default:
		err = status.Errorf(codes.Unimplemented, "unknown action %q: ListActions tells those that exist", clip(a.GetType()))
	}
	if err != nil {
		return err
	}
	return stream.Send(&flight.Result{Body: body})
}

// cancelFlight ends the running streams that the FlightInfo's tickets began.
func (s *Server) cancelFlight(ctx context.Context, body []byte) ([]byte, error) {
	var req flight.CancelFlightInfoRequest
	if err := proto.Unmarshal(body, &req); err != nil {
		return nil, fmt.Errorf("%w: the body is no CancelFlightInfoRequest", wire.ErrRequest)
	}
	meta, err := wire.ParseMeta[wire.InfoMeta](req.GetInfo().GetAppMetadata())
	if err != nil {
		return nil, fmt.Errorf("%w: the FlightInfo lacks the app_metadata that GetFlightInfo gave it", wire.ErrRequest)
	}
	if s.flights.cancel(principal(ctx).Tenant, meta.Flight) == 0 {
		return nil, errNoFlight
	}
	return proto.Marshal(&flight.CancelFlightInfoResult{Status: flight.CancelStatusCancelled})
}

// explain plans a request and tells what GetFlightInfo would tell of it.
func (s *Server) explain(ctx context.Context, body []byte) ([]byte, error) {
	req, err := wire.Parse(body)
	if err != nil {
		return nil, err
	}
	p, err := s.pinned(ctx, planAction, req)
	if err != nil {
		return nil, err
	}
	return p.meta().Marshal(), nil
}

// Stats is the answer of headrace.stats: all of it is the caller's tenant's. What others do shows in the metrics, to whoever
// runs the gateway.
type Stats struct {
	Streams  int      `json:"streams"`
	Memory   Holding  `json:"memory"`
	Cache    Kept     `json:"cache"`
	Decoders Decoding `json:"decoders"`
}

func (s *Server) stats(ctx context.Context) ([]byte, error) {
	tenant := principal(ctx).Tenant
	return json.Marshal(Stats{Streams: s.flights.count(tenant), Memory: s.holding(tenant), Cache: s.kept(tenant), Decoders: s.Decoding(tenant)})
}

// Handshake is not needed: a bearer token comes with every call.
func (s *Server) Handshake(flight.FlightService_HandshakeServer) error {
	return status.Error(codes.Unimplemented, "no handshake: send the header `authorization: Bearer <token>` with every call")
}

// DoPut is refused: headrace reads.
func (s *Server) DoPut(flight.FlightService_DoPutServer) error {
	return status.Error(codes.Unimplemented, "DoPut: headrace only reads; write to the store itself")
}

// DoExchange is refused: headrace reads.
func (s *Server) DoExchange(flight.FlightService_DoExchangeServer) error {
	return status.Error(codes.Unimplemented, "DoExchange: headrace runs nobody's code; read with DoGet")
}

// PollFlightInfo is refused: plans are quick.
func (s *Server) PollFlightInfo(context.Context, *flight.FlightDescriptor) (*flight.PollInfo, error) {
	return nil, status.Error(codes.Unimplemented, "PollFlightInfo: plans are made at once, use GetFlightInfo")
}

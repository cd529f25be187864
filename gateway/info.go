package gateway

import (
	"context"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/protobuf/proto"

	"github.com/headrace/headrace/auth"
	"github.com/headrace/headrace/gateway/wire"
	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage"
	"github.com/headrace/headrace/storage/snapshot"
)

// maxEndpoints is how many endpoints a whole dataset is split into at most; more shards than that share them.
const maxEndpoints = 256

// maxInfo is the largest FlightInfo that every stock client takes.
const maxInfo = 4 << 20

// reuse is the location that means "over the connection you have".
const reuse = "arrow-flight-reuse-connection://?"

// GetFlightInfo plans a request and says what it will deliver: by PATH the whole dataset as stored, an endpoint for
// each shard; by CMD a JSON request.
func (s *Server) GetFlightInfo(ctx context.Context, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	req, whole, err := parseDescriptor(d)
	if err != nil {
		return nil, err
	}
	p, err := s.pinned(ctx, "GetFlightInfo", req)
	if err != nil {
		return nil, err
	}
	endpoints, err := p.endpoints(whole)
	if err != nil {
		return nil, err
	}
	info := &flight.FlightInfo{
		Schema:           schema.Encapsulated(schema.Message(p.schema)),
		FlightDescriptor: d,
		Endpoint:         endpoints,
		TotalRecords:     p.totals().Rows,
		TotalBytes:       storedBytes(p.snapshot, p.shards),
		Ordered:          true,
		AppMetadata:      p.meta().Marshal(),
	}
	if size := proto.Size(info); size > maxInfo {
		return nil, fmt.Errorf("%w: the answer has %d bytes, clients take %d: name fewer columns or shards", wire.ErrRequest, size, maxInfo)
	}
	return info, nil
}

// pinned plans a request and writes into it what its streams go by: the snapshot that was planned, and a flight.
func (s *Server) pinned(ctx context.Context, method string, req *wire.Request) (*planned, error) {
	p, err := s.plan(ctx, method, req)
	if err != nil {
		return nil, err
	}
	req.Snapshot, req.Flight = p.snapshot.ID, randomHex(16)
	return p, nil
}

// GetSchema answers with the schema alone.
func (s *Server) GetSchema(ctx context.Context, d *flight.FlightDescriptor) (*flight.SchemaResult, error) {
	req, _, err := parseDescriptor(d)
	if err != nil {
		return nil, err
	}
	p, err := s.plan(ctx, "GetSchema", req)
	if err != nil {
		return nil, err
	}
	return &flight.SchemaResult{Schema: schema.Encapsulated(schema.Message(p.schema))}, nil
}

// parseDescriptor reads the request out of a descriptor; whole says that it is a PATH.
func parseDescriptor(d *flight.FlightDescriptor) (req *wire.Request, whole bool, err error) {
	switch d.GetType() {
	case flight.DescriptorPATH:
		name, err := wire.DatasetName(d.GetPath())
		if err != nil {
			return nil, false, err
		}
		return wire.New(name), true, nil
	case flight.DescriptorCMD:
		req, err := wire.Parse(d.GetCmd())
		return req, false, err
	default:
		return nil, false, fmt.Errorf("%w: descriptor: its type must be PATH (a dataset) or CMD (a JSON request)", wire.ErrRequest)
	}
}

// meta is the plan's word for the client.
func (p *planned) meta() wire.InfoMeta {
	t := p.totals()
	m := wire.InfoMeta{
		Plan: p.hash, Snapshot: p.snapshot.ID, Rows: t.Rows, Steps: t.Steps, Dropped: t.Dropped, Padded: t.Padded,
		WindowBlocks: p.plan.WindowBlocks, Schema: schema.Fingerprint(p.schema), Flight: p.request.Flight,
		Blocks: p.order.Blocks(), Bytes: p.bytes, Memory: windowBytes(p.plan, int64(p.blocks.Len()), p.bytes),
	}
	if p.plan.Shuffle != sampler.ShuffleNone {
		effect := p.order.DesignEffect(p.batch)
		m.DesignEffect, m.GoodWindow = &effect, p.order.GoodWindow(p.batch)
	}
	return m
}

// maxRanks is how many ranks an answer has endpoints for.
const maxRanks = 4096

// endpoints are one for each shard, each rank, or the one rank asked for.
func (p *planned) endpoints(whole bool) ([]*flight.FlightEndpoint, error) {
	switch {
	case whole:
		return p.byShard(), nil
	case p.rank >= 0:
		return []*flight.FlightEndpoint{p.ofRank(p.rank)}, nil
	case p.ranks > maxRanks:
		return nil, fmt.Errorf("%w: rank: name one: an answer has endpoints for %d ranks at most, world_size is %d", wire.ErrRequest, maxRanks, p.ranks)
	}
	endpoints := make([]*flight.FlightEndpoint, p.ranks)
	for rank := range p.ranks {
		endpoints[rank] = p.ofRank(rank)
	}
	return endpoints, nil
}

// ofRank is the endpoint of one rank.
func (p *planned) ofRank(rank int64) *flight.FlightEndpoint {
	req, t := *p.request, p.schedule.Share(p.stream(rank), p.first)
	if p.ranks > 1 {
		req.Rank = &rank
	}
	return endpoint(&req, wire.EndpointMeta{Rank: &rank, Rows: t.Rows, Steps: t.Steps})
}

// byShard is an endpoint for each shard, or for each of maxEndpoints runs of shards.
func (p *planned) byShard() []*flight.FlightEndpoint {
	n := len(p.snapshot.Shards)
	parts := min(n, maxEndpoints)
	endpoints := make([]*flight.FlightEndpoint, 0, parts)
	for i := range parts {
		from, to := i*n/parts, (i+1)*n/parts
		req := *p.request
		req.Shards = &wire.Shards{From: int64(from), To: int64(to)}
		endpoints = append(endpoints, endpoint(&req, describe(p.snapshot, from, to)))
	}
	return endpoints
}

// describe tells clients what the shards [from, to) hold.
func describe(snap *snapshot.Snapshot, from, to int) wire.EndpointMeta {
	m := wire.EndpointMeta{Shards: fmt.Sprintf("%d:%d", from, to)}
	if to == from+1 {
		m.Shards, m.Shard = "", snap.Shards[from].Key
	}
	for _, sh := range snap.Shards[from:to] {
		m.Rows += sh.Rows()
		m.Bytes += sh.Size
		m.Segments += int64(len(sh.Segments))
		m.Format = string(sh.Format)
		for _, seg := range sh.Segments {
			if seg.Rows > 0 {
				m.Steps += seg.Blocks()
			}
		}
	}
	return m
}

func endpoint(req *wire.Request, m wire.EndpointMeta) *flight.FlightEndpoint {
	return &flight.FlightEndpoint{
		Ticket:      &flight.Ticket{Ticket: req.Ticket()},
		Location:    []*flight.Location{{Uri: reuse}},
		AppMetadata: m.Marshal(),
	}
}

// storedBytes adds up the sizes of shards as they are stored.
func storedBytes(snap *snapshot.Snapshot, shards []int) (n int64) {
	for _, i := range shards {
		n += snap.Shards[i].Size
	}
	return n
}

// ListFlights lists what the caller may read; the criteria are a prefix of names, or a pattern when they hold a *. A
// dataset that cannot be served is listed with the reason.
func (s *Server) ListFlights(c *flight.Criteria, stream flight.FlightService_ListFlightsServer) error {
	ctx := stream.Context()
	wanted, err := parseCriteria(string(c.GetExpression()))
	if err != nil {
		return err
	}
	names, err := s.Store.Datasets(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		granted, ok := s.Policy.Columns(principal(ctx), name)
		if !ok || !wanted(name) {
			continue
		}
		if err := stream.Send(s.listed(ctx, name, granted)); err != nil {
			return err
		}
	}
	return nil
}

func parseCriteria(expression string) (func(name string) bool, error) {
	if !strings.Contains(expression, "*") {
		return func(name string) bool { return strings.HasPrefix(name, expression) }, nil
	}
	pattern, err := auth.ParsePattern(expression)
	if err != nil {
		return nil, fmt.Errorf("%w: criteria: %w", wire.ErrRequest, err)
	}
	return pattern.Match, nil
}

// listed is one dataset in a listing.
func (s *Server) listed(ctx context.Context, name string, granted auth.Columns) *flight.FlightInfo {
	info := &flight.FlightInfo{
		FlightDescriptor: &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: strings.Split(name, "/")},
		TotalRecords:     -1, TotalBytes: -1, Ordered: true,
	}
	meta := wire.ListedMeta{}
	visible := arrow.NewSchema(nil, nil)
	snap, err := s.snapshotToList(ctx, name)
	if err != nil {
		// A name that is no text cannot be on the wire; it must not take the rest of the listing with it.
		info.FlightDescriptor.Path = strings.Split(strings.ToValidUTF8(name, "\uFFFD"), "/")
		meta.Error = clip(veil(err, name, granted).Error())
	} else {
		visible = restrict(snap.Schema, granted)
		meta = wire.ListedMeta{Rows: snap.Rows(), Shards: int64(len(snap.Shards)), Snapshot: snap.ID}
		for _, sh := range snap.Shards {
			meta.Bytes += sh.Size
			meta.Format = string(sh.Format)
		}
		info.TotalRecords, info.TotalBytes = meta.Rows, meta.Bytes
	}
	report(&meta, s.Store.Status(ctx, name), name, granted)
	info.Schema = schema.Encapsulated(schema.Message(visible))
	info.AppMetadata = meta.Marshal()
	return info
}

// snapshotToList is the newest snapshot, unless no request can name the dataset.
func (s *Server) snapshotToList(ctx context.Context, name string) (*snapshot.Snapshot, error) {
	if _, err := wire.DatasetName([]string{name}); err != nil {
		return nil, fmt.Errorf("rename the folder %q: %w", name, err)
	}
	return s.Store.Snapshot(ctx, name, "")
}

// Bounds of what a listing tells of one dataset.
const (
	maxCorrupt    = 20
	maxDrifts     = 20
	maxDriftTypes = 5
)

// report adds what discovery had to say about a dataset.
func report(m *wire.ListedMeta, st storage.Status, name string, granted auth.Columns) {
	m.Skipped = int64(st.Skipped)
	for _, c := range st.Corrupt[:min(len(st.Corrupt), maxCorrupt)] {
		m.Corrupt = append(m.Corrupt, wire.Corrupt{Shard: c.Key, Error: clip(veil(c.Err, name, granted).Error())})
	}
	for _, d := range st.Drifts {
		if !granted.All() && !granted.Has(d.Column) || len(m.Drift) == maxDrifts {
			continue
		}
		out := wire.Drift{Column: d.Column}
		for _, k := range d.Kinds[:min(len(d.Kinds), maxDriftTypes)] {
			out.Types = append(out.Types, wire.DriftType{Type: clip(k.Type), Shards: int64(k.Shards), First: k.First})
		}
		m.Drift = append(m.Drift, out)
	}
}

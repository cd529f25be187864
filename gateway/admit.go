package gateway

import (
	"context"
	"errors"
	"fmt"

	"github.com/headrace/headrace/gateway/feed"
	"github.com/headrace/headrace/storage/budget"
)

// admit opens the feed, which reserves a stream's whole need at once, and waits in line for it at most the admission
// timeout.
func (s *sender) admit(ctx context.Context) (batches *feed.Stream, err error) {
	ctx, end := s.Events.Span(ctx, "admission")
	defer func() { end(err) }()
	wait, cancel := s.patience(ctx)
	defer cancel()
	batches, err = s.feed.Open(wait, s.walk(ctx, s.planned))
	if errors.Is(err, budget.ErrTooLarge) {
		err = fmt.Errorf("shard %q: %w", s.Store.Heaviest(s.snapshot, s.projection, s.blocks), err)
	}
	if err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("dataset %q: %w", s.request.Dataset, err)
	}
	return batches, err
}

// walk says what a planned request reads, of its rank or of the first.
func (s *Server) walk(ctx context.Context, p *planned) feed.Walk {
	return feed.Walk{
		Name: p.hash + p.projection.Fingerprint(), Plan: p.plan, Snapshot: p.snapshot, Blocks: p.blocks, Projection: p.projection,
		Order: p.order, Schedule: p.schedule, Stream: p.stream(max(p.rank, 0)), First: p.first,
		Join: p.batch > 0, RowID: p.request.RowID, Tenant: principal(ctx).Tenant,
	}
}

// patience bounds how long one may stand in line for memory.
func (s *Server) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.AdmissionTimeout > 0 {
		return context.WithTimeout(ctx, s.AdmissionTimeout)
	}
	return context.WithCancel(ctx)
}

package gateway

import (
	"context"
	"errors"
	"fmt"

	"github.com/headrace/headrace/storage/budget"
)

// admit reserves a stream's whole need at once, waiting in line at most the admission timeout.
func (s *sender) admit(ctx context.Context, need int64) (grant *budget.Grant, err error) {
	ctx, end := s.Events.Span(ctx, "admission")
	defer func() { end(err) }()
	wait := ctx
	if s.AdmissionTimeout > 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, s.AdmissionTimeout)
		defer cancel()
	}
	if grant, err = s.Ledger.Admit(wait, need); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if errors.Is(err, budget.ErrTooLarge) {
			err = fmt.Errorf("shard %q: %w", s.Store.Heaviest(s.snapshot, s.projection, s.blocks), err)
		}
		return nil, fmt.Errorf("dataset %q: %w", s.request.Dataset, err)
	}
	return grant, nil
}

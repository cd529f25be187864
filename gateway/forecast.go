package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/headrace/headrace/gateway/wire"
	"github.com/headrace/headrace/storage/cache"
)

// forecastAction is the action that foresees what a request would find in memory, and what its epochs would fetch.
const forecastAction = "headrace.forecast"

// forecast follows the epochs of a request, all its ranks and workers together, with the gateway's memory to themselves,
// or that of one with so many bytes for streams as they say: what that one would refuse is refused. So with its cache on disk.
func (s *Server) forecast(ctx context.Context, body []byte) ([]byte, error) {
	asked, err := wire.ParseForecast(body)
	if err != nil {
		return nil, err
	}
	if asked.Policy == "" {
		asked.Policy = s.Cache.Stats().Policy
	}
	if !slices.Contains(cache.Policies, asked.Policy) {
		return nil, fmt.Errorf("%w: policy: there is none %.40q; there are %s", wire.ErrRequest, asked.Policy, strings.Join(cache.Policies, ", "))
	}
	if asked.Limit == 0 {
		asked.Limit = s.Ledger.Stats().Limit
	}
	if asked.Disk == nil {
		asked.Disk = new(int64)
		if s.Disk != nil {
			*asked.Disk = s.Disk.Stats().Limit
		}
	}
	p, err := s.planWithin(ctx, forecastAction, asked.Request, asked.Limit)
	if err != nil {
		return nil, err
	}
	if err := s.alone(ctx); err != nil {
		return nil, err
	}
	defer s.done()
	wait, cancel := s.patience(ctx)
	defer cancel()
	f, err := s.feed.Forecast(wait, s.walk(ctx, p), p.ranks*p.workers, asked.Policy, asked.Limit, *asked.Disk)
	if err != nil {
		return nil, err
	}
	return wire.ForecastMeta(f).Marshal(), nil
}

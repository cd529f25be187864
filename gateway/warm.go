package gateway

import (
	"context"
	"encoding/json"

	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/headrace/headrace/gateway/feed"
	"github.com/headrace/headrace/gateway/wire"
)

// warmAction is the action that loads what a request will need, as far as memory that nobody needs goes.
const warmAction = "headrace.warm"

// warm loads the blocks of a request's plan, and sends a line of JSON after every window.
func (s *Server) warm(ctx context.Context, body []byte, send func(*flight.Result) error) error {
	req, err := wire.Parse(body)
	if err != nil {
		return err
	}
	p, err := s.pinned(ctx, warmAction, req)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(s.running, func() { cancel(context.Cause(s.running)) })
	defer stop()
	told := func(w feed.Warmth) error {
		line, err := json.Marshal(wire.WarmMeta(w))
		if err != nil {
			return err
		}
		return send(&flight.Result{Body: line})
	}
	return cause(ctx, s.feed.Warm(ctx, s.walk(ctx, p), told))
}

package gateway

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/headrace/headrace/gateway/wire"
	"github.com/headrace/headrace/sampler"
)

// receiptsAction is the action that says what the receipts of all ranks must add up to.
const receiptsAction = "headrace.receipts"

// maxReceipts is how many epochs are added up in one call; each of them may take seconds.
const maxReceipts = 256

// receipts adds up, for each epoch of a request, the rows that all ranks are to get.
func (s *Server) receipts(ctx context.Context, body []byte) ([]byte, error) {
	req, err := wire.Parse(body)
	if err != nil {
		return nil, err
	}
	if req.NumEpochs < 0 || req.NumEpochs > maxReceipts || req.After != nil {
		return nil, fmt.Errorf("%w: receipts are added up from start on, for %d epochs at most: leave out after, name num_epochs",
			wire.ErrRequest, maxReceipts)
	}
	p, err := s.pinned(ctx, receiptsAction, req)
	if err != nil {
		return nil, err
	}
	if err := s.alone(ctx); err != nil {
		return nil, err
	}
	defer s.done()
	epochs := []wire.EpochReceipt{}
	for epoch := p.schedule.Begin().Epoch; epoch < p.schedule.End(); epoch++ {
		r, err := s.receipt(ctx, p, epoch)
		if err != nil {
			return nil, err
		}
		epochs = append(epochs, r)
	}
	return json.Marshal(epochs)
}

// alone waits until nobody else has long sums done, so that streams keep their processors. Unless it fails, done must follow.
func (s *Server) alone(ctx context.Context) error {
	select {
	case s.adding <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Server) done() { <-s.adding }

// receipt adds up one epoch. Its tables are paid for like a stream's.
func (s *Server) receipt(ctx context.Context, p *planned, number int64) (r wire.EpochReceipt, err error) {
	wait, cancel := s.patience(ctx)
	defer cancel()
	grant, err := s.Ledger.Admit(wait, p.order.EpochBytes()+windowTables(p.plan, p.order.Rows(), p.order.Blocks()))
	if err != nil {
		return r, err
	}
	defer grant.Close()
	from, to := p.schedule.Range(number)
	sum, err := p.order.Epoch(number).Sum(ctx, p.snapshot.ID, from, to)
	if err != nil {
		return r, err
	}
	return wire.EpochReceipt{Epoch: number, Rows: to - from, Dropped: p.order.Rows() - to, Sum: sum.String()}, nil
}

// windowTables is about what it takes to have one window open: some bytes for each of its rows.
func windowTables(p sampler.Plan, rows, blocks int64) int64 {
	const eachRow = 16
	if p.Shuffle != sampler.ShuffleWindow || blocks == 0 {
		return 0
	}
	return eachRow * (rows/blocks + 1) * min(blocks, p.WindowBlocks)
}

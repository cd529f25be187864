package feed

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

// window is the blocks of one window, decoded for all streams that are in it. Its fields but for the channel are guarded
// by plan.mu until done is closed, and do not change after that.
type window struct {
	at     place
	users  int // streams that are in it or have it read ahead
	state  state
	done   chan struct{} // closed when the decoding ends; made anew when it begins again
	cancel context.CancelFunc
	err    error

	pieces []sampler.Piece
	rows   *sampler.Window // finds rows; nil in stored order without a split
	blocks []*block        // by piece
}

type state int

const (
	idle state = iota
	decoding
	ready
)

// enter returns a window with its blocks decoded, and waits for them: for memory too, unless the stream leads its convoy.
// It must be left.
func (s *Stream) enter(ctx context.Context, at place) (*window, error) {
	w := s.plan.use(at)
	if err := s.await(ctx, w); err != nil {
		s.plan.leave(w)
		return nil, err
	}
	return w, nil
}

// patience is how often a leader looks again for memory before it gives up: what its convoy still sends may come back,
// but a window that is larger than anybody thought never fits.
const patience = 200

// await waits until a window is decoded.
func (s *Stream) await(ctx context.Context, w *window) error {
	for tries := 0; ; {
		done, changed := s.decode(ctx, w)
		if done != nil {
			select {
			case <-done:
			case <-ctx.Done():
				return ctx.Err()
			}
			state, err := s.plan.outcome(w)
			switch {
			case state == ready:
				return nil
			case errors.Is(err, context.Canceled): // whoever began it gave up
				continue
			case err != nil && !errors.Is(err, budget.ErrExhausted):
				return err
			case s.plan.led(s):
				if tries++; tries > patience {
					return err
				}
			}
		}
		if err := pause(ctx, changed); err != nil {
			return err
		}
	}
}

// retry is how soon a stream looks again for memory when nothing that it can see has changed: frames that gRPC still
// sends come back without a word.
const retry = 20 * time.Millisecond

func pause(ctx context.Context, changed <-chan struct{}) error {
	t := time.NewTimer(retry)
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// outcome is how a decoding has ended.
func (p *plan) outcome(w *window) (state, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return w.state, w.err
}

// led tells whether a stream leads its convoy.
func (p *plan) led(s *Stream) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return s.convoy.leads(s)
}

// decode sees to it that a window is being decoded, and returns what tells its end; without memory nothing, and what tells
// a change.
func (s *Stream) decode(ctx context.Context, w *window) (done, changed <-chan struct{}) {
	p := s.plan
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.state != idle {
		return w.done, p.changed
	}
	grant, own := s.convoy.grant, false
	if !s.convoy.leads(s) {
		free, err := p.feed.ledger.Try(p.bytes(p.pieces(w.at)))
		if err != nil {
			return nil, p.changed
		}
		grant, own = free, true
	}
	p.begin(ctx, w, grant, own)
	return w.done, p.changed
}

// pieces lists the blocks of a window. The lock is held.
func (p *plan) pieces(at place) []sampler.Piece {
	return p.epochLocked(at.epoch).Pieces(at.span, at.window)
}

// ahead begins to decode a window that will be needed, if there is memory for it. It must be left, like one entered.
func (s *Stream) ahead(ctx context.Context, at place) *window {
	p := s.plan
	w := p.use(at)
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.state == idle && w.err == nil {
		grant, err := p.feed.ledger.Try(p.bytes(p.pieces(at)))
		if err == nil {
			p.begin(ctx, w, grant, true)
		}
	}
	return w
}

// use finds a window, or makes one that is still to be decoded, and counts one more user.
func (p *plan) use(at place) *window {
	p.epoch(at.epoch)
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.windows[at]
	if w == nil {
		w = &window{at: at, done: make(chan struct{})}
		p.windows[at] = w
	}
	w.users++
	return w
}

// leave ends a stream's use of a window. After the last one's, its blocks are given back.
func (p *plan) leave(w *window) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.users--; w.users > 0 {
		return
	}
	delete(p.windows, w.at)
	switch w.state {
	case decoding:
		w.cancel() // the decoding gives back what it has
	case ready:
		p.release(w)
	}
	p.notify()
}

func (p *plan) release(w *window) {
	for _, b := range w.blocks {
		if b != nil {
			p.feed.blocks.release(b)
		}
	}
	w.blocks = nil
}

// begin starts the decoding of a window. It is told as part of the call that asked for it, but ends with the plan: others
// may wait for it when that call is over. The lock is held.
func (p *plan) begin(call context.Context, w *window, grant *budget.Grant, own bool) {
	e := p.epochLocked(w.at.epoch)
	ctx, cancel := context.WithCancel(context.WithoutCancel(call))
	stop := context.AfterFunc(p.ctx, cancel)
	w.state, w.cancel, w.err, w.done = decoding, cancel, nil, make(chan struct{})
	p.work.Go(func() {
		defer cancel()
		defer stop()
		blocks, rows, pieces, err := p.load(ctx, e, w.at, grant)
		if own {
			grant.Close() // what it was charged stays charged until the frames are gone
		}
		p.finish(w, blocks, rows, pieces, err)
	})
}

// finish tells everybody how the decoding of a window has ended.
func (p *plan) finish(w *window, blocks []*block, rows *sampler.Window, pieces []sampler.Piece, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.blocks, w.rows, w.pieces, w.err = blocks, rows, pieces, err
	w.state = ready
	if err != nil {
		p.release(w)
		w.state = idle
	} else if w.users == 0 { // everybody left meanwhile
		p.release(w)
	}
	close(w.done)
	p.notify()
}

// load decodes the blocks of a window, several at a time.
func (p *plan) load(ctx context.Context, e *sampler.Epoch, at place, grant *budget.Grant) ([]*block, *sampler.Window, []sampler.Piece, error) {
	pieces := e.Pieces(at.span, at.window)
	var rows *sampler.Window
	if p.located() {
		rows = e.Open(at.span, at.window)
		pieces = rows.Pieces()
	}
	blocks := make([]*block, len(pieces))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, piece := range pieces {
		group.Go(func() (err error) {
			defer func() {
				if r := recover(); r != nil {
					err = fmt.Errorf("%w: %v\n%s", ErrPanic, r, debug.Stack())
				}
			}()
			blocks[i], err = p.block(ctx, piece.Block, grant)
			return err
		})
	}
	return blocks, rows, pieces, group.Wait()
}

// block decodes one block, unless some window already has it.
func (p *plan) block(ctx context.Context, number int, grant *budget.Grant) (*block, error) {
	at := p.walk.Blocks.At(number)
	key := blockKey{shard: p.walk.Snapshot.Shards[at.Shard], segment: at.Segment, from: at.From, columns: p.columns}
	return p.feed.blocks.acquire(ctx, key, func() ([]*frame.Lease, error) {
		return p.lanes.read(ctx, p, at, grant)
	})
}

// located tells whether rows must be looked up: in stored order without a split a window is a block as it is.
func (p *plan) located() bool {
	return p.walk.Plan.Shuffle != sampler.ShuffleNone || p.walk.Plan.Split != nil
}

// frameAt finds the frame of a piece that holds a row of its block, and where it begins.
func (w *window) frameAt(piece int, row int64) (lease *frame.Lease, index int, start int64) {
	for i, l := range w.blocks[piece].leases {
		n := l.Batch().NumRows()
		if row < start+n {
			return l, i, start
		}
		start += n
	}
	panic(fmt.Sprintf("row %d of a block of %d", row, start))
}

// records lists the batches of a piece.
func (w *window) records(piece int) []arrow.RecordBatch {
	var all []arrow.RecordBatch
	for _, l := range w.blocks[piece].leases {
		all = append(all, l.Batch())
	}
	return all
}

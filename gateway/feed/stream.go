package feed

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/headrace/headrace/gateway/gather"
	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

// Stream yields the batches of one walk. One goroutine uses it.
type Stream struct {
	walk   Walk
	plan   *plan
	grant  *budget.Grant // pays for batches, and for the convoy's windows if the stream founded it
	convoy *convoy
	place  sampler.Place // of its next step; guarded by plan.mu
	at     place         // of the first window of its next step; guarded by plan.mu
	sums   sampler.Summer
	schema *arrow.Schema // with the column of row numbers

	step   int64
	inside map[int]*window // by span
	next   map[int]*window // read ahead, by span
	total  Receipt
	picker *picker
}

func newStream(p *plan, w Walk) (*Stream, error) {
	s := &Stream{
		walk: w, plan: p, step: w.Stream.Next(w.First), sums: sampler.NewSummer(w.Snapshot.ID),
		schema: WithRowID(w.Projection.Schema), inside: map[int]*window{}, next: map[int]*window{},
	}
	gatherer, err := gather.New(w.Projection.Schema)
	if err != nil {
		return nil, err
	}
	s.picker = newPicker(s, gatherer)
	if s.more() {
		s.place, s.at = s.whereabouts(s.walk.Schedule.Step(s.step))
	}
	return s, nil
}

// Grant pays for the stream's batches, and for what is made of them on their way out.
func (s *Stream) Grant() *budget.Grant { return s.grant }

// more tells whether there is another step.
func (s *Stream) more() bool {
	count := s.walk.Schedule.Count()
	return count == sampler.Endless || s.step < count
}

// whereabouts is where a step stands: its rows, and the first window that its share touches.
func (s *Stream) whereabouts(step sampler.Step) (sampler.Place, place) {
	at := place{epoch: step.Epoch}
	for run := range s.plan.epoch(step.Epoch).Runs(step, s.walk.Stream.Rank, s.walk.Stream.Ranks) {
		at.span, at.window = run.Span, run.Window
		break
	}
	return sampler.Place{Epoch: step.Epoch, Rows: step.From}, at
}

// Next returns the next batch, io.EOF after the last, or why there is none: an error is never an early end.
func (s *Stream) Next(ctx context.Context) (*Batch, error) {
	if !s.more() {
		return nil, io.EOF
	}
	step := s.walk.Schedule.Step(s.step)
	s.move(step)
	b := &Batch{Step: step.Number, Epoch: step.Epoch, After: step.After}
	if err := s.fill(ctx, b, step); err != nil {
		s.picker.reset()
		b.Release()
		return nil, err
	}
	for _, p := range b.Pieces {
		b.Rows += p.Record.NumRows()
		b.Sum = b.Sum.Add(p.Sum(0, p.Record.NumRows()))
	}
	s.account(b, step)
	s.step += s.walk.Stream.Workers
	return b, nil
}

// move tells the convoy where the stream is now.
func (s *Stream) move(step sampler.Step) {
	at, window := s.whereabouts(step)
	s.plan.mu.Lock()
	defer s.plan.mu.Unlock()
	s.place, s.at = at, window
	s.plan.notify()
}

// fill takes the stream's share of a step, window after window.
func (s *Stream) fill(ctx context.Context, b *Batch, step sampler.Step) error {
	epoch := s.plan.epoch(step.Epoch)
	for run := range epoch.Runs(step, s.walk.Stream.Rank, s.walk.Stream.Ranks) {
		w, waited, err := s.reach(ctx, b, place{step.Epoch, run.Span, run.Window})
		b.Wait += waited
		if err != nil {
			return err
		}
		if err := s.picker.pick(b, w, run); err != nil {
			return err
		}
	}
	if err := s.picker.flush(b); err != nil {
		return err
	}
	if err := s.join(b); err != nil {
		return err
	}
	if len(b.Pieces) == 0 {
		if err := s.empty(b); err != nil {
			return err
		}
	}
	if s.walk.RowID {
		for i := range b.Pieces {
			b.Pieces[i].Record = withRowID(s.schema, b.Pieces[i])
		}
	}
	return nil
}

// reach makes a window the one that the stream is in, and leaves the one it was in before: rows still to be copied out
// of that are copied first, so that it does not hold one window while it waits for another.
func (s *Stream) reach(ctx context.Context, b *Batch, at place) (w *window, waited time.Duration, err error) {
	if w = s.inside[at.span]; w != nil && w.at == at {
		return w, 0, nil
	}
	if err := s.quit(b, at.span); err != nil {
		return nil, 0, err
	}
	began := time.Now()
	w, err = s.enter(ctx, at)
	if err != nil {
		return nil, time.Since(began), err
	}
	s.inside[at.span] = w
	s.readAhead(ctx, at)
	return w, time.Since(began), nil
}

// quit leaves the window of a span.
func (s *Stream) quit(b *Batch, span int) error {
	w := s.inside[span]
	if w == nil {
		return nil
	}
	if err := s.picker.flush(b); err != nil {
		return err
	}
	s.picker.drop(w)
	delete(s.inside, span)
	s.plan.leave(w)
	return nil
}

// readAhead has the window after one decoded while the stream is in it.
func (s *Stream) readAhead(ctx context.Context, at place) {
	if old := s.next[at.span]; old != nil {
		delete(s.next, at.span)
		defer s.plan.leave(old) // after the new one is in use: they may be the same
	}
	if next, ok := s.plan.following(at, s.walk.Schedule.End()); ok {
		s.next[at.span] = s.ahead(ctx, next)
	}
}

// join makes one piece of several, unless they are more than a frame.
func (s *Stream) join(b *Batch) error {
	if !s.walk.Join || len(b.Pieces) < 2 {
		return nil
	}
	pieces := make([]frame.Piece, len(b.Pieces))
	joined := Piece{sums: s.sums}
	for i, p := range b.Pieces {
		pieces[i] = frame.PieceOf(p.Record, 0, p.Record.NumRows())
		joined.rows = append(joined.rows, p.rows...)
	}
	size, err := frame.Measure(s.walk.Projection.Schema, pieces)
	if err != nil && !errors.Is(err, frame.ErrOverflow) {
		return err
	}
	if err != nil || size > frame.MaxFrame {
		return nil
	}
	joined.Lease, err = s.plan.feed.pool.Assemble(s.grant, budget.Batches, s.walk.Projection.Schema, pieces)
	if err != nil {
		return err
	}
	joined.Record = joined.Lease.Batch()
	b.Release()
	b.Pieces = []Piece{joined}
	return nil
}

// empty makes the batch of a share without rows: the step counts, so that all ranks take as many.
func (s *Stream) empty(b *Batch) error {
	lease, err := s.plan.feed.pool.Assemble(s.grant, budget.Batches, s.walk.Projection.Schema, nil)
	if err == nil {
		b.Pieces = append(b.Pieces, Piece{Record: lease.Batch(), Lease: lease, sums: s.sums})
	}
	return err
}

// account counts a batch, and closes the epoch's receipt with the stream's last one of it.
func (s *Stream) account(b *Batch, step sampler.Step) {
	s.total.Rows += b.Rows
	s.total.Steps++
	s.total.Sum = s.total.Sum.Add(b.Sum)
	for _, p := range b.Pieces {
		for _, r := range p.rows {
			if r.padded {
				s.total.Padded += r.n
			}
		}
	}
	if !s.walk.Schedule.Final(step, s.walk.Stream.Workers) {
		return
	}
	receipt := s.total
	_, to := s.walk.Schedule.Range(step.Epoch)
	receipt.Dropped = s.walk.Order.Rows() - to
	b.Receipt = &receipt
	s.total = Receipt{}
}

// Close gives back what the stream holds. Batches given out stay valid.
func (s *Stream) Close() {
	s.picker.reset()
	for _, w := range s.inside {
		s.plan.leave(w)
	}
	for _, w := range s.next {
		s.plan.leave(w)
	}
	s.depart()
	if s.convoy == nil || s.convoy.grant != s.grant {
		s.grant.Close()
	}
	s.plan.feed.part(s.plan)
}

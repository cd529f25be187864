package feed

import (
	"context"
	"io"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/headrace/headrace/gateway/gather"
	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/storage/budget"
)

// Stream yields the batches of one walk. One goroutine uses it.
type Stream struct {
	walk   Walk
	plan   *plan
	number int64         // in the order of opening
	grant  *budget.Grant // pays for batches
	convoy *convoy
	place  sampler.Place // where its next step begins; guarded by plan.mu
	sums   sampler.Summer
	schema *arrow.Schema // with the column of row numbers

	step   int64
	epoch  *sampler.Epoch  // of the step
	inside map[int]*window // by span
	next   map[int]ahead   // by span
	pinned []*window
	total  Receipt
	picker *picker
	lull   *lull // since it entered a window
}

func newStream(p *plan, w Walk) (*Stream, error) {
	s := &Stream{
		walk: w, plan: p, number: p.feed.opened.Add(1), step: w.Stream.Next(w.First), sums: sampler.NewSummer(w.Snapshot.ID),
		schema: WithRowID(w.Projection.Schema), inside: map[int]*window{}, next: map[int]ahead{},
	}
	gatherer, err := gather.New(w.Projection.Schema)
	if err != nil {
		return nil, err
	}
	s.picker = newPicker(s, gatherer)
	p.mu.Lock()
	defer p.mu.Unlock()
	s.proceed()
	return s, nil
}

// Grant pays for the stream's batches, and for what is made of them on their way out.
func (s *Stream) Grant() *budget.Grant { return s.grant }

// more tells whether there is another step.
func (s *Stream) more() bool { return s.has(s.step) }

func (s *Stream) has(step int64) bool {
	count := s.walk.Schedule.Count()
	return count == sampler.Endless || step < count
}

// Next returns the next batch, io.EOF after the last, or why there is none: an error is never an early end.
func (s *Stream) Next(ctx context.Context) (*Batch, error) {
	if !s.more() {
		return nil, io.EOF
	}
	s.lull.sent()
	step := s.walk.Schedule.Step(s.step)
	if s.epoch == nil || s.epoch.Number() != step.Epoch {
		s.epoch = s.plan.epoch(step.Epoch)
	}
	b := &Batch{Step: step.Number, Epoch: step.Epoch, After: step.After}
	err := s.fill(ctx, b, step)
	if err != nil {
		s.picker.reset()
		b.Release()
	} else {
		s.account(b, step)
		s.step += s.walk.Stream.Workers
	}
	s.plan.mu.Lock()
	defer s.plan.mu.Unlock()
	s.letGo()
	if err != nil {
		return nil, err
	}
	s.proceed()
	return b, nil
}

// fill takes the stream's share of a step, window after window.
func (s *Stream) fill(ctx context.Context, b *Batch, step sampler.Step) error {
	for run := range s.epoch.Runs(step, s.walk.Stream.Rank, s.walk.Stream.Ranks) {
		if err := ctx.Err(); err != nil { // a share may have any number of runs, without a window to wait for
			return err
		}
		w, err := s.reach(ctx, b, step, run)
		if err != nil {
			return err
		}
		if err := s.picker.pick(b, w, run); err != nil {
			return err
		}
	}
	return s.picker.finish(b)
}

// reach pins the window of a run and makes it the one that the stream is in. Before it waits for a window it lets go of
// all others, and copies what it still wants of them.
func (s *Stream) reach(ctx context.Context, b *Batch, step sampler.Step, run sampler.Run) (*window, error) {
	at := place{step.Epoch, run.Span, run.Window}
	w := s.inside[at.span]
	if w == nil || w.at != at {
		s.enter(run)
		if err := s.quit(b, at.span); err != nil {
			return nil, err
		}
		w = s.plan.use(s.epoch, at)
		s.inside[at.span] = w
	}
	if err := s.hold(ctx, b, w); err != nil {
		return nil, err
	}
	if s.next[at.span].of != w && !run.Padded { // repeated rows are at the epoch's end, in windows that lie behind
		s.readAhead(ctx, step, run)
	}
	return w, nil
}

// hold pins a window, unless it is.
func (s *Stream) hold(ctx context.Context, b *Batch, w *window) error {
	for _, p := range s.pinned {
		if p == w {
			return nil
		}
	}
	if !s.plan.pin(w) {
		if err := s.picker.settle(b); err != nil {
			return err
		}
		s.plan.mu.Lock()
		s.letGo()
		s.plan.mu.Unlock()
		s.lull.stop() // reading is slower than sending: it loses no time
		began := time.Now()
		err := s.await(ctx, w, &b.Wait)
		b.Wait.Total += time.Since(began)
		if err != nil {
			return err
		}
	}
	s.pinned = append(s.pinned, w)
	return nil
}

// letGo unpins all windows. The plan's lock is held.
func (s *Stream) letGo() {
	for _, w := range s.pinned {
		s.plan.unpin(w)
	}
	s.pinned = s.pinned[:0]
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
	s.plan.mu.Lock()
	s.letGo()
	s.plan.mu.Unlock()
	s.picker.drop(w)
	delete(s.inside, span)
	s.plan.leave(w)
	return nil
}

// account counts a batch, and closes the epoch's receipt with the stream's last one of it.
func (s *Stream) account(b *Batch, step sampler.Step) {
	for _, p := range b.Pieces {
		b.Rows += p.Record.NumRows()
		b.Sum = b.Sum.Add(p.Sum(0, p.Record.NumRows()))
		for _, r := range p.rows {
			if r.padded {
				s.total.Padded += r.n
			}
		}
	}
	s.total.Rows += b.Rows
	s.total.Steps++
	s.total.Sum = s.total.Sum.Add(b.Sum)
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
	s.lull.stop()
	s.picker.reset()
	s.plan.mu.Lock()
	s.letGo() // something is left of a step that panicked
	s.plan.mu.Unlock()
	for _, w := range s.inside {
		s.plan.leave(w)
	}
	for _, a := range s.next {
		s.leave(a.list)
	}
	s.depart()
	s.grant.Close()
	s.plan.feed.part(s.plan)
}

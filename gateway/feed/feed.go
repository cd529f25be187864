// Package feed walks a plan: prefetches frames, joins and cuts rows, yields batches with cursors.
//
// A [Stream] has two stages. One goroutine asks the store for the plan's blocks, one ahead of need; [Stream.Next] cuts
// what has arrived into steps. A step that lies within one frame is a slice of it and copies nothing; a step over
// several frames is joined into one new frame.
package feed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

// ErrPanic says that reading a block failed in a way that nobody foresaw; the text has the stack.
var ErrPanic = errors.New("panic while reading")

// Walk says what a stream reads: the steps [First, Steps.Count()) of one epoch of a plan.
type Walk struct {
	Snapshot   *snapshot.Snapshot
	Blocks     *snapshot.Blocks // of the plan's shards
	Projection *schema.Projection
	Steps      sampler.Steps
	Join       bool  // steps have a size of their own: join rows over blocks
	First      int64 // the first step
	Epoch      int64
	RowID      bool // append the column __row_id
}

// Position is a place in a plan: an epoch, and the rows of it given out.
type Position struct{ Epoch, Rows int64 }

// Receipt closes an epoch: what the stream gave out since its first step.
type Receipt struct {
	Rows, Steps, Dropped int64
	Sum                  sampler.Sum
}

// Batch is one step. Release gives its memory back.
type Batch struct {
	Pieces  []Piece // one, unless the step is larger than a frame
	Step    int64   // counted from the walk's first step
	Epoch   int64   // the epoch of its rows
	Rows    int64
	After   Position      // the place after this batch
	Sum     sampler.Sum   // of all rows
	Wait    time.Duration // spent waiting for data
	Receipt *Receipt      // with the last batch of an epoch
}

// Release gives back the leases of all pieces.
func (b *Batch) Release() {
	for _, p := range b.Pieces {
		p.Lease.Release()
	}
}

// Piece is a record batch with the lease that keeps its memory alive.
type Piece struct {
	Record arrow.RecordBatch
	Lease  *frame.Lease
	runs   []run
	sums   sampler.Summer
}

// Sum adds the fingerprints of the piece's rows [from, to).
func (p Piece) Sum(from, to int64) sampler.Sum {
	var sum sampler.Sum
	for _, r := range p.runs {
		a, b := max(from, 0), min(to, r.rows)
		if a < b {
			sum = p.sums.AddRange(sum, r.row+a, b-a)
		}
		from, to = from-r.rows, to-r.rows
	}
	return sum
}

// run is rows that follow each other in the snapshot.
type run struct{ row, rows int64 }

// chunk is a frame on its way to the steps.
type chunk struct {
	lease *frame.Lease
	start int64 // place of its first row in the plan
	run   run
}

// Stream yields the batches of one walk. One goroutine uses it.
type Stream struct {
	walk   Walk
	pool   *frame.Pool
	grant  *budget.Grant
	sums   sampler.Summer
	schema *arrow.Schema // with the column of row numbers
	chunks chan chunk
	held   []chunk // arrived, not yet given out
	step   int64
	total  Receipt
	stop   context.CancelFunc
	group  *errgroup.Group
}

// Open starts reading ahead. The grant pays for every frame; ctx ends the reading. Close must be called.
func Open(ctx context.Context, store *storage.Store, pool *frame.Pool, grant *budget.Grant, w Walk) *Stream {
	ctx, stop := context.WithCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	s := &Stream{
		walk: w, pool: pool, grant: grant, sums: sampler.NewSummer(w.Snapshot.ID), schema: WithRowID(w.Projection.Schema),
		chunks: make(chan chunk), step: w.First, stop: stop, group: group,
	}
	if w.First >= w.Steps.Count() { // nothing is left to read
		close(s.chunks)
		return s
	}
	group.Go(func() error { return s.read(ctx, store) })
	return s
}

// Next returns the next batch, io.EOF after the last, or why there is none: an error is never an early end.
func (s *Stream) Next(ctx context.Context) (*Batch, error) {
	if s.step >= s.walk.Steps.Count() {
		return nil, io.EOF
	}
	from, to := s.walk.Steps.Step(s.step)
	began := time.Now()
	if err := s.fill(ctx, to); err != nil {
		return nil, err
	}
	b := &Batch{Step: s.step - s.walk.First, Epoch: s.walk.Epoch, Rows: to - from, Wait: time.Since(began)}
	if err := s.cut(b, from, to); err != nil {
		b.Release()
		return nil, err
	}
	for _, p := range b.Pieces {
		b.Sum = b.Sum.Add(p.Sum(0, p.Record.NumRows()))
	}
	s.step++
	s.account(b, to)
	return b, nil
}

// account gives the batch its place, and the epoch's receipt to the last one.
func (s *Stream) account(b *Batch, to int64) {
	s.total.Rows += b.Rows
	s.total.Steps++
	s.total.Sum = s.total.Sum.Add(b.Sum)
	b.After = Position{Epoch: s.walk.Epoch, Rows: to}
	if s.step == s.walk.Steps.Count() {
		b.After = Position{Epoch: s.walk.Epoch + 1}
		receipt := s.total
		receipt.Dropped = s.walk.Steps.Dropped()
		b.Receipt = &receipt
	}
}

// Close ends the reading, waits for it, and gives back what nobody took.
func (s *Stream) Close() {
	s.stop()
	for c := range s.chunks { // until the reader has ended
		c.lease.Release()
	}
	for _, c := range s.held {
		c.lease.Release()
	}
	s.held = nil
}

// fill waits until the chunks held reach the row to.
func (s *Stream) fill(ctx context.Context, to int64) error {
	for len(s.held) == 0 || s.end() < to {
		select {
		case c, ok := <-s.chunks:
			if !ok {
				return s.ended()
			}
			s.held = append(s.held, c)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (s *Stream) end() int64 {
	last := s.held[len(s.held)-1]
	return last.start + last.run.rows
}

// ended says why the reader stopped short of the plan's end.
func (s *Stream) ended() error {
	if err := s.group.Wait(); err != nil {
		return err
	}
	return fmt.Errorf("%w: blocks ended before the plan's %d rows", snapshot.ErrCorrupt, s.walk.Steps.Rows())
}

// read asks for block after block. It closes the channel when it returns, so that Close and Next see its end.
func (s *Stream) read(ctx context.Context, store *storage.Store) (err error) {
	defer close(s.chunks)
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v\n%s", ErrPanic, r, debug.Stack())
		}
	}()
	reader := store.Open(s.walk.Snapshot, s.walk.Projection, s.grant)
	defer reader.Close()
	from, _ := s.walk.Steps.Step(s.walk.First)
	for i := s.walk.Blocks.Find(from); i < s.walk.Blocks.Len(); i++ {
		block, start := s.walk.Blocks.At(i), s.walk.Blocks.Start(i)
		if start < from { // a stream that goes on within a block needs only its rest
			skip := from - start
			block.From, block.Row, start = block.From+skip, block.Row+skip, from
		}
		leases, err := reader.Block(ctx, block)
		if err != nil {
			return err
		}
		if err := s.pass(ctx, leases, block, start); err != nil {
			return err
		}
	}
	return nil
}

// pass hands the frames of one block over; what it cannot hand over it releases.
func (s *Stream) pass(ctx context.Context, leases []*frame.Lease, block snapshot.Block, start int64) error {
	row := block.Row
	for i, lease := range leases {
		rows := lease.Batch().NumRows()
		select {
		case s.chunks <- chunk{lease: lease, start: start, run: run{row: row, rows: rows}}:
			start, row = start+rows, row+rows
		case <-ctx.Done():
			for _, rest := range leases[i:] {
				rest.Release()
			}
			return ctx.Err()
		}
	}
	return nil
}

// cut moves the rows [from, to) of what is held into the batch.
func (s *Stream) cut(b *Batch, from, to int64) error {
	for len(s.held) > 0 {
		c := s.held[0]
		start, end := max(from, c.start), min(to, c.start+c.run.rows)
		if start >= end {
			break
		}
		b.Pieces = append(b.Pieces, s.piece(c, start-c.start, end-c.start))
		if end < c.start+c.run.rows {
			break
		}
		c.lease.Release()
		s.held = s.held[1:]
	}
	if s.walk.Join && len(b.Pieces) > 1 {
		if err := s.join(b); err != nil {
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

// piece takes a lease of its own on rows [from, to) of a chunk.
func (s *Stream) piece(c chunk, from, to int64) Piece {
	record := c.lease.Batch()
	if from > 0 || to < c.run.rows {
		record = record.NewSlice(from, to)
	}
	return Piece{Record: record, Lease: c.lease.Share(), runs: []run{{row: c.run.row + from, rows: to - from}}, sums: s.sums}
}

// join copies the pieces of a step into one frame. A step larger than a frame stays in pieces.
func (s *Stream) join(b *Batch) error {
	pieces := make([]frame.Piece, len(b.Pieces))
	joined := Piece{sums: s.sums}
	for i, p := range b.Pieces {
		pieces[i] = frame.PieceOf(p.Record, 0, p.Record.NumRows())
		joined.runs = append(joined.runs, p.runs...)
	}
	size, err := frame.Measure(s.walk.Projection.Schema, pieces)
	if err != nil && !errors.Is(err, frame.ErrOverflow) {
		return err
	}
	if err != nil || size > frame.MaxFrame {
		return nil
	}
	joined.Lease, err = s.pool.Assemble(s.grant, budget.Batches, s.walk.Projection.Schema, pieces)
	if err != nil {
		return err
	}
	joined.Record = joined.Lease.Batch()
	b.Release()
	b.Pieces = []Piece{joined}
	return nil
}

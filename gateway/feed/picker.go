package feed

import (
	"errors"
	"slices"

	"github.com/headrace/headrace/gateway/gather"
	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

// picker takes rows out of windows: in stored order as slices of frames, else by copying them, as many at a time as the
// stream's windows allow.
type picker struct {
	stream   *Stream
	gatherer *gather.Gatherer
	slots    map[*window]slots
	free     []int32 // slots of the gatherer
	used     int32

	refs []sampler.Ref
	rows []gather.Row // chosen and not yet copied
	runs []rowRun     // their numbers
}

// slots are where the gatherer has the frames of one decoding of a window, by piece and frame.
type slots struct {
	load *load
	at   [][]int32
}

func newPicker(s *Stream, g *gather.Gatherer) *picker {
	return &picker{stream: s, gatherer: g, slots: map[*window]slots{}}
}

// pick takes a run of the rows of a window, which is pinned.
func (p *picker) pick(b *Batch, w *window, run sampler.Run) error {
	if w.rows == nil {
		return p.slice(b, w, run)
	}
	slots, err := p.put(w)
	if err != nil {
		return err
	}
	n := int(run.To - run.From)
	if cap(p.refs) < n {
		p.refs = make([]sampler.Ref, n)
	}
	refs := p.refs[:n]
	w.rows.Locate(run.From, refs)
	if p.runs == nil {
		p.runs = make([]rowRun, 0, n)
	}
	for _, ref := range refs {
		at, row := slots[ref.Piece], ref.Row
		slot := at[0]
		if len(at) > 1 {
			_, i, start := w.frameAt(int(ref.Piece), ref.Row)
			slot, row = at[i], ref.Row-start
		}
		p.rows = append(p.rows, gather.Row{Frame: slot, Row: int32(row)})
		p.runs = appendRun(p.runs, rowRun{row: w.pieces[ref.Piece].Row + ref.Row, n: 1, padded: run.Padded})
	}
	return nil
}

// slice takes rows of a window that is one block as it is stored. Memory that another convoy waits for is not sent to a
// client that may be slow: such rows are copied, if there is memory for it. Once nobody else pays for a block, the stream
// does until its slices are sent.
func (p *picker) slice(b *Batch, w *window, run sampler.Run) error {
	for from := run.From; from < run.To; {
		lease, _, start := w.frameAt(0, from)
		record := lease.Batch()
		to := min(run.To, start+record.NumRows())
		if from > start || to < start+record.NumRows() {
			record = record.NewSlice(from-start, to-start)
		}
		b.Pieces = append(b.Pieces, Piece{
			Record: record, Lease: lease.ShareFor(p.stream.grant), sums: p.stream.sums, sliced: true,
			rows: []rowRun{{row: w.pieces[0].Row + from, n: to - from, padded: run.Padded}},
		})
		if payer := w.blocks[0].Payer(); payer != nil && payer != p.stream.convoy.grant && !payer.Closed() {
			if err := p.copy(&b.Pieces[len(b.Pieces)-1]); err != nil && !errors.Is(err, budget.ErrExhausted) {
				return err
			}
		}
		from = to
	}
	return p.compact(b)
}

// put makes the frames of a window known to the gatherer.
func (p *picker) put(w *window) ([][]int32, error) {
	if known, ok := p.slots[w]; ok && known.load == w.load {
		return known.at, nil
	}
	p.drop(w) // it was decoded again since
	at := make([][]int32, len(w.pieces))
	p.slots[w] = slots{w.load, at}
	for i := range w.pieces {
		for _, record := range w.records(i) {
			slot := p.slot()
			at[i] = append(at[i], slot)
			if err := p.gatherer.Put(int(slot), record); err != nil {
				return nil, err
			}
		}
	}
	return at, nil
}

func (p *picker) slot() int32 {
	if n := len(p.free); n > 0 {
		slot := p.free[n-1]
		p.free = p.free[:n-1]
		return slot
	}
	p.used++
	return p.used - 1
}

// drop makes the gatherer forget a window's frames.
func (p *picker) drop(w *window) {
	for _, slots := range p.slots[w].at {
		for _, slot := range slots {
			p.gatherer.Drop(int(slot))
			p.free = append(p.free, slot)
		}
	}
	delete(p.slots, w)
}

// flush copies the chosen rows into a piece of the batch, into several if they are more than a frame.
func (p *picker) flush(b *Batch) error {
	rows, runs := p.rows, p.runs
	if len(rows) == 0 {
		return nil
	}
	p.rows, p.runs = p.rows[:0], nil
	if err := p.gather(b, rows, runs); err != nil {
		return err
	}
	return p.compact(b)
}

// manyPieces is how many pieces may come to a batch before they are joined: each takes a page at least.
const manyPieces = 32

// compact joins the pieces that came to a batch once they are many, and with them those before that hold no more rows: so
// each row is copied a few times only, however many pieces there are.
func (p *picker) compact(b *Batch) error {
	if len(b.Pieces)-b.joined <= manyPieces {
		return nil
	}
	var rows int64
	for _, piece := range b.Pieces[b.joined:] {
		rows += piece.Record.NumRows()
	}
	from := b.joined
	for from > 0 && b.Pieces[from-1].Record.NumRows() <= rows {
		from--
		rows += b.Pieces[from].Record.NumRows()
	}
	many := len(b.Pieces)
	err := p.join(b, from)
	if err == nil && len(b.Pieces) == many { // together they are more than a frame
		err = p.join(b, b.joined)
	}
	b.joined = len(b.Pieces)
	return err
}

func (p *picker) gather(b *Batch, rows []gather.Row, runs []rowRun) error {
	size, err := p.gatherer.Select(rows)
	if len(rows) > 1 && (errors.Is(err, frame.ErrOverflow) || err == nil && size > frame.MaxFrame) {
		half := len(rows) / 2
		first, second := cutRuns(runs, int64(half))
		if err := p.gather(b, rows[:half], first); err != nil {
			return err
		}
		return p.gather(b, rows[half:], second)
	}
	if err != nil {
		return err
	}
	lease, err := p.gatherer.Gather(p.stream.plan.feed.pool, p.stream.grant, budget.Batches)
	if err != nil {
		return err
	}
	b.Pieces = append(b.Pieces, Piece{Record: lease.Batch(), Lease: lease, rows: runs, sums: p.stream.sums})
	return nil
}

// settle makes a batch keep nothing of any window, before its stream waits for another one.
func (p *picker) settle(b *Batch) error {
	if first := slices.IndexFunc(b.Pieces, func(piece Piece) bool { return piece.sliced }); first >= 0 {
		if len(b.Pieces) > manyPieces {
			first = 0
		}
		if err := p.join(b, first); err != nil {
			return err
		}
		b.joined = min(b.joined, len(b.Pieces))
	}
	for i := range b.Pieces {
		if b.Pieces[i].sliced { // all are more than a frame
			if err := p.copy(&b.Pieces[i]); err != nil {
				return err
			}
		}
	}
	return p.flush(b)
}

// copy makes a slice a piece with memory of its own.
func (p *picker) copy(piece *Piece) error {
	whole := []frame.Piece{frame.PieceOf(piece.Record, 0, piece.Record.NumRows())}
	lease, err := p.assemble(whole)
	if err != nil {
		return err
	}
	piece.Lease.Release()
	piece.Lease, piece.Record, piece.sliced = lease, lease.Batch(), false
	return nil
}

func (p *picker) assemble(pieces []frame.Piece) (*frame.Lease, error) {
	s := p.stream
	return s.plan.feed.pool.Assemble(s.grant, budget.Batches, s.walk.Projection.Schema, pieces)
}

// finish makes a batch ready to be sent. One of no rows is a piece without rows.
func (p *picker) finish(b *Batch) error {
	if err := p.flush(b); err != nil {
		return err
	}
	if walk := p.stream.walk; len(b.Pieces) == 0 || walk.Join && len(b.Pieces) > 1 {
		if err := p.join(b, 0); err != nil {
			return err
		}
	}
	if p.stream.walk.RowID {
		for i := range b.Pieces {
			b.Pieces[i].Record = withRowID(p.stream.schema, b.Pieces[i])
		}
	}
	return nil
}

// join makes one piece of those from the given one on, unless they are more than a frame.
func (p *picker) join(b *Batch, from int) error {
	pieces := make([]frame.Piece, len(b.Pieces)-from)
	joined := Piece{sums: p.stream.sums}
	for i, piece := range b.Pieces[from:] {
		pieces[i] = frame.PieceOf(piece.Record, 0, piece.Record.NumRows())
		joined.rows = append(joined.rows, piece.rows...)
	}
	size, err := frame.Measure(p.stream.walk.Projection.Schema, pieces)
	if errors.Is(err, frame.ErrOverflow) || err == nil && size > frame.MaxFrame {
		return nil
	}
	if err != nil {
		return err
	}
	if joined.Lease, err = p.assemble(pieces); err != nil {
		return err
	}
	joined.Record = joined.Lease.Batch()
	for _, piece := range b.Pieces[from:] {
		piece.Lease.Release()
	}
	b.Pieces = append(b.Pieces[:from], joined)
	return nil
}

// reset forgets everything.
func (p *picker) reset() {
	p.rows, p.runs = p.rows[:0], nil
	for w := range p.slots {
		p.drop(w)
	}
}

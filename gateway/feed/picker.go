package feed

import (
	"errors"

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
	slots    map[*window][][]int32 // of the gatherer: by piece and frame
	free     []int32
	used     int32

	refs []sampler.Ref
	rows []gather.Row // chosen and not yet copied
	runs []rowRun     // their numbers
}

func newPicker(s *Stream, g *gather.Gatherer) *picker {
	return &picker{stream: s, gatherer: g, slots: map[*window][][]int32{}}
}

// pick takes a run of a window's rows.
func (p *picker) pick(b *Batch, w *window, run sampler.Run) error {
	if w.rows == nil {
		p.slice(b, w, run)
		return nil
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

// slice takes rows of a window that is one block as it is stored.
func (p *picker) slice(b *Batch, w *window, run sampler.Run) {
	for from := run.From; from < run.To; {
		lease, _, start := w.frameAt(0, from)
		record := lease.Batch()
		to := min(run.To, start+record.NumRows())
		if from > start || to < start+record.NumRows() {
			record = record.NewSlice(from-start, to-start)
		}
		b.Pieces = append(b.Pieces, Piece{
			Record: record, Lease: lease.Share(), sums: p.stream.sums,
			rows: []rowRun{{row: w.pieces[0].Row + from, n: to - from, padded: run.Padded}},
		})
		from = to
	}
}

// put makes the frames of a window known to the gatherer.
func (p *picker) put(w *window) ([][]int32, error) {
	if slots, ok := p.slots[w]; ok {
		return slots, nil
	}
	slots := make([][]int32, len(w.pieces))
	p.slots[w] = slots
	for i := range w.pieces {
		for _, record := range w.records(i) {
			slot := p.slot()
			slots[i] = append(slots[i], slot)
			if err := p.gatherer.Put(int(slot), record); err != nil {
				return nil, err
			}
		}
	}
	return slots, nil
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
	for _, slots := range p.slots[w] {
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
	return p.gather(b, rows, runs)
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

// cutRuns cuts a list after n rows.
func cutRuns(runs []rowRun, n int64) (first, second []rowRun) {
	for i, r := range runs {
		if n < r.n {
			first = append(append([]rowRun{}, runs[:i]...), rowRun{r.row, n, r.padded})
			second = append([]rowRun{{r.row + n, r.n - n, r.padded}}, runs[i+1:]...)
			return first, second
		}
		n -= r.n
	}
	return runs, nil
}

// reset forgets everything.
func (p *picker) reset() {
	p.rows, p.runs = p.rows[:0], nil
	for w := range p.slots {
		p.drop(w)
	}
}

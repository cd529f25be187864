package sampler

import "context"

// Sum adds up the fingerprints of the rows at the positions [from, to) of an epoch: what the receipts of all ranks must
// add up to, when these are the positions that were given out. It takes a few nanoseconds for each row, and some tens in
// windows that are not wholly inside. It returns the context's error when that ends first.
func (e *Epoch) Sum(ctx context.Context, snapshot string, from, to int64) (Sum, error) {
	a := adder{epoch: e, sums: NewSummer(snapshot)}
	for c := range int64(e.Spans()) {
		low, high := e.dealt(c, from), e.dealt(c, to)
		for row := low; row < high; {
			if err := ctx.Err(); err != nil {
				return Sum{}, err
			}
			window := e.holding(int(c), row)
			begin, end := e.bounds(int(c), window)
			stop := min(end, high)
			a.window(int(c), window, row-begin, stop-begin, end-begin)
			row = stop
		}
	}
	return a.sum, nil
}

// adder adds up rows of windows.
type adder struct {
	epoch *Epoch
	sums  Summer
	sum   Sum
}

// window adds the places [from, to) of a window of so many rows, the cheaper way round.
func (a *adder) window(span, window int, from, to, rows int64) {
	if from == 0 && to == rows {
		a.whole(a.epoch.Pieces(span, window))
		return
	}
	w := a.epoch.Open(span, window)
	if to-from <= rows/2 {
		a.sum = a.sum.Add(a.places(w, from, to))
		return
	}
	a.whole(w.Pieces())
	a.sum = a.sum.sub(a.places(w, 0, from)).sub(a.places(w, to, rows))
}

// whole adds all rows of pieces, for which their order does not matter.
func (a *adder) whole(pieces []Piece) {
	l := a.epoch.order.layout
	for _, p := range pieces {
		if l.kept == nil {
			a.sum = a.sums.AddRange(a.sum, p.Row+p.From, p.To-p.From)
			continue
		}
		for _, row := range l.choose(p)[p.From:p.To] {
			a.sum = a.sums.AddRange(a.sum, p.Row+int64(row), 1)
		}
	}
}

// places adds places of a window one by one.
func (a *adder) places(w *Window, from, to int64) (sum Sum) {
	var refs [1024]Ref
	for ; from < to; from += int64(len(refs)) {
		some := refs[:min(int64(len(refs)), to-from)]
		w.Locate(from, some)
		for _, r := range some {
			sum = a.sums.AddRange(sum, w.pieces[r.Piece].Row+r.Row, 1)
		}
	}
	return sum
}

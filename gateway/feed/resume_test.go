package feed

import (
	"testing"

	"github.com/headrace/headrace/sampler"
)

// A stream that begins in the middle reads only the windows that are left: what lies before costs nothing, however much
// that is.
func TestResumingReadsOnlyTheRest(t *testing.T) {
	need(t)
	for _, q := range []request{
		{plan: sampler.Plan{Shuffle: sampler.ShuffleWindow, WindowBlocks: 3, Seed: 2}},
		{plan: sampler.Plan{Shuffle: sampler.ShuffleWindow, WindowBlocks: 2, Groups: 3, Seed: 2}, ranks: 3},
		{plan: sampler.Plan{}, ranks: 2},
	} {
		q.dataset, q.columns = "segments", []string{"id"}
		q.cut = sampler.Cut{Batch: 16, End: 1, Tail: sampler.Keep}
		from := sampler.Place{}
		for part := range int64(5) {
			r := newRig(t, 1<<30)
			q.cut.Start = from
			w := r.walk(t, q)
			least, most := rest(w, from.Rows)
			r.together(t, w)
			if got := r.misses(); got < least || got > most {
				t.Errorf("%+v from row %d of %d: %d blocks were read, %d to %d are left of %d", q.plan, from.Rows, w.Blocks.Rows(), got, least, most, w.Blocks.Len())
			}
			from.Rows = min((part+1)*w.Blocks.Rows()/4, w.Blocks.Rows()-1)
			r.close(t)
		}
	}
}

// rest is how many blocks the windows have that hold the first epoch's rows from a position on, and how many times they may
// be read: one on the border of two spans perhaps for each of them.
func rest(w Walk, from int64) (least, most int64) {
	e := w.Order.Epoch(0)
	blocks := map[int]bool{}
	for span := range e.Spans() {
		for window := e.At(span, from); window < e.Windows(span); window++ {
			for _, piece := range e.Pieces(span, window) {
				blocks[piece.Block] = true
				most++
			}
		}
	}
	return int64(len(blocks)), most
}

package sampler

import (
	"math/bits"
	"sync"
)

// Piece is what a window holds of one block. Without a split, its rows are numbered from the block's first; with one,
// they are numbered among those that the split keeps of the block.
type Piece struct {
	Block    int   // number in the plan's shards, as stored
	Row      int64 // number in the snapshot of the block's first row
	Rows     int64 // of the whole block as stored
	From, To int64 // the rows that are the window's
}

// Ref is a row of a window: row Row, counted from the block's first as stored, of the piece with that index.
type Ref struct {
	Row   int64
	Piece int32
}

// Window is one window with its permutation: what finds the rows at its places. It is safe for use by many goroutines.
type Window struct {
	layout  *layout
	pieces  []Piece
	starts  []int64      // rows of the window before each piece, and all
	order   *Permutation // nil: as they are
	buckets []int32      // the piece that holds row i << shift, for every such row, and the last
	shift   int
	chosen  []chosen // with a split
}

// chosen is the rows that a split keeps of a piece's block, listed when first asked for.
type chosen struct {
	once sync.Once
	rows []uint32
}

// Open makes a window's tables: O(rows) up to 65,536 rows, else O(blocks).
func (e *Epoch) Open(span, window int) *Window {
	w := &Window{layout: e.order.layout, pieces: e.Pieces(span, window)}
	w.starts = make([]int64, 1, len(w.pieces)+1)
	for i, p := range w.pieces {
		w.starts = append(w.starts, w.starts[i]+p.To-p.From)
	}
	w.index()
	if e.order.plan.Shuffle != ShuffleNone {
		w.order = newPermutation(e.windowKey(span, window), w.Rows())
	}
	if w.layout.kept != nil {
		w.chosen = make([]chosen, len(w.pieces))
	}
	return w
}

// index makes the buckets: about two for every piece, so that most rows find theirs at once.
func (w *Window) index() {
	most := uint64(2 * len(w.pieces))
	w.shift = max(0, bits.Len64(uint64(w.Rows()))-bits.Len64(most)+1)
	w.buckets = make([]int32, w.Rows()>>w.shift+2)
	piece := 0
	for i := range w.buckets {
		for piece+1 < len(w.pieces) && w.starts[piece+1] <= int64(i)<<w.shift {
			piece++
		}
		w.buckets[i] = int32(piece)
	}
}

// WindowBytes is the most memory that a window of these pieces takes once it is open.
func (e *Epoch) WindowBytes(pieces []Piece) int64 {
	var rows int64
	bytes := 256 + (40+8+8)*int64(len(pieces))
	for _, p := range pieces {
		rows += p.To - p.From
		if k := e.order.layout.kept; k != nil {
			bytes += 40 + 4*(1+scale(int64(k.split.To-k.split.From), p.Rows, splitParts)) // the whole block's
		}
	}
	if e.order.plan.Shuffle != ShuffleNone {
		bytes += permutationBytes(rows)
	}
	return bytes
}

// Rows returns how many rows the window has.
func (w *Window) Rows() int64 { return w.starts[len(w.pieces)] }

// Pieces lists the window's blocks, in list order. It must not be changed.
func (w *Window) Pieces() []Piece { return w.pieces }

// Locate finds the rows at the window's places from, from+1, …, as many as dst holds.
func (w *Window) Locate(from int64, dst []Ref) {
	if w.order != nil {
		w.order.fill(from, dst)
	} else {
		for i := range dst {
			dst[i].Row = from + int64(i)
		}
	}
	for i := range dst {
		row := dst[i].Row
		piece := w.holding(row)
		if row -= w.starts[piece]; piece == 0 { // a span may begin within a block; no other piece lacks its first rows
			row += w.pieces[0].From
		}
		dst[i] = Ref{Row: row, Piece: piece}
	}
	if w.chosen != nil {
		for i := range dst {
			dst[i].Row = int64(w.choice(dst[i].Piece)[dst[i].Row])
		}
	}
}

// holding returns the piece that holds a row of the window, before the permutation.
func (w *Window) holding(row int64) int32 {
	bucket := row >> w.shift
	lo, hi := w.buckets[bucket], w.buckets[bucket+1]
	for lo < hi {
		if mid := (lo + hi + 1) >> 1; w.starts[mid] <= row {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}

// choice lists the rows that the split keeps of a piece's block.
func (w *Window) choice(piece int32) []uint32 {
	c := &w.chosen[piece]
	c.once.Do(func() { c.rows = w.layout.choose(w.pieces[piece]) })
	return c.rows
}

package sampler

import (
	"errors"
	"fmt"
	"sort"
)

// ErrBorder says that a place lies within a step, or beyond the last one.
var ErrBorder = errors.New("not at a step border")

// ErrShort says that the rows do not fill a single batch, so that dropping the tail would drop everything.
var ErrShort = errors.New("fewer rows than one batch")

// Tail says what becomes of the rows after the last full batch.
type Tail int

// What the rows after the last full batch can become.
const (
	Keep Tail = iota // they are a last, shorter step
	Drop             // they are left out, and counted
	Pad              // they are a last step, filled up with rows of the epoch's end
)

// Steps cuts the rows of a plan in stored order into steps. Rows count from 0 over the plan's shards; steps count from
// 0. It is immutable and safe for use by many goroutines.
type Steps struct {
	rows  int64                 // rows of the plan
	count int64                 // steps
	batch int64                 // rows of a step; 0: a step is a block
	start func(block int) int64 // first row of a block, when batch is 0
}

// Blocks makes every block one step. start gives a block's first row, ascending without gaps from 0.
func Blocks(rows int64, blocks int, start func(block int) int64) Steps {
	return Steps{rows: rows, count: int64(blocks), start: start}
}

// Batches makes steps of batch rows (at least 1). Drop is refused with [ErrShort] when there are rows, but fewer than
// one batch: nothing would be left. No rows at all are no steps.
func Batches(rows, batch int64, tail Tail) (Steps, error) {
	count := rows / batch
	if rest := rows % batch; rest > 0 {
		switch {
		case tail == Keep:
			count++
		case count == 0:
			return Steps{}, fmt.Errorf("%w: %d rows, batches of %d, tail drop", ErrShort, rows, batch)
		}
	}
	return Steps{rows: rows, count: count, batch: batch}, nil
}

// Count returns how many steps there are.
func (s Steps) Count() int64 { return s.count }

// Step returns the rows [from, to) of step i, for 0 ≤ i < Count.
func (s Steps) Step(i int64) (from, to int64) { return s.begin(i), s.begin(i + 1) }

// Rows returns how many rows all steps hold together.
func (s Steps) Rows() int64 { return s.begin(s.count) }

// Dropped returns how many rows of the plan no step holds.
func (s Steps) Dropped() int64 { return s.rows - s.Rows() }

// Find returns the step that begins after the given rows, Count at the end of the last one. A place that is no border
// is refused with [ErrBorder]: going on from there would repeat or lose rows.
func (s Steps) Find(rows int64) (int64, error) {
	if rows < 0 || rows > s.Rows() {
		return 0, fmt.Errorf("%w: row %d of %d", ErrBorder, rows, s.Rows())
	}
	var step int64
	if s.batch > 0 {
		step = (rows + s.batch - 1) / s.batch
	} else {
		step = int64(sort.Search(int(s.count), func(i int) bool { return s.start(i) >= rows }))
	}
	if s.begin(step) != rows {
		return 0, fmt.Errorf("%w: row %d of %d", ErrBorder, rows, s.Rows())
	}
	return step, nil
}

// begin returns the first row of step i; for i = Count, the rows of all steps.
func (s Steps) begin(i int64) int64 {
	switch {
	case s.batch > 0:
		return min(i*s.batch, s.rows)
	case i < s.count:
		return s.start(int(i))
	default:
		return s.rows
	}
}

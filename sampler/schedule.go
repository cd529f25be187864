package sampler

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// ErrPlace says that a place is not among the epochs and rows asked for.
var ErrPlace = errors.New("no such place in the plan")

// Endless is the End of a schedule without end.
const Endless = -1

// Place is a place in a plan: an epoch, and how many of its rows were given out to all ranks.
type Place struct{ Epoch, Rows int64 }

// Cut says how an order is cut into steps.
type Cut struct {
	Batch int64 // rows that all ranks take in a step; 0: a step is a block
	Tail  Tail
	Start Place // where the first step begins, at any row; steps are counted from here
	End   int64 // the epoch after the last one, or [Endless]
}

// maxBatch keeps sums of rows and batches within 64 bits.
const maxBatch = 1 << 62

// Schedule is the steps that all ranks take together. They are counted from the start on, over the borders of epochs,
// and never go across one. It is immutable and safe for use by many goroutines.
type Schedule struct {
	layout *layout
	cut    Cut
	rows   int64 // of an epoch
	first  int64 // steps of the epoch of the start
	each   int64 // steps of every epoch after it
}

// Step is what all ranks take together: the positions [From, To) of an epoch, and after them Padded repeated ones.
type Step struct {
	Number   int64 // from the start on
	Epoch    int64
	From, To int64
	Padded   int64
	After    Place // after the step
	Last     bool  // of its epoch
}

// Totals count what is given out from some step on: Rows with the Padded ones among them. Dropped are the rows of whole
// epochs that no step holds, the same for every rank. All are [Endless] when there is no end.
type Totals struct{ Rows, Steps, Padded, Dropped int64 }

// NewSchedule cuts an order. Errors wrap [ErrShort], when the tail is dropped and there is nothing else, [ErrPlace] for
// a start that does not exist, and [ErrLimit] for more rows than can be counted.
func NewSchedule(o *Order, c Cut) (*Schedule, error) {
	s := &Schedule{layout: o.layout, cut: c, rows: o.Rows()}
	if c.Batch < 0 || c.Batch > maxBatch || c.Tail > Pad {
		return nil, fmt.Errorf("%w: steps of %d rows, tail %d", ErrPlan, c.Batch, c.Tail)
	}
	if c.Tail == Drop && 0 < s.rows && s.rows < c.Batch {
		return nil, fmt.Errorf("%w: rows in all: %d, batches of %d, tail drop: take smaller ones, or tail pad or keep", ErrShort, s.rows, c.Batch)
	}
	if !s.within(c.Start) || c.Start.Epoch < 0 {
		return nil, fmt.Errorf("%w: row %d of epoch %d: an epoch has %d rows, epochs end before %d",
			ErrPlace, c.Start.Rows, c.Start.Epoch, s.rows, c.End)
	}
	s.first, s.each = s.steps(c.Start.Rows), s.steps(0)
	if c.End != Endless {
		most := max(s.each, s.each*c.Batch, s.rows) // of steps or of rows, padded ones too
		if hi, lo := bits.Mul64(uint64(c.End-c.Start.Epoch), uint64(most)); hi > 0 || lo > math.MaxInt64/2 {
			return nil, fmt.Errorf("%w: %d epochs of %d rows", ErrLimit, c.End-c.Start.Epoch, most)
		}
	}
	return s, nil
}

// within tells whether a place lies in the epochs, the end of the last one included.
func (s *Schedule) within(p Place) bool {
	if p.Rows < 0 || p.Rows > s.rows {
		return false
	}
	return s.cut.End == Endless || p.Epoch < s.cut.End || p.Epoch == s.cut.End && p.Rows == 0
}

// steps counts the steps of an epoch from a row on.
func (s *Schedule) steps(row int64) int64 {
	switch {
	case row == s.rows:
		return 0
	case s.cut.Batch == 0:
		return s.layout.count() - s.layout.find(row)
	case s.cut.Tail == Drop:
		return (s.rows - row) / s.cut.Batch
	default:
		return (s.rows-row-1)/s.cut.Batch + 1
	}
}

// Count returns how many steps there are, or [Endless].
func (s *Schedule) Count() int64 {
	switch {
	case s.endless():
		return Endless
	case s.each == 0 || s.cut.End == s.cut.Start.Epoch:
		return 0
	default:
		return s.first + (s.cut.End-s.cut.Start.Epoch-1)*s.each
	}
}

// endless tells whether there is no last step. No rows are no steps, however often they are repeated.
func (s *Schedule) endless() bool { return s.cut.End == Endless && s.each > 0 }

// Step returns a step, 0 ≤ number < Count.
func (s *Schedule) Step(number int64) Step {
	st := Step{Number: number, Epoch: s.cut.Start.Epoch}
	row, i, steps := s.cut.Start.Rows, number, s.first
	if number >= s.first {
		st.Epoch += 1 + (number-s.first)/s.each
		row, i, steps = 0, (number-s.first)%s.each, s.each
	}
	if s.cut.Batch == 0 {
		block := s.layout.find(row) + i
		st.From, st.To = max(row, s.layout.begin(block)), s.layout.begin(block+1)
	} else {
		st.From = row + i*s.cut.Batch
		st.To = st.From + min(s.cut.Batch, s.rows-st.From)
		if s.cut.Tail == Pad {
			st.Padded = s.cut.Batch - (st.To - st.From)
		}
	}
	st.After, st.Last = Place{st.Epoch, st.To}, i == steps-1
	if st.Last {
		st.After = Place{Epoch: st.Epoch + 1}
	}
	return st
}

// Find returns the step that follows a place, Count at the end. The start does not move. A place that is no step's
// border is refused with [ErrBorder], for going on there would repeat or lose rows; one before the start or outside the
// epochs with [ErrPlace].
func (s *Schedule) Find(p Place) (int64, error) {
	start := s.cut.Start
	if !s.within(p) || p.Epoch < start.Epoch || p.Epoch == start.Epoch && p.Rows < start.Rows {
		return 0, fmt.Errorf("%w: row %d of epoch %d: steps begin at row %d of epoch %d, an epoch has %d rows, epochs end before %d",
			ErrPlace, p.Rows, p.Epoch, start.Rows, start.Epoch, s.rows, s.cut.End)
	}
	row, before := start.Rows, int64(0)
	if p.Epoch > start.Epoch {
		hi, lo := bits.Mul64(uint64(p.Epoch-start.Epoch-1), uint64(s.each))
		if hi > 0 || lo > math.MaxInt64/2 {
			return 0, fmt.Errorf("%w: epoch %d", ErrPlace, p.Epoch)
		}
		row, before = 0, s.first+int64(lo)
	}
	i := s.steps(row)
	if p.Rows < s.rows {
		i -= s.steps(p.Rows)
	}
	if !s.border(row, p.Rows) {
		return 0, fmt.Errorf("%w: row %d of epoch %d: steps of %d rows begin at row %d", ErrBorder, p.Rows, p.Epoch, s.cut.Batch, row)
	}
	return before + i, nil
}

// border tells whether a step ends at a row, in an epoch whose first step begins at another.
func (s *Schedule) border(from, row int64) bool {
	switch {
	case row == from:
		return true
	case s.cut.Batch == 0:
		return row == s.rows || s.layout.begin(s.layout.find(row)) == row
	case row == s.rows:
		return s.cut.Tail != Drop || (row-from)%s.cut.Batch == 0
	default:
		return (row-from)%s.cut.Batch == 0
	}
}

// Batch returns the rows that all ranks take in a step; 0 when a step is a block.
func (s *Schedule) Batch() int64 { return s.cut.Batch }

// Pads tells whether the last step of an epoch is filled up with repeated rows, so that it may have more than there are.
func (s *Schedule) Pads() bool { return s.cut.Tail == Pad }

// Begin returns where the first step begins.
func (s *Schedule) Begin() Place { return s.cut.Start }

// End returns the epoch after the last one, or [Endless].
func (s *Schedule) End() int64 { return s.cut.End }

// Range returns the positions of an epoch that the steps hold, repeated ones left out. What follows is dropped.
func (s *Schedule) Range(epoch int64) (from, to int64) {
	if epoch == s.cut.Start.Epoch {
		from = s.cut.Start.Rows
	}
	if s.cut.Batch > 0 && s.cut.Tail == Drop {
		return from, from + (s.rows-from)/s.cut.Batch*s.cut.Batch
	}
	return from, s.rows
}

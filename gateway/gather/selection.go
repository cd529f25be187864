package gather

// run is rows [from, from+n) of a slot.
type run struct {
	from, n int64
	slot    int32
}

// selection is which rows of a node are gathered, in their order: per rows for
// each of rows, so that what is below fixed-size lists needs no list of its
// own; or, below other lists, runs.
type selection struct {
	rows  []Row
	runs  []run // if per is 0
	per   int64
	total int64 // rows of the node

	spread []run // the rows as runs, once asked for
}

// reset begins a selection of total rows.
func (s *selection) reset(per, total int64) {
	s.per, s.total, s.spread = per, total, s.spread[:0]
}

// single tells whether each of s.rows is one row of the node.
func (s *selection) single() bool { return s.per == 1 }

// asRuns returns the selection as runs, one for each of its rows or runs; some may be empty.
func (s *selection) asRuns() []run {
	if s.per == 0 {
		return s.runs
	}
	if len(s.spread) == 0 {
		s.spread = resize(s.spread, len(s.rows))
		for i, r := range s.rows {
			s.spread[i] = run{int64(r.Row) * s.per, s.per, r.Frame}
		}
	}
	return s.spread
}

// multiply makes s the selection of k rows for each of parent's.
func (s *selection) multiply(parent *selection, k int64) {
	s.reset(times(parent.per, k), times(parent.total, k))
	if s.per > 0 {
		s.rows = parent.rows
		return
	}
	if k == 0 {
		s.runs = s.runs[:0]
		return
	}
	s.runs = resize(s.runs, len(parent.runs))
	for i, r := range parent.runs {
		s.runs[i] = run{r.from * k, r.n * k, r.slot}
	}
}

// resize returns s with n elements, of any content.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

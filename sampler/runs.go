package sampler

import (
	"iter"
	"sort"
)

// Run is rows that follow each other in a window: its places [From, To).
type Run struct {
	Span, Window int
	From, To     int64
	Padded       bool // they repeat rows of the epoch
}

// Runs yields what a rank takes of a step, in order: the rows of the step sorted by (p mod groups, p), then the padded
// ones, cut into shares of equal size. A run stays within its window.
func (e *Epoch) Runs(step Step, rank, ranks int64) iter.Seq[Run] {
	from, to := step.Share(rank, ranks)
	return func(yield func(Run) bool) {
		rows := step.To - step.From
		d := deal{first: step.From, rows: rows, groups: e.order.plan.Groups}
		if from < rows && !e.hands(d, from, min(to, rows), yield) {
			return
		}
		for i := max(from, rows); i < to; i++ {
			run := e.place(e.order.Rows() - 1 - (i-rows)%e.order.Rows())
			run.Padded = true
			if !yield(run) {
				return
			}
		}
	}
}

// place is the run of one position.
func (e *Epoch) place(p int64) Run {
	span, row := int(p%e.groups()), p/e.groups()
	window := e.holding(span, row)
	from, _ := e.bounds(span, window)
	return Run{Span: span, Window: window, From: row - from, To: row - from + 1}
}

// hands yields the rows [from, to) of what was dealt, and tells whether to go on.
func (e *Epoch) hands(d deal, from, to int64, yield func(Run) bool) bool {
	for c := d.holding(from); from < to; c++ {
		first, n := d.hand(c)
		skip := from - d.before(c)
		first, n = first+skip*d.groups, min(n-skip, to-from)
		if n <= 0 {
			continue
		}
		from += n
		if e.groups() == d.groups { // neighbours in the span
			if !e.within(int(c), first/d.groups, first/d.groups+n, yield) {
				return false
			}
			continue
		}
		for p := first; n > 0; p, n = p+d.groups, n-1 {
			if !yield(e.place(p)) {
				return false
			}
		}
	}
	return true
}

// within yields the rows [from, to) of a span, window by window.
func (e *Epoch) within(span int, from, to int64, yield func(Run) bool) bool {
	for window := e.holding(span, from); from < to; window++ {
		begin, end := e.bounds(span, window)
		stop := min(end, to)
		if !yield(Run{Span: span, Window: window, From: from - begin, To: stop - begin}) {
			return false
		}
		from = stop
	}
	return true
}

// deal is rows positions from first on, sorted by (p mod groups, p): every group's hand after the other's.
type deal struct{ first, rows, groups int64 }

// hand returns the first position of group c and how many there are.
func (d deal) hand(c int64) (first, n int64) {
	skip := (c - d.first%d.groups + d.groups) % d.groups
	if skip >= d.rows {
		return d.first + skip, 0
	}
	return d.first + skip, (d.rows-skip-1)/d.groups + 1
}

// before returns how many positions the groups before c have. Each has rows/groups, and those from the first position's
// group on, around, as many as are left over have one more.
func (d deal) before(c int64) int64 {
	begin, extra := d.first%d.groups, d.rows%d.groups
	more := min(max(c-begin, 0), extra) + min(c, max(begin+extra-d.groups, 0))
	return c*(d.rows/d.groups) + more
}

// holding returns the group of the i-th position.
func (d deal) holding(i int64) int64 {
	return int64(sort.Search(int(d.groups), func(c int) bool { return d.before(int64(c)+1) > i }))
}

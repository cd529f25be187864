package parquetfile

import (
	"cmp"
	"io"
	"slices"
	"sort"
	"sync"

	"github.com/headrace/headrace/storage/budget"
)

// maxPlaces is how many data pages of a column chunk are remembered. One can
// be entered only at those.
const maxPlaces = 1 << 15

// place is where a data page is.
type place struct {
	page
	at int64 // of its header, in the file
}

// leaf is a leaf column of a scan, in its row group.
type leaf struct {
	chunk
	col     int
	most    int16   // the largest repetition level
	defined int16   // the definition level of a value
	zero    int64   // see zeroBits
	sum     pages   // what the headers of its pages say
	rows    borders // where rows begin, as far as somebody wanted to know
	stuck   bool    // nobody can know more
}

// keepApart leaves whole what lies in several chunks: what is hidden of one would
// be missing in the other. Those who forgot to count a header made such files.
func keepApart(all []*leaf) {
	slices.SortFunc(all, func(a, b *leaf) int { return cmp.Compare(a.start, b.start) })
	var last *leaf
	for _, l := range all {
		if last != nil && l.start < last.end {
			l.stuck, last.stuck = true, true
		}
		if last == nil || l.end > last.end {
			last = l
		}
	}
}

// border is a page that begins with a row.
type border struct{ at, row int64 }

// borders are where the rows of a column chunk begin.
type borders struct {
	pages  int64 // that were looked at
	rows   int64 // that begin in them
	starts []border
}

// below returns the last border at or before a row.
func (b *borders) below(row int64) (border, bool) {
	i := sort.Search(len(b.starts), func(i int) bool { return b.starts[i].row > row })
	if i == 0 {
		return border{}, false
	}
	return b.starts[i-1], true
}

// found keeps the borders that scanners of a file found by reading levels, for
// those to come.
type found struct {
	mu    sync.Mutex
	of    map[[2]int]borders // by row group and leaf column
	count int
}

// maxFound is how many borders of one file are kept, of 16 bytes each.
const maxFound = 1 << 16

func (f *found) get(group, col int) borders {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.of[[2]int{group, col}]
}

// put keeps b, unless more is known already or too much of others.
func (f *found) put(group, col int, b borders) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := [2]int{group, col}
	old := f.of[at]
	if more := len(b.starts) - len(old.starts); b.pages > old.pages && f.count+more <= maxFound {
		b.starts = slices.Clip(b.starts) // whoever finds more appends to a copy
		f.of[at] = b
		f.count += more
	}
}

// enter moves column number i, if that saves work, to the last row at or before
// to that all its leaves can begin with at a page: the pages before it are hidden
// from arrow-go. Where nobody can tell where rows begin, it stays where it is.
func (s *Scanner) enter(i int, to int64) error {
	c := &s.columns[i]
	if len(c.leaves) == 0 || c.at > 0 && to-c.at <= s.stepRows() {
		return nil
	}
	row, at, err := s.meet(c, to)
	// A reader that has begun is worth a new one, with its dictionary, only if much is hidden.
	if err != nil || at == nil || c.at > 0 && row-c.at <= s.stepRows() {
		return err
	}
	hidden := int64(0)
	holes := make([][]hole, len(c.leaves))
	for i, l := range c.leaves {
		made, ok := l.leadOf(at[i].row - row)
		bytes := at[i].at - l.sum.places[0].at
		if !ok || made.length() > bytes {
			return nil
		}
		hidden += bytes
		holes[i] = l.holes(at[i].at, made)
	}
	if hidden == 0 {
		return nil
	}
	for i, l := range c.leaves {
		s.source.hide(l.chunk, holes[i])
	}
	if c.at > 0 {
		if err := s.reopenColumn(i); err != nil {
			return err
		}
	}
	c.at = row
	return nil
}

// meet finds the last row at or before to that all leaves of c can begin with,
// and the page of each. Flat ones can be led up to their page by made-up rows
// and need none that begins with this row.
func (s *Scanner) meet(c *column, to int64) (row int64, at []border, err error) {
	row, at = to, make([]border, len(c.leaves))
	for moved := true; moved; {
		moved = false
		for i, l := range c.leaves {
			upTo := row
			if l.most == 0 && (l.zero >= 0 || l.defined > 0) {
				upTo = to
			}
			if err := s.findBorders(l, to); err != nil {
				return 0, nil, err
			}
			b, ok := l.rows.below(upTo)
			if !ok {
				return 0, nil, nil
			}
			moved = moved || b.row < row
			row, at[i] = min(row, b.row), b
		}
	}
	return row, at, nil
}

// holes lists what is hidden from a reader that begins with the page at, behind
// a lead. arrow-go then counts fewer values than it is told that there are, so it
// must not find anything behind the last page.
func (l *leaf) holes(at int64, made lead) []hole {
	first := l.sum.places[0].at
	var before, after []hole
	for _, h := range l.sum.empty {
		if h.to <= first {
			before = append(before, h)
		} else if h.from >= at {
			after = append(after, h)
		}
	}
	before = append(before, hole{first, at, l.start, l.end, made})
	return append(append(before, after...), hole{from: l.sum.end, to: l.end, start: l.start, end: l.end})
}

// findBorders looks at the pages of l until one begins behind row to. In a flat
// column their headers say where rows begin; else only the levels do.
func (s *Scanner) findBorders(l *leaf, to int64) error {
	if l.stuck {
		return nil
	}
	if l.most > 0 {
		if known := s.found.get(s.group, l.col); known.pages > l.rows.pages {
			l.rows = known
		}
		const buffers = 64 << 10
		room := int64(2*maxLevelBytes + buffers + maxLevelWindow)
		room = min(room, 2*l.sum.largest+buffers)
		if err := s.grant.Charge(budget.Scratch, room); err != nil {
			return err
		}
		defer s.grant.Credit(budget.Scratch, room)
		defer func() { s.found.put(s.group, l.col, l.rows) }()
	}
	for l.rows.rows <= to && l.rows.pages < int64(len(l.sum.places)) {
		p := l.sum.places[l.rows.pages]
		t, err := s.rowsOf(l, p)
		if err != nil {
			l.stuck = true
			return s.source.err
		}
		if t.fresh {
			l.rows.starts = append(l.rows.starts, border{p.at, l.rows.rows})
		}
		l.rows.rows += t.rows
		l.rows.pages++
	}
	return nil
}

// rowsOf looks at the rows of page p.
func (s *Scanner) rowsOf(l *leaf, p place) (t tally, err error) {
	if l.most == 0 {
		return tally{rows: p.values, fresh: true}, nil
	}
	err = guard(func() error {
		body := io.NewSectionReader(bare{s.source}, p.at+p.header, p.size)
		t, err = countRows(p.page, l.most, l.codec, body)
		return err
	})
	return t, err
}

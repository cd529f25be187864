package parquetfile

import (
	"bytes"
	"slices"
	"sort"
	"sync"

	"github.com/headrace/headrace/storage/budget"
)

// mark is a page that begins with a row: a place where a column chunk can be entered.
type mark struct {
	at     int64 // of its header, in the file
	row    int64
	values int64 // before it
	number int   // among the pages
}

// maxMarks is how many marks of one file are kept, and leafMarks how many a
// scan makes of one column chunk, of 32 bytes each. Chunks of more pages are
// entered at one of the first.
const maxMarks, leafMarks = 1 << 16, 1 << 13

// marks keeps where rows begin in the pages of a file, as scanners come by, for those that follow.
type marks struct {
	mu    sync.Mutex
	of    map[[2]int][]mark // by row group and leaf column, in order
	count int
}

func (m *marks) get(group, col int) []mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[[2]int{group, col}]
}

// put keeps list, unless more is known already or too much of others.
func (m *marks) put(group, col int, list []mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := [2]int{group, col}
	if more := len(list) - len(m.of[at]); more > 0 && m.count+more <= maxMarks {
		m.of[at] = slices.Clip(list) // whoever finds more appends to a copy
		m.count += more
	}
}

// share tells other scanners of the row group where rows begin, and learns it from them: of those that are open at the
// same time each would else read what is before its rows.
func (s *Scanner) share(c *ownColumn) {
	for _, l := range c.leaves {
		s.marks.put(s.group, l.col, l.marks)
		if known := s.marks.get(s.group, l.col); len(known) > len(l.marks) {
			l.marks = known
		}
	}
}

// note remembers that the page whose header was read last begins with row. What
// was known of it before must be the same.
func (l *leafReader) note(row int64) error {
	l.here.row = row
	n := len(l.marks)
	if n == 0 || n < leafMarks && l.marks[n-1].at < l.here.at {
		if n == 0 || l.marks[n-1].row < row {
			l.marks = append(l.marks, l.here)
		}
		return nil
	}
	i := sort.Search(n, func(i int) bool { return l.marks[i].at >= l.here.at })
	if i < n && l.marks[i].at == l.here.at && l.marks[i].row != row {
		return l.errIndex(l.marks[i].row)
	}
	return nil
}

// skip passes the next n rows. Pages of them are not read if their headers tell
// how many rows they have, not decompressed but for their levels if only these do.
func (l *leafReader) skip(n int) error {
	l.begin()
	left, err := l.leave(n)
	if err != nil {
		return err
	}
	if left > 0 && len(l.pages) == 0 {
		if left, err = l.jump(left); err != nil {
			return err
		}
		if left, err = l.skipPages(left); err != nil {
			return err
		}
	}
	const some = 1 << 16
	for left > 0 {
		k := min(left, some)
		if err := l.take(k); err != nil {
			return err
		}
		if err := l.forget(); err != nil {
			return err
		}
		left -= k
	}
	return nil
}

// leave passes what the page that the reader is in has of n rows, and returns how many it has not.
func (l *leafReader) leave(n int) (int, error) {
	if len(l.pages) == 0 {
		return n, nil
	}
	p := l.pages[0]
	if !l.nested {
		if n < p.left {
			return n, nil
		}
		n -= p.left
		l.row += int64(p.left)
		p.left = 0
		l.drop()
		return n, nil
	}
	if err := l.passLevels(p, n); err != nil {
		return 0, err
	}
	rows := l.taken
	l.row += int64(rows)
	if l.begin(); rows == n && len(l.pages) == 0 {
		return 0, l.tail(p.kind)
	}
	return n - rows, nil
}

// passLevels passes n lists of p, or what p has of them, and their values if there are others behind them.
func (l *leafReader) passLevels(p *dataPage, n int) error {
	c, err := l.takeFrom(p, n)
	if err == nil {
		if p.left -= c.Levels; p.left > 0 && c.Stored > 0 {
			err = l.make.skip(p, c.Stored)
		}
	}
	if err != nil {
		return l.inPage(p, err)
	}
	l.drop()
	return nil
}

// jump goes to the last mark that is not behind the next n rows, if that is
// ahead, and returns how many of them are left.
func (l *leafReader) jump(n int) (int, error) {
	to := l.row + int64(n)
	if last := len(l.marks) - 1; last < 0 || l.marks[last].row < to {
		if err := l.index(); err != nil {
			return 0, err
		}
	}
	i := sort.Search(len(l.marks), func(i int) bool { return l.marks[i].row > to })
	if i == 0 || l.marks[i-1].at <= l.at {
		return n, nil
	}
	m := l.marks[i-1]
	if l.number == 0 { // the dictionary comes first
		if err := l.reach(m.at); err != nil {
			return 0, err
		}
		if err := l.readFirst(); err != nil {
			return 0, err
		}
	}
	l.at, l.seen, l.number, l.row = m.at, m.values, m.number, m.row
	return int(to - m.row), l.startLists()
}

// reach fetches the dictionary alone if what comes next lies far behind it, at a place in the file: what is between is not needed.
func (l *leafReader) reach(at int64) error {
	if size := l.chunk.dictSize; l.source.obj.Remote() && size > 0 && size < at-l.at-aBlock {
		return l.fetch(size)
	}
	return nil
}

// readFirst reads the first page if it is a dictionary.
func (l *leafReader) readFirst() error {
	h, ok, err := l.next()
	if err != nil || !ok {
		return err
	}
	if h.kind == pageDict {
		return l.readDictionary(h)
	}
	l.at, l.seen = l.here.at, l.here.values
	return nil
}

// skipPages passes whole pages of the next n rows and returns how many rows are left.
func (l *leafReader) skipPages(n int) (int, error) {
	for n > 0 {
		h, ok, err := l.nextData()
		if err != nil || !ok {
			return n, err
		}
		rows, whole, err := l.skipPage(h, n)
		if err != nil || !whole {
			return n, err
		}
		if n -= rows; n == 0 {
			return 0, l.tail(h.kind)
		}
	}
	return n, nil
}

// skipPage passes the page h if it has no more than n rows. Else it becomes the
// one that the reader is in.
func (l *leafReader) skipPage(h page, n int) (rows int, whole bool, err error) {
	fresh := true
	switch {
	case !l.nested:
		rows = int(h.values)
	case h.kind == pageDataV2:
		rows = int(h.rows)
	default:
		if rows, fresh, err = l.countPage(h); err != nil {
			return 0, false, err
		}
	}
	if rows > n {
		return 0, false, l.stay(h)
	}
	if len(l.pages) > 0 { // it had to be read
		l.pages[0].left = 0
		l.drop()
	} else {
		l.stream.pass(h)
	}
	if fresh {
		if err := l.note(l.row); err != nil {
			return 0, false, err
		}
	}
	l.row += int64(rows)
	for _, t := range l.tracks {
		t.lists.Passed()
	}
	return rows, true, nil
}

// stay makes h the page that the reader is in, behind what it has of lists that were passed.
func (l *leafReader) stay(h page) error {
	var p *dataPage
	var err error
	if len(l.pages) == 0 {
		p, err = l.load(h)
	} else if p = l.pages[0]; !p.entered {
		err = l.enter(p)
	}
	if err != nil || !l.nested || h.kind == pageDataV2 {
		return err
	}
	return l.passLevels(p, 0)
}

// countPage reads the page h and counts the rows that begin in it, without
// decompressing more than it has to.
func (l *leafReader) countPage(h page) (rows int, fresh bool, err error) {
	if l.source.obj.Remote() { // each read is a round trip, and every page behind is read, too
		step := l.step
		l.step = l.long
		defer func() { l.step = step }()
	}
	p, err := l.read(h)
	if err != nil {
		return 0, false, err
	}
	room := min(2*maxLevelBytes+maxLevelWindow, 2*h.raw) + 64<<10
	if err := l.grant.ChargeHeap(budget.Scratch, room); err != nil {
		return 0, false, err
	}
	defer l.grant.CreditHeap(budget.Scratch, room)
	t, err := countRows(h, l.column.MaxRepetitionLevel(), l.chunk.codec, bytes.NewReader(p.stored))
	if err == nil {
		return int(t.rows), t.fresh, nil
	}
	if err := l.enter(p); err != nil {
		return 0, false, err
	}
	ahead := p.rep
	inside, err := ahead.Validity(nil, 0, p.left, 1)
	if err != nil {
		return 0, false, l.inPage(p, err)
	}
	fresh, err = l.fresh(p)
	return p.left - inside, fresh, err
}

// fresh tells whether p begins with a row.
func (l *leafReader) fresh(p *dataPage) (bool, error) {
	if !l.nested || p.kind == pageDataV2 {
		return true, nil
	}
	ahead := p.rep
	inside, err := ahead.Validity(nil, 0, 1, 1)
	if err != nil {
		return false, l.inPage(p, err)
	}
	return inside == 0, nil
}

// tail passes what the last of the rows that were skipped has in the next page.
// Behind pages of version 2, and in columns without lists, it has nothing there.
func (l *leafReader) tail(kind int64) error {
	for l.nested && kind != pageDataV2 && len(l.pages) == 0 {
		p, err := l.nextPage()
		if err != nil || p == nil {
			return err
		}
		if err := l.passLevels(p, 0); err != nil {
			return err
		}
		l.begin()
	}
	return nil
}

// forget passes the values that were taken.
func (l *leafReader) forget() error {
	for len(l.pages) > 0 && l.pages[0].owed > 0 {
		p := l.pages[0]
		if p.left > 0 {
			if err := l.make.skip(p, p.owed); err != nil {
				return l.inPage(p, err)
			}
		}
		l.written(p.owed)
	}
	return nil
}

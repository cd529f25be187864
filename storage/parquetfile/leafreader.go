package parquetfile

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/parquetfile/encoding"
)

// leafReader reads one column chunk, rows after rows: first their levels, which
// tell how much there will be, then, into memory that is as large as that, their
// values. It holds the pages of the rows that it is asked for, no others.
type leafReader struct {
	stream
	rows    int64 // of the row group
	row     int64 // the next one
	col     int
	indexed bool   // the file's own index was read, if there is one
	marks   []mark // pages that begin with rows, as far as is known
	make    values
	pages   []*dataPage // with values that have been taken and are still to be written; at last the one that it is in
	spare   []*dataPage
	heap    int64 // bytes charged for these
	whole   bool  // no page is read in pieces, to compare

	most   int // the definition level of a value
	nested bool
	valid  bitmap    // of values
	above  []*bitmap // of structs, in columns without lists

	// In columns with lists:
	slot   int // the definition level of an element of a list
	tracks []*track
	size   int  // of all lists, if they are fixed-size lists, else 0
	wide   bool // offsets have 64 bits

	// Of the rows that were taken last:
	taken, slots, stored int
}

// dataPage is a data page in memory.
type dataPage struct {
	page
	body
	number  int
	rep     encoding.Levels
	def     encoding.Levels
	left    int  // levels still to come
	owed    int  // values that were taken and are still to be written
	front   int  // bytes of plain before the values
	begun   bool // its values are ready to be decoded
	entered bool // and its levels
	decoders
}

func (l *leafReader) init(column *schema.Column) {
	l.column = column
	l.most, l.nested = int(column.MaxDefinitionLevel()), column.MaxRepetitionLevel() > 0
	l.valid = bitmap{room: l.room(), least: l.most}
}

func (l *leafReader) room() room { return room{pool: l.pool, grant: l.grant} }

// begin forgets the rows that were taken last.
func (l *leafReader) begin() {
	l.taken, l.slots, l.stored = 0, 0, 0
	l.valid.reset()
	for _, b := range l.above {
		b.reset()
	}
	for _, t := range l.tracks {
		t.reset()
	}
	if l.make.begin != nil {
		l.make.begin()
	}
}

// take reads the levels of the next n rows.
func (l *leafReader) take(n int) (err error) {
	l.begin()
	if l.nested {
		err = l.takeLists(n)
	} else {
		err = l.takeFlat(n)
	}
	l.row += int64(n)
	if err == nil && l.row == l.rows {
		err = l.finish()
	}
	return err
}

// takeFlat does so where each row has one value or null.
func (l *leafReader) takeFlat(n int) error {
	for l.taken < n {
		p, err := l.current()
		if err != nil {
			return err
		}
		k := min(p.left, n-l.taken)
		stored := k
		if l.most > 0 {
			if stored, err = l.flatLevels(p, k); err != nil {
				return l.inPage(p, err)
			}
		}
		l.taken, l.slots = l.taken+k, l.slots+k
		if err := l.pass(p, k, stored); err != nil {
			return err
		}
	}
	return nil
}

// flatLevels reads the levels of k values of p and returns how many are not null.
func (l *leafReader) flatLevels(p *dataPage, k int) (int, error) {
	for _, b := range l.above {
		ahead := p.def
		if err := b.read(&ahead, k); err != nil {
			return 0, err
		}
	}
	before := l.valid.set
	err := l.valid.read(&p.def, k)
	return l.valid.set - before, err
}

// read adds the bits of the next n levels.
func (b *bitmap) read(levels *encoding.Levels, n int) error {
	if b.bits == nil {
		all, err := levels.All(n)
		if err != nil {
			return err
		}
		if all {
			return b.ones(n)
		}
	}
	if err := b.grow(n); err != nil {
		return err
	}
	set, err := levels.Validity(b.bits, b.n, n, b.least)
	b.added(n, set)
	return err
}

// pass counts k levels of p as read, and stored values as taken.
func (l *leafReader) pass(p *dataPage, k, stored int) error {
	p.left -= k
	if stored > 0 {
		if l.make.take != nil {
			if err := l.make.take(p, stored); err != nil {
				return l.inPage(p, err)
			}
		}
		p.owed += stored
		l.stored += stored
	}
	l.drop()
	return nil
}

// open makes the values of p ready to be decoded. It is put off until somebody
// needs them: then they are still in the processor's caches when they are decoded.
func (l *leafReader) open(p *dataPage) error {
	if p.begun {
		return nil
	}
	if err := l.unfold(p.page, &p.body); err != nil {
		return err
	}
	p.begun = true
	return l.make.open(p, p.plain[p.front:])
}

// drop lets go of the last page if nothing more is wanted of it.
func (l *leafReader) drop() {
	last := len(l.pages) - 1
	if p := l.pages[last]; p.left == 0 && p.owed == 0 {
		l.pages = l.pages[:last]
		l.giveBack(p)
	}
}

// written tells that n values of the first page were written.
func (l *leafReader) written(n int) {
	p := l.pages[0]
	if p.owed -= n; p.owed == 0 && p.left == 0 {
		copy(l.pages, l.pages[1:])
		l.pages = l.pages[:len(l.pages)-1]
		l.giveBack(p)
	}
}

func (l *leafReader) giveBack(p *dataPage) {
	p.free()
	l.spare = append(l.spare, p)
}

// current returns the page with the next levels.
func (l *leafReader) current() (*dataPage, error) {
	if n := len(l.pages); n > 0 && l.pages[n-1].left > 0 {
		return l.pages[n-1], nil
	}
	p, err := l.nextPage()
	if err == nil && p == nil {
		err = fmt.Errorf("num_rows %d, but its pages end after %d", l.rows, l.row+int64(l.taken))
	}
	return p, err
}

// nextPage reads the next data page that has values, nil if there is none.
func (l *leafReader) nextPage() (*dataPage, error) {
	h, ok, err := l.nextData()
	if err != nil || !ok {
		return nil, err
	}
	return l.load(h)
}

// nextData reads headers until that of the next data page that has values, and a dictionary on the way. ok is false if
// there is no such page. Before each, who waits for a processor goes on: batches are sent while later ones are decoded by as
// many goroutines as there are processors, and left alone the scheduler would take one away after ten milliseconds only.
func (l *leafReader) nextData() (h page, ok bool, err error) {
	for err == nil {
		if err = l.source.ctx.Err(); err != nil {
			break
		}
		runtime.Gosched()
		h, ok, err = l.next()
		switch {
		case err != nil || !ok:
			return h, false, err
		case h.kind == pageDict:
			err = l.readDictionary(h)
		case h.values == 0:
			l.stream.pass(h)
		default:
			return h, true, nil
		}
	}
	return h, false, err
}

func (l *leafReader) readDictionary(h page) error {
	number := l.number
	var b body
	defer b.free()
	if err := l.stream.load(h, &b); err != nil {
		return err
	}
	err := l.readUnfolded(h, &b, func() error { return l.make.dictionary(&b, int(h.values)) })
	if err != nil {
		return fmt.Errorf("page %d, a dictionary: %w", number, err)
	}
	return nil
}

// load reads a page and makes it the one that the reader is in.
func (l *leafReader) load(h page) (*dataPage, error) {
	p, err := l.read(h)
	if err == nil {
		err = l.enter(p)
	}
	if err != nil {
		return nil, err
	}
	begins, err := l.fresh(p)
	if err == nil && begins {
		err = l.note(l.row + int64(l.taken))
	}
	return p, err
}

// perPage is what a page that is held takes on the Go heap, with its decoders.
const perPage = int64(unsafe.Sizeof(dataPage{}) + unsafe.Sizeof(fixedDecoder{}))

// read reads a page.
func (l *leafReader) read(h page) (*dataPage, error) {
	var p *dataPage
	if n := len(l.spare); n > 0 {
		p, l.spare = l.spare[n-1], l.spare[:n-1]
	} else {
		if err := l.grant.ChargeHeap(budget.Scratch, perPage); err != nil {
			return nil, err
		}
		l.heap += perPage
		p = new(dataPage)
	}
	p.page, p.number, p.left, p.owed, p.begun, p.front = h, l.number, int(h.values), 0, false, 0
	p.entered = false
	l.pages = append(l.pages, p)
	return p, l.stream.load(h, &p.body)
}

// enter finds the levels of p.
func (l *leafReader) enter(p *dataPage) error {
	p.entered = true
	if err := l.findLevels(p); err != nil {
		return l.inPage(p, err)
	}
	for _, t := range l.tracks {
		t.lists.Page(p.rep, p.def, p.left)
	}
	return nil
}

// inPage says which page err is about.
func (l *leafReader) inPage(p *dataPage, err error) error {
	return fmt.Errorf("page %d: %w", p.number, err)
}

// finish checks that nothing is left behind the last row.
func (l *leafReader) finish() error {
	for {
		if n := len(l.pages); n > 0 && l.pages[n-1].left > 0 {
			return fmt.Errorf("num_rows %d, but its pages have more", l.rows)
		}
		p, err := l.nextPage()
		if err != nil || p == nil {
			return err
		}
	}
}

// close gives back all memory.
func (l *leafReader) close() {
	for _, p := range l.pages {
		p.free()
	}
	l.pages, l.spare = nil, nil
	l.grant.CreditHeap(budget.Scratch, l.heap)
	l.heap = 0
	l.valid.free()
	for _, b := range l.above {
		b.free()
	}
	for _, t := range l.tracks {
		t.free()
	}
	if l.make.free != nil {
		l.make.free()
	}
	l.unshare()
	l.input.close()
}

// fill writes the values of the rows that were taken.
func (l *leafReader) fill(dst [][]byte) error {
	err := l.make.write(dst)
	var at *frame.RowError
	if err == nil || errors.As(err, &at) || len(l.pages) == 0 {
		return err
	}
	return l.inPage(l.pages[0], err)
}

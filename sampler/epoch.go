package sampler

import "strconv"

// Epoch is the order of one epoch. Every position 0 to Rows−1 belongs to one window of one span; a window's rows are
// permuted among themselves. Without a shuffle every block is a window, in which nothing moves; a full shuffle has one
// window. It is immutable and safe for use by many goroutines.
type Epoch struct {
	order  *Order
	number int64
	list   list   // for ShuffleWindow
	spans  []span // for ShuffleWindow
}

// list is the blocks of an epoch, segments permuted, in which a window order cuts spans and windows.
type list struct {
	segments []int32 // in the epoch's order
	blocks   []int64 // before each of them, and all
	rows     []int64 // before each of them, and all
}

// span is a run of the list's rows: the rows of one group.
type span struct {
	from, to int64   // its rows in the list
	block    int64   // the block of the list that holds the first one
	blocks   int64   // that it touches
	ends     []int64 // rows of the span before each window, and all
}

// Epoch makes the order of an epoch. For ShuffleWindow it takes O(blocks), else O(1).
func (o *Order) Epoch(number int64) *Epoch {
	e := &Epoch{order: o, number: number}
	if o.plan.Shuffle == ShuffleWindow {
		e.permute()
		e.cut()
	}
	return e
}

// EpochBytes is the most memory that an [Epoch] takes, known before it is made.
func (o *Order) EpochBytes() int64 {
	const fixed = 256
	if o.plan.Shuffle != ShuffleWindow {
		return fixed
	}
	groups := min(o.plan.Groups, o.Rows())
	blocks := o.Blocks() + groups // borders are in two spans
	windows := min(blocks, blocks/o.plan.WindowBlocks+groups)
	segments := int64(o.layout.segments())
	return fixed + 24*segments + 16 + permutationBytes(segments) + 56*groups + 8*(windows+groups)
}

// permute puts the segments of which something is left in the epoch's order.
func (e *Epoch) permute() {
	l := e.order.layout
	live := make([]int32, 0, l.segments())
	for s := range l.segments() {
		if l.first[s] < l.first[s+1] {
			live = append(live, int32(s))
		}
	}
	order := newPermutation(e.key("segments"), int64(len(live)))
	e.list = list{
		segments: make([]int32, len(live)),
		blocks:   make([]int64, 1, len(live)+1),
		rows:     make([]int64, 1, len(live)+1),
	}
	var blocks, rows int64
	var some [256]Ref
	for i := range live {
		if i%len(some) == 0 {
			order.fill(int64(i), some[:min(len(some), len(live)-i)])
		}
		s := live[some[i%len(some)].Row]
		blocks, rows = blocks+l.first[s+1]-l.first[s], rows+l.size(int(s))
		e.list.segments[i] = s
		e.list.blocks, e.list.rows = append(e.list.blocks, blocks), append(e.list.rows, rows)
	}
}

// key derives a key of the epoch.
func (e *Epoch) key(purpose string) key {
	return newKey(e.order.plan.Seed, uint64(e.number), []byte(purpose))
}

// cut finds the spans, and how many rows every window has. The blocks are walked once.
func (e *Epoch) cut() {
	n, groups := e.order.Rows(), e.order.plan.Groups
	e.spans = make([]span, min(groups, n))
	at := walker{list: &e.list, layout: e.order.layout}
	for c := range e.spans {
		sp := &e.spans[c]
		sp.from = spanStart(n, groups, int64(c))
		sp.to = spanStart(n, groups, int64(c)+1)
		at.seek(sp.from)
		sp.block = at.block
		sp.blocks = e.list.find(e.order.layout, sp.to-1) - at.block + 1
		at.measure(sp, e.order.plan.WindowBlocks)
	}
}

// spanStart returns the rows before a span: span c of g has ⌈(n−c)/g⌉ rows.
func spanStart(n, groups, c int64) int64 { return c*(n/groups) + min(c, n%groups) }

// find returns the block of the list that holds a row of it.
func (li *list) find(l *layout, row int64) int64 {
	i := before(li.rows, row)
	s := int(li.segments[i])
	stored := l.find(row - li.rows[i] + l.start(s, l.first[s]))
	return li.blocks[i] + stored - l.first[s]
}

// walker walks over the blocks of a list.
type walker struct {
	list   *list
	layout *layout

	segment  int   // the next one in the list
	left     int64 // blocks of the current segment still to come
	begin    int64 // its first row in the layout
	stored   int64 // the current block in the layout
	block    int64 // the current block in the list
	from, to int64 // its rows in the list
}

// seek goes forward to the block that holds a row. It may be the current one.
func (w *walker) seek(row int64) {
	for w.to <= row {
		w.next()
	}
}

// next goes on to the next block; the first call, to the first one.
func (w *walker) next() {
	if w.to > 0 {
		w.block++
	}
	w.stored++
	if w.left == 0 {
		w.enter()
	}
	w.from = w.to
	if w.left--; w.left == 0 {
		w.to = w.list.rows[w.segment]
		return
	}
	end := w.layout.start(int(w.list.segments[w.segment-1]), w.stored+1)
	w.to = w.list.rows[w.segment-1] + end - w.begin
}

// enter goes on to the next segment. One that is a single block, as many are, is not looked up.
func (w *walker) enter() {
	w.left = w.list.blocks[w.segment+1] - w.list.blocks[w.segment]
	if w.left > 1 {
		s := int(w.list.segments[w.segment])
		w.stored = w.layout.first[s]
		w.begin = w.layout.start(s, w.stored)
	}
	w.segment++
}

// measure counts the rows of the windows of a span, at whose first block the walker is. It ends at the last one.
func (w *walker) measure(sp *span, windowBlocks int64) {
	windows := (sp.blocks-1)/windowBlocks + 1
	sp.ends = make([]int64, windows+1)
	step := windowBlocks % sp.blocks
	for b, x := int64(0), int64(0); b < sp.blocks; b++ {
		if b > 0 {
			w.next()
		}
		t := x * windows / sp.blocks
		sp.ends[t+1] += min(w.to, sp.to) - max(w.from, sp.from)
		if x += step; x >= sp.blocks {
			x -= sp.blocks
		}
	}
	for t := range windows {
		sp.ends[t+1] += sp.ends[t]
	}
}

// Number returns which epoch it is.
func (e *Epoch) Number() int64 { return e.number }

// Spans returns how many spans have rows: one unless there are groups in window order.
func (e *Epoch) Spans() int {
	if e.order.plan.Shuffle == ShuffleWindow {
		return len(e.spans)
	}
	return int(min(1, e.order.Rows()))
}

// Windows returns how many windows a span has.
func (e *Epoch) Windows(span int) int {
	switch e.order.plan.Shuffle {
	case ShuffleWindow:
		return len(e.spans[span].ends) - 1
	case ShuffleFull:
		return 1
	default:
		return int(e.order.Blocks())
	}
}

// WindowRows returns how many rows a window has.
func (e *Epoch) WindowRows(span, window int) int64 {
	from, to := e.bounds(span, window)
	return to - from
}

// bounds returns the rows of the span before a window, and those before the next.
func (e *Epoch) bounds(span, window int) (from, to int64) {
	switch e.order.plan.Shuffle {
	case ShuffleWindow:
		ends := e.spans[span].ends
		return ends[window], ends[window+1]
	case ShuffleFull:
		return 0, e.order.Rows()
	default:
		return e.order.layout.begin(int64(window)), e.order.layout.begin(int64(window) + 1)
	}
}

// holding returns the window that holds a row of a span.
func (e *Epoch) holding(span int, row int64) int {
	switch e.order.plan.Shuffle {
	case ShuffleWindow:
		return before(e.spans[span].ends, row)
	case ShuffleFull:
		return 0
	default:
		return int(e.order.layout.find(row))
	}
}

// At returns the window of a span that holds its first row at or after a position: earlier windows are done there. It
// is Windows(span) when there is no such row.
func (e *Epoch) At(span int, position int64) int {
	row := e.dealt(int64(span), position)
	if row >= e.dealt(int64(span), e.order.Rows()) {
		return e.Windows(span)
	}
	return e.holding(span, row)
}

// dealt returns how many rows of a span are at positions before p: those at c, c+g, c+2g, …, if the span is c.
func (e *Epoch) dealt(c, p int64) int64 {
	g := e.groups()
	return (max(p-c, 0) + g - 1) / g
}

// groups returns into how many spans positions are dealt out.
func (e *Epoch) groups() int64 {
	if e.order.plan.Shuffle == ShuffleWindow {
		return e.order.plan.Groups
	}
	return 1
}

// windowKey is the key of a window's permutation.
func (e *Epoch) windowKey(span, window int) key {
	if e.order.plan.Shuffle == ShuffleFull {
		return e.key("rows")
	}
	return e.key("window/" + strconv.Itoa(span) + "/" + strconv.Itoa(window))
}

// Pieces lists the blocks of a window, in list order, with the rows of each that are the window's. It takes
// O(window blocks · log segments).
func (e *Epoch) Pieces(span, window int) []Piece {
	l := e.order.layout
	switch e.order.plan.Shuffle {
	case ShuffleWindow:
		return e.lanes(&e.spans[span], int64(window))
	case ShuffleFull:
		return e.all()
	default:
		s := l.segment(int64(window))
		from, to := l.start(s, int64(window)), l.start(s, int64(window)+1)
		return []Piece{l.piece(s, int64(window), 0, to-from)}
	}
}

// all lists every block whole, as stored.
func (e *Epoch) all() []Piece {
	l := e.order.layout
	pieces := make([]Piece, 0, l.count())
	for s := range l.segments() {
		from := l.start(s, l.first[s])
		for b := l.first[s]; b < l.first[s+1]; b++ {
			to := l.start(s, b+1)
			pieces = append(pieces, l.piece(s, b, 0, to-from))
			from = to
		}
	}
	return pieces
}

// lanes lists the blocks of window t of a span: of each lane, a run of m/n neighbouring blocks, at most one. Block b of
// m is in it when (b·n) mod m lies in [t·m/T, (t+1)·m/T), and within a lane those numbers are n apart, which is no less
// than the width of that range.
func (e *Epoch) lanes(sp *span, t int64) []Piece {
	m, n := sp.blocks, e.order.plan.WindowBlocks
	windows := int64(len(sp.ends) - 1)
	if windows == 1 {
		pieces := make([]Piece, 0, m)
		for b := range m {
			pieces = append(pieces, e.cutPiece(sp, sp.block+b))
		}
		return pieces
	}
	low, high := ceilDiv(t*m, windows), ceilDiv((t+1)*m, windows)
	pieces := make([]Piece, 0, n)
	for lane := range n {
		b := ceilDiv(low+lane*m, n)
		if b*n-lane*m < high {
			pieces = append(pieces, e.cutPiece(sp, sp.block+b))
		}
	}
	return pieces
}

// cutPiece returns a block of the list, without the rows that lie outside the span.
func (e *Epoch) cutPiece(sp *span, b int64) Piece {
	li, l := &e.list, e.order.layout
	i := before(li.blocks, b)
	s := int(li.segments[i])
	first := l.first[s]
	block := first + b - li.blocks[i]
	begin, end := l.start(s, block), l.start(s, block+1)
	shift := li.rows[i] - l.start(s, first) // from rows of the layout to rows of the list
	from, to := max(begin+shift, sp.from), min(end+shift, sp.to)
	return l.piece(s, block, from-shift-begin, to-shift-begin)
}

// ceilDiv returns ⌈a/b⌉ for a ≥ 0. Here a is a product of numbers below 2³¹, and b one.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

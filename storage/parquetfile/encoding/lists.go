package encoding

import (
	"fmt"
	"math/bits"
)

// Shape says what the definition levels of lists of one level mean: from which
// level on there is what.
type Shape struct {
	Most int // the highest level: a stored value
	List int // the list is not null; 0 if it never is
	Slot int // the list has an element here, null or not
	Item int // the element is not null; Most, or less for a struct that has the value
}

// Lists decodes the levels of lists of one level. The elements of a list may
// lie in several pages of a column chunk.
type Lists struct {
	shape Shape
	open  bool // the last list has an element, so more may follow
	rep   Levels
	def   Levels
	left  int // levels left in the page
}

// Bitmap is where bits are written: to B from bit At on, or nowhere if B is nil.
type Bitmap struct {
	B  []byte
	At int
}

// Counts are what Lists.Decode has passed.
type Counts struct {
	Levels int // pairs of levels
	Rows   int // lists that begin, empty and null ones included
	Lists  int // those of them that are not null
	Slots  int // elements, null ones included
	Items  int // those of them that are not null
	Stored int // values that are stored
}

// Reset starts with the first page of a column chunk. A copy made with another
// Shape of the same Most reads other bits of the same levels.
func (l *Lists) Reset(shape Shape) error {
	if shape.Slot < 1 || shape.List > shape.Slot || shape.Item < shape.Slot || shape.Item > shape.Most {
		return malformed("lists whose definition levels are %+v", shape)
	}
	*l = Lists{shape: shape}
	return nil
}

// Page goes on with a page of n pairs of levels.
func (l *Lists) Page(rep, def Levels, n int) {
	l.rep, l.def, l.left = rep, def, n
}

// Left is how many pairs of levels of the page are still to come.
func (l *Lists) Left() int { return l.left }

// ListsInto is where DecodeLists writes; its parts may be nil.
type ListsInto[O Offset] struct {
	Offsets []O    // for each row that begins, the number of slots before it
	Slots   O      // that came before, in earlier pages
	Lists   Bitmap // a bit for each row that begins: not null
	Items   Bitmap // a bit for each slot: not null
}

// DecodeLists passes pairs of levels of the page until rows lists have begun and the
// next one begins, or to the end of the page, where the last list may go on in
// the next page. rows may be 0: what is left of the last list.
func DecodeLists[O Offset](l *Lists, rows int, into ListsInto[O]) (c Counts, err error) {
	if into.Offsets != nil && rows > len(into.Offsets) || into.Lists.B != nil && into.Lists.At+rows > len(into.Lists.B)*8 {
		return c, errRoom
	}
	lists, items := writeBits(into.Lists.B, into.Lists.At), writeBits(into.Items.B, into.Items.At)
	for ended := false; l.left > 0 && !ended; {
		g, err := l.group()
		if err != nil {
			return c, err
		}
		if starts := bits.OnesCount64(g.starts); starts > rows-c.Rows {
			g.cut(rows - c.Rows)
			ended = true
		}
		if err := l.pass(&g); err != nil {
			return c, err
		}
		before := into.Slots + O(c.Slots)
		if into.Offsets != nil {
			row := c.Rows
			for starts := g.starts; starts != 0; starts &= starts - 1 {
				into.Offsets[row] = before + O(bits.OnesCount64(g.slots&(starts&-starts-1)))
				row++
			}
		}
		slots := g.add(&c)
		if into.Items.B != nil && into.Items.At+c.Slots > len(into.Items.B)*8 {
			return c, errRoom
		}
		if int64(O(int64(into.Slots)+int64(c.Slots))) != int64(into.Slots)+int64(c.Slots) {
			return c, ErrOffsets
		}
		lists.put(squeeze(g.lists&g.starts, g.starts), bits.OnesCount64(g.starts))
		if g.more > 0 {
			items.fill(slots, g.items != 0)
		} else {
			items.put(squeeze(g.items&g.slots, g.slots), slots)
		}
	}
	lists.done()
	items.done()
	return c, nil
}

// group is what up to 64 pairs of levels say, a bit for each.
type group struct {
	n      int
	more   int    // pairs behind them that are all as these, which begin no list
	starts uint64 // a list begins
	lists  uint64 // and is not null
	slots  uint64 // there is an element
	items  uint64 // and it is not null
	stored uint64 // and has a value
}

// group looks at the next pairs of levels, as many as lie in one run each.
func (l *Lists) group() (g group, err error) {
	k, err := l.rep.run(l.left)
	if err != nil {
		return g, err
	}
	if k, err = l.def.run(k); err != nil {
		return g, err
	}
	g.n = min(k, 64)
	goesOn, err := l.rep.mask(g.n, 1)
	if err != nil {
		return g, err
	}
	if l.rep.most > 1 {
		return g, fmt.Errorf("%w: repetition levels up to %d, where lists of one level have 1", ErrUnsupported, l.rep.most)
	}
	g.starts = ^goesOn & ones(g.n)
	for _, part := range [...]struct {
		bits  *uint64
		least int
	}{{&g.lists, l.shape.List}, {&g.slots, l.shape.Slot}, {&g.items, l.shape.Item}, {&g.stored, l.shape.Most}} {
		if *part.bits, err = l.def.mask(g.n, part.least); err != nil {
			return g, err
		}
	}
	if g.starts == 0 && l.rep.runs.packed == nil && l.def.runs.packed == nil {
		g.more = k - g.n
	}
	return g, nil
}

// cut leaves only what comes before list number rows begins.
func (g *group) cut(rows int) {
	starts := g.starts
	for range rows {
		starts &= starts - 1
	}
	g.n = bits.TrailingZeros64(starts)
	g.more = 0
	all := ones(g.n)
	g.starts, g.lists, g.slots, g.items, g.stored = g.starts&all, g.lists&all, g.slots&all, g.items&all, g.stored&all
}

// pass passes the pairs of g, unless an element among them belongs to no list.
func (l *Lists) pass(g *group) error {
	if g.n == 0 {
		return nil
	}
	before := g.slots << 1 // a list that has no element has no more
	if l.open {
		before |= 1
	}
	if goesOn := ^g.starts & ones(g.n); goesOn&^(g.slots&before) != 0 {
		return malformed("an element that belongs to no list")
	}
	l.open = g.slots>>(g.n-1)&1 == 1
	l.rep.runs.pass(g.n + g.more)
	l.def.runs.pass(g.n + g.more)
	l.left -= g.n + g.more
	return nil
}

// add counts the pairs of g, and returns how many slots are among them.
func (g *group) add(c *Counts) (slots int) {
	slots = bits.OnesCount64(g.slots)
	items, stored := bits.OnesCount64(g.items), bits.OnesCount64(g.stored)
	if g.more > 0 { // all pairs are alike, and have slots
		slots += g.more
		items += g.more * int(g.items&1)
		stored += g.more * int(g.stored&1)
	}
	c.Levels += g.n + g.more
	c.Rows += bits.OnesCount64(g.starts)
	c.Lists += bits.OnesCount64(g.lists & g.starts)
	c.Slots += slots
	c.Items += items
	c.Stored += stored
	return slots
}

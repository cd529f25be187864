package encoding

import "math"

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

// batch is how many levels are looked at together.
const batch = 256

// ListsInto is where Decode writes; its parts may be nil.
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
	var rep, def [batch]uint32
	for l.left > 0 {
		n := min(l.left, batch)
		ahead := *l
		if err := ahead.rep.runs.Decode(rep[:n]); err != nil {
			return c, err
		}
		if err := ahead.def.runs.Decode(def[:n]); err != nil {
			return c, err
		}
		passed, err := decodeLists(l, rep[:n], def[:n], rows, into, &c)
		if err != nil {
			return c, err
		}
		l.left -= passed
		c.Levels += passed
		if passed < n {
			if err := l.rep.runs.Skip(passed); err != nil {
				return c, err
			}
			return c, l.def.runs.Skip(passed)
		}
		l.rep, l.def = ahead.rep, ahead.def
	}
	return c, nil
}

func decodeLists[O Offset](l *Lists, rep, def []uint32, rows int, into ListsInto[O], c *Counts) (int, error) {
	s := l.shape
	for i, r := range rep {
		d := int(def[i])
		switch {
		case d > s.Most:
			return 0, malformed("a definition level of %d where %d is the most", d, s.Most)
		case r > 1:
			return 0, malformed("a repetition level of %d in lists of one level", r)
		case r == 1 && (!l.open || d < s.Slot):
			return 0, malformed("an element that belongs to no list")
		}
		if r == 0 {
			if c.Rows == rows {
				return i, nil
			}
			if into.Offsets != nil {
				into.Offsets[c.Rows] = into.Slots + O(c.Slots)
			}
			c.Lists += into.Lists.put(c.Rows, d >= s.List)
			c.Rows++
		}
		l.open = d >= s.Slot
		if l.open {
			c.Items += into.Items.put(c.Slots, d >= s.Item)
			c.Slots++
			if int64(into.Slots)+int64(c.Slots) > math.MaxInt32 && int64(O(math.MaxInt32)+1) < 0 {
				return 0, ErrOffsets
			}
		}
		if d == s.Most {
			c.Stored++
		}
	}
	return len(rep), nil
}

// put writes the bit i, and returns it as a number.
func (m Bitmap) put(i int, set bool) int {
	bit := 0
	if set {
		bit = 1
	}
	if m.B != nil {
		putWord(m.B, m.At+i, uint64(bit), 1)
	}
	return bit
}

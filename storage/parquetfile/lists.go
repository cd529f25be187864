package parquetfile

import (
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/bitutil"

	"github.com/headrace/headrace/storage/parquetfile/encoding"
)

// track reads the levels of lists for one pair of questions: which rows have
// something, and which elements have. The first track of a leaf asks about the
// lists and the values, others about structs above and below.
type track struct {
	lists   encoding.Lists
	rows    *bitmap // nil: nobody wants to know
	items   *bitmap
	offsets *room // of the first track
	counted bool  // offsets are there; of fixed-size lists only if some are null
}

func (t *track) reset() {
	t.counted = false
	for _, b := range []*bitmap{t.rows, t.items} {
		if b != nil {
			b.reset()
		}
	}
}

func (t *track) free() {
	for _, b := range []*bitmap{t.rows, t.items} {
		if b != nil {
			b.free()
		}
	}
	if t.offsets != nil {
		t.offsets.free()
	}
}

// takeLists reads the levels of the next n rows, which have lists.
func (l *leafReader) takeLists(n int) error {
	for {
		if last := len(l.pages) - 1; l.taken == n && (last < 0 || l.pages[last].left == 0) {
			return l.endLists(n)
		}
		p, err := l.current()
		if err != nil {
			return err
		}
		passed, err := l.takeFrom(p, n)
		if err != nil {
			return l.inPage(p, err)
		}
		if err := l.pass(p, passed.Levels, passed.Stored); err != nil {
			return err
		}
		if l.taken == n && p.left > 0 {
			return nil
		}
	}
}

// endLists looks for what the last list has in the next page. Where pages begin
// with rows it has nothing there.
func (l *leafReader) endLists(n int) error {
	for !l.regular() {
		p, err := l.nextPage()
		if err != nil || p == nil {
			return err
		}
		passed, err := l.takeFrom(p, n)
		if err != nil {
			return l.inPage(p, err)
		}
		if err := l.pass(p, passed.Levels, passed.Stored); err != nil || p.left > 0 {
			return err
		}
	}
	return nil
}

// regular tells whether all lists so far were whole and of one size.
func (l *leafReader) regular() bool {
	return l.size > 0 && !l.tracks[0].counted && l.slots == l.taken*l.size
}

// takeFrom reads levels of p until n rows have been taken.
func (l *leafReader) takeFrom(p *dataPage, n int) (c encoding.Counts, err error) {
	if l.size > 0 {
		k := min(p.left, n*l.size-l.slots)
		if ok, err := l.takeRegular(k); ok || err != nil {
			return encoding.Counts{Levels: k, Stored: k}, err
		}
	}
	for i, t := range l.tracks {
		var counts encoding.Counts
		if l.wide {
			counts, err = decodeLists[int64](l, t, p, n)
		} else {
			counts, err = decodeLists[int32](l, t, p, n)
		}
		if err != nil {
			return c, err
		}
		if i == 0 {
			c = counts
		}
	}
	l.taken += c.Rows
	l.slots += c.Slots
	return c, nil
}

// takeRegular reads k levels if they are those of whole lists of one size, the
// first and last of which may lie in other pages too.
func (l *leafReader) takeRegular(k int) (bool, error) {
	if k <= 0 || l.tracks[0].counted {
		return false, nil
	}
	for _, t := range l.tracks {
		if ok, err := t.lists.Regular(k, l.size, l.slots%l.size); err != nil || !ok {
			return false, err // all tracks say the same
		}
	}
	before := l.taken
	l.slots += k
	l.taken = (l.slots + l.size - 1) / l.size
	for _, t := range l.tracks {
		if t.rows != nil {
			if err := t.rows.ones(l.taken - before); err != nil {
				return false, err
			}
		}
		if t.items != nil {
			if err := t.items.ones(k); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// decodeLists reads levels of p for one track.
func decodeLists[O encoding.Offset](l *leafReader, t *track, p *dataPage, n int) (c encoding.Counts, err error) {
	into := encoding.ListsInto[O]{Slots: O(l.slots)}
	rows := min(n-l.taken, p.left)
	if t.rows != nil {
		if err := t.rows.grow(rows); err != nil {
			return c, err
		}
		into.Lists = encoding.Bitmap{B: t.rows.bits, At: t.rows.n}
	}
	if t.items != nil {
		if err := t.items.grow(p.left); err != nil {
			return c, err
		}
		into.Items = encoding.Bitmap{B: t.items.bits, At: t.items.n}
	}
	if t.offsets != nil {
		if into.Offsets, err = offsetsFor[O](l, t, n); err != nil {
			return c, err
		}
	}
	c, err = encoding.DecodeLists(&t.lists, rows, into)
	if t.rows != nil {
		t.rows.added(c.Rows, c.Lists)
	}
	if t.items != nil {
		t.items.added(c.Slots, c.Items)
	}
	return c, err
}

// offsetsFor returns the offsets of the rows still to come up to n; those before
// them are there. Lists of one size have none until one comes that is not.
func offsetsFor[O encoding.Offset](l *leafReader, t *track, n int) ([]O, error) {
	width := int(unsafe.Sizeof(O(0)))
	b, err := t.offsets.bytes((n+1)*width, (l.taken+1)*width)
	if err != nil {
		return nil, err
	}
	offsets := numbers[O](b)
	if l.size > 0 && !t.counted {
		for i := range l.taken {
			offsets[i] = O(i * l.size)
		}
	}
	t.counted = true
	return offsets[l.taken:n], nil
}

// listOffsets returns the offsets of the lists of the rows that were taken.
func listOffsets[O encoding.Offset](l *leafReader) ([]O, error) {
	width := int(unsafe.Sizeof(O(0)))
	b, err := l.tracks[0].offsets.bytes((l.taken+1)*width, l.taken*width)
	if err != nil {
		return nil, err
	}
	offsets := numbers[O](b)
	offsets[l.taken] = O(l.slots)
	return offsets, nil
}

// checkSizes checks that all lists have the one size, but for null ones, which have no elements.
func (l *leafReader) checkSizes(lists *bitmap) error {
	if !l.tracks[0].counted {
		return nil
	}
	offsets, err := listOffsets[int32](l)
	if err != nil {
		return err
	}
	for i := range l.taken {
		want := int32(l.size)
		if lists != nil && lists.nulls() > 0 && !bitutil.BitIsSet(lists.bits, i) {
			want = 0
		}
		if got := offsets[i+1] - offsets[i]; got != want {
			return fmt.Errorf("row %d: a list of %d elements, where all have %d", l.row-int64(l.taken)+int64(i), got, want)
		}
	}
	return nil
}

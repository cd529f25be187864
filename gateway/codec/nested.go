package codec

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
)

// sparseUnion adds a union whose children have a row for each of its rows.
func (l *layout) sparseUnion(d arrow.ArrayData, from, n int) error {
	l.node(n, 0)
	if err := l.fixed(d, 1, from, n, 1); err != nil {
		return err
	}
	for i := range d.Children() {
		if err := l.child(d, i, from, n); err != nil {
			return err
		}
	}
	return nil
}

// reach is the run of a child's rows that a window of its parent refers to.
type reach struct{ first, next int }

// denseUnion adds a union whose rows refer to rows of its children.
func (l *layout) denseUnion(t *arrow.DenseUnionType, d arrow.ArrayData, from, n int) error {
	codes, err := window(bytesOf(d, 1), from, n, 1)
	if err != nil {
		return err
	}
	offsets, err := elements[int32](bytesOf(d, 2), from, n)
	if err != nil {
		return err
	}
	children := t.ChildIDs()
	reaches, rebase, ordered, err := unionReaches(children, len(d.Children()), codes, offsets)
	if err != nil {
		return err
	}
	if !ordered {
		return l.compact(d, from, n)
	}
	l.node(n, 0)
	l.lend(codes)
	if !rebase {
		err = l.fixed(d, 2, from, n, 4)
	} else {
		var out []int32
		out, err = owned[int32](l, n)
		for i := range out {
			out[i] = offsets[i] - int32(reaches[children[codes[i]]].first)
		}
	}
	for i, r := range reaches {
		if err == nil {
			err = l.child(d, i, r.first, r.next-r.first)
		}
	}
	return err
}

// unionReaches finds the rows of each child that a union's rows refer to. They are ordered if no row in between is left
// out; rebase tells whether a child's first row is not its row zero.
func unionReaches(children []int, count int, codes []byte, offsets []int32) (reaches []reach, rebase, ordered bool, err error) {
	reaches = make([]reach, count)
	for i, code := range codes {
		if int(code) >= len(children) || children[code] < 0 || children[code] >= count || offsets[i] < 0 {
			return nil, false, false, fmt.Errorf("%w: type code %d, offset %d in a union", ErrCorrupt, int8(code), offsets[i])
		}
		r, o := &reaches[children[code]], int(offsets[i])
		switch {
		case r.next == 0:
			*r = reach{o, o + 1}
			rebase = rebase || o > 0
		case o == r.next:
			r.next++
		case o != r.next-1:
			return nil, false, false, nil
		}
	}
	return reaches, rebase, true, nil
}

// listView adds lists whose places and sizes are given apart.
func listView[T offset](l *layout, d arrow.ArrayData, from, n int) error {
	offsets, err := elements[T](bytesOf(d, 1), from, n)
	if err != nil {
		return err
	}
	sizes, err := elements[T](bytesOf(d, 2), from, n)
	if err != nil {
		return err
	}
	p, err := planListView(offsets, sizes, from, valid(d))
	if err != nil {
		return err
	}
	if !p.ordered && l.compacts == 0 { // what compact makes has no unused rows, but their order may be any
		return l.compact(d, from, n)
	}
	if err := l.validity(d, from, n); err != nil {
		return err
	}
	if !p.rewrite {
		l.lend(bytesOfElements(offsets))
		l.lend(bytesOfElements(sizes))
	} else if err := rewriteListView(l, offsets, sizes, p.first, from, valid(d)); err != nil {
		return err
	}
	return l.child(d, 0, p.first, p.next-p.first)
}

type listViewPlan struct {
	reach
	ordered bool // the lists follow one another in the child, so that they use all of the reach
	rewrite bool // offsets or sizes must be changed
}

func planListView[T offset](offsets, sizes []T, from int, valid func(int) bool) (listViewPlan, error) {
	p := listViewPlan{ordered: true}
	started := false
	for i, o := range offsets {
		at, size := int(o), int(sizes[i])
		if size != 0 && valid != nil && !valid(from+i) {
			size, p.rewrite = 0, true
		}
		switch {
		case size == 0:
			p.rewrite = p.rewrite || at != 0 && at != p.next
		case size < 0 || at < 0:
			return p, fmt.Errorf("%w: a list of %d rows from %d", ErrCorrupt, size, at)
		case !started:
			started = true
			p.reach = reach{at, at + size}
		default:
			p.ordered = p.ordered && at == p.next
			p.reach = reach{min(p.first, at), max(p.next, at+size)}
		}
	}
	p.rewrite = p.rewrite || p.first > 0
	return p, nil
}

// rewriteListView adds offsets and sizes of lists in a child that now begins with its row first; empty and null lists
// lie at its start.
func rewriteListView[T offset](l *layout, offsets, sizes []T, first, from int, valid func(int) bool) error {
	starts, err := owned[T](l, len(offsets))
	if err != nil {
		return err
	}
	empty := func(i int) bool { return sizes[i] == 0 || valid != nil && !valid(from+i) }
	for i := range starts {
		if starts[i] = offsets[i] - T(first); empty(i) {
			starts[i] = 0
		}
	}
	lengths, err := owned[T](l, len(sizes))
	if err != nil {
		return err
	}
	for i := range lengths {
		if lengths[i] = sizes[i]; empty(i) {
			lengths[i] = 0
		}
	}
	return nil
}

// runs adds a run-end encoded array: the runs that its rows touch, cut at both ends.
func (l *layout) runs(t *arrow.RunEndEncodedType, d arrow.ArrayData, from, n int) error {
	if len(d.Children()) != 2 {
		return fmt.Errorf("%w: %s lacks a child", ErrCorrupt, t)
	}
	l.node(n, 0)
	switch t.RunEnds().ID() {
	case arrow.INT16:
		return runs[int16](l, d, from, n)
	case arrow.INT32:
		return runs[int32](l, d, from, n)
	case arrow.INT64:
		return runs[int64](l, d, from, n)
	}
	return fmt.Errorf("%w: %s", ErrUnsupported, t)
}

func runs[T offset](l *layout, d arrow.ArrayData, from, n int) error {
	child := d.Children()[0]
	ends, err := elements[T](bytesOf(child, 1), child.Offset(), child.Len())
	if err != nil {
		return err
	}
	first, count := 0, 0
	if n > 0 {
		if len(ends) == 0 || int(ends[len(ends)-1]) < from+n {
			return fmt.Errorf("%w: %d runs do not cover %d rows", ErrCorrupt, len(ends), from+n)
		}
		first, _ = slices.BinarySearch(ends, T(from+1))
		last, _ := slices.BinarySearch(ends, T(from+n))
		count = last - first + 1
	}
	l.node(count, 0)
	l.empty()
	if from == 0 && count > 0 && int(ends[count-1]) == n {
		l.lend(bytesOfElements(ends[:count]))
		return l.child(d, 1, first, count)
	}
	out, err := owned[T](l, count)
	if err != nil {
		return err
	}
	for i := range out {
		out[i] = T(min(int(ends[first+i])-from, n))
	}
	return l.child(d, 1, first, count)
}

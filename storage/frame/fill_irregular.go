package frame

import (
	"fmt"
	"sort"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// isNull looks a row up in a bitmap that may be absent.
func isNull(validity *memory.Buffer, row int64) bool {
	return validity != nil && !bitutil.BitIsSet(validity.Bytes(), int(row))
}

// fillViews copies the views and packs the bytes that they point to into one buffer.
func (f *filler) fillViews(n *node, validity *memory.Buffer, views, data []byte) error {
	pack := packer{dst: data}
	row := int64(0)
	for _, s := range n.spans {
		part := views[row*n.lay.width:][:s.n*n.lay.width]
		if err := s.c.buffer(1).readAt(part, s.at()*n.lay.width); err != nil {
			return err
		}
		pack.c = s.c
		for i := range s.n {
			if err := pack.move(part[i*n.lay.width:][:n.lay.width], isNull(validity, row+i)); err != nil {
				return err
			}
		}
		if err := pack.flush(); err != nil {
			return err
		}
		row += s.n
	}
	if pack.done != int64(len(data)) {
		return fmt.Errorf("%w: values of %d bytes were %d before", ErrCorrupt, pack.done, len(data))
	}
	prefix(views, data, n.lay.width)
	return nil
}

// prefix writes the first four bytes of each long value into its view: the
// file's own are not to be trusted, and comparisons look at nothing else first.
func prefix(views, data []byte, width int64) {
	for ; len(views) > 0; views = views[width:] {
		if size := number(views, 0, 4); size > inline {
			copy(views[4:8], data[number(views, 3, 4):])
		}
	}
}

// packer moves the bytes behind views together. Values that follow on each
// other in the source are moved in one go, for in a file each move is a read.
type packer struct {
	c       *Column
	dst     []byte
	done    int64 // bytes of dst copied or waiting
	buffer  int64 // waiting: bytes [from, to) of data buffer
	from    int64
	waiting int64
}

// move rewrites one view of 16 bytes for its new place.
func (p *packer) move(v []byte, null bool) error {
	size := number(v, 0, 4)
	switch {
	case null:
		clear(v)
		return nil
	case size < 0:
		return fmt.Errorf("%w: a value of %d bytes", ErrCorrupt, size)
	case size <= inline:
		clear(v[4+size:])
		return nil
	}
	buffer, at := number(v, 2, 4), number(v, 3, 4)
	if buffer < 0 || buffer >= int64(len(p.c.Buffers)-2) || size > int64(len(p.dst))-p.done {
		return fmt.Errorf("%w: a value of %d bytes in buffer %d of %d", ErrCorrupt, size, buffer, len(p.c.Buffers)-2)
	}
	if p.waiting > 0 && (buffer != p.buffer || at != p.from+p.waiting) {
		if err := p.flush(); err != nil {
			return err
		}
	}
	if p.waiting == 0 {
		p.buffer, p.from = buffer, at
	}
	putNumber(v, 2, 4, 0)
	putNumber(v, 3, 4, p.done)
	p.waiting += size
	p.done += size
	return nil
}

// flush copies what is waiting.
func (p *packer) flush() error {
	if p.waiting == 0 {
		return nil
	}
	n := p.waiting
	p.waiting = 0
	return p.c.buffer(int(p.buffer)+2).readAt(p.dst[p.done-n:p.done], p.from)
}

// fillListViews copies offsets and sizes and points them at the rows' new places.
func (f *filler) fillListViews(n *node, validity *memory.Buffer, offsets, sizes []byte) error {
	w, row := n.lay.width, int64(0)
	for k, s := range n.spans {
		at, sz := offsets[row*w:][:s.n*w], sizes[row*w:][:s.n*w]
		if err := s.c.buffer(1).readAt(at, s.at()*w); err != nil {
			return err
		}
		if err := s.c.buffer(2).readAt(sz, s.at()*w); err != nil {
			return err
		}
		for i := range s.n {
			from, size := number(at, i, w), number(sz, i, w)
			if isNull(validity, row+i) || size == 0 {
				from, size = 0, 0
			} else {
				var err error
				if from, err = relocate(n.shelves[k], from, size); err != nil {
					return err
				}
			}
			putNumber(at, i, w, from)
			putNumber(sz, i, w, size)
		}
		row += s.n
	}
	return nil
}

// relocate finds where rows [from, from+size) of a child went.
func relocate(shelves []shelved, from, size int64) (int64, error) {
	i := sort.Search(len(shelves), func(i int) bool { return shelves[i].from > from }) - 1
	if i < 0 || size < 0 || from > shelves[i].to-size {
		return 0, fmt.Errorf("%w: a list of rows %d+%d that was not there before", ErrCorrupt, from, size)
	}
	return shelves[i].place + from - shelves[i].from, nil
}

// fillDense copies ids and offsets and points the offsets at the values' new places.
func fillDense(n *node, ids, offsets []byte) error {
	if err := fillIDs(n, ids, 2); err != nil {
		return err
	}
	d := newDenseWalk(n.typ)
	row := int64(0)
	for _, s := range n.spans {
		part := offsets[row*n.lay.width:][:s.n*n.lay.width]
		if err := s.c.buffer(unionBuffers(s.c, 2)+1).readAt(part, s.at()*n.lay.width); err != nil {
			return err
		}
		d.enter(s.c)
		for i := range s.n {
			child, slot, _, err := d.step(int8(ids[row+i]), number(part, i, n.lay.width))
			if err != nil {
				return err
			}
			if slot >= n.children[child].rows {
				return fmt.Errorf("%w: %d values were %d before", ErrCorrupt, slot+1, n.children[child].rows)
			}
			putNumber(part, i, n.lay.width, slot)
		}
		row += s.n
	}
	return nil
}

// runEnds makes the first child of a run-end encoded array.
func (f *filler) runEnds(n *node) arrow.ArrayData {
	mem, b := f.carve(n.sizes[0])
	defer b.Release()
	for i, end := range n.ends {
		putNumber(mem, int64(i), n.lay.width, end)
	}
	t := n.typ.(*arrow.RunEndEncodedType).RunEnds()
	return array.NewData(t, len(n.ends), []*memory.Buffer{nil, b}, nil, 0, 0)
}

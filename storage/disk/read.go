package disk

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/cache"
	"github.com/headrace/headrace/storage/frame"
)

// Get implements cache.Below.
func (t *Tier) Get(ctx context.Context, r cache.Request) []*frame.Lease {
	select {
	case <-t.found:
	case <-ctx.Done():
		return nil
	}
	t.mu.Lock()
	e := t.index.find(r.Block, r.Columns)
	if e != nil {
		t.index.use(e, r.Plan)
	}
	t.mu.Unlock()
	if e == nil {
		t.misses.Add(1)
		return nil
	}
	select {
	case t.readers <- struct{}{}:
		defer func() { <-t.readers }()
	case <-ctx.Done():
		return nil
	}
	var frames []*frame.Lease
	err := protect(func() (err error) {
		frames, err = t.read(e, r)
		return err
	})
	if err == nil {
		t.hits.Add(1)
		if t.unread.Load() {
			t.succeed(reading)
		}
		return frames
	}
	t.misses.Add(1)
	t.reject(e, err)
	return nil
}

// reject judges an entry that could not be read.
func (t *Tier) reject(e *entry, err error) {
	var system *fs.PathError
	switch {
	case errors.Is(err, budget.ErrExhausted): // the file is as good as ever
		return
	case errors.Is(err, fs.ErrNotExist): // evicted meanwhile, or deleted by somebody
	case errors.As(err, &system):
		t.fail(reading, err)
		if !errors.Is(err, syscall.EIO) { // there may be too many files open, or no permission now
			return
		}
	default:
		t.damaged(e.id.file(), err)
	}
	t.discard(e)
}

// protect makes damage of a panic, which a file that nobody foresaw may cause.
func protect(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = damagedf("it cannot be read: %v", p)
		}
	}()
	return do()
}

// read maps the wanted columns of an entry, charged to the grant of the request.
func (t *Tier) read(e *entry, r cache.Request) (frames []*frame.Lease, err error) {
	f, size, err := t.dir.Load().open(e.id.file())
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read: nothing to tell
	// Under the kernel's promise first: what is checked then is what is shown.
	mapped, _ := t.options.Pool.Map(f.Fd()) // why not is of no interest: it can always be read
	if mapped != nil {
		defer mapped.Close()
	}
	h, err := readHeader(f, size)
	if err != nil {
		return nil, err
	}
	places, ok := r.Columns.Within(cache.NamedColumns(h.columns))
	if h.key != r.Block || h.version != t.options.Version || !ok {
		return nil, damagedf("it holds another block")
	}
	whole := false
	defer func() {
		if !whole { // by an error, or by a library's panic
			for _, l := range frames {
				l.Release()
			}
			frames = nil
		}
	}()
	check := checker{file: f, header: h, done: make([]bool, len(h.sums))}
	for _, s := range h.frames {
		piece, err := s.piece(r.Columns.Schema(), places, f, h.size)
		if err != nil {
			return frames, err
		}
		if err := check.columns(s, places); err != nil {
			return frames, err
		}
		l, err := t.frame(mapped, r, piece)
		if err != nil {
			return frames, err
		}
		frames = append(frames, l)
	}
	whole = true
	return frames, nil
}

// frame makes a frame of rows where they lie, or a copy if they cannot be shown there.
func (t *Tier) frame(mapped *frame.File, r cache.Request, p frame.Piece) (*frame.Lease, error) {
	pieces := []frame.Piece{p}
	if mapped != nil {
		l, err := mapped.Frame(r.Grant, r.Columns.Schema(), p)
		if !errors.Is(err, frame.ErrNotInPlace) {
			return l, err
		}
	}
	return t.options.Pool.Assemble(r.Grant, budget.Frames, r.Columns.Schema(), pieces)
}

// piece describes the columns at some places, which have the types of a schema. f holds them behind a head of so many bytes.
func (s stored) piece(schema *arrow.Schema, places []int, f *os.File, head int64) (frame.Piece, error) {
	p := frame.Piece{To: s.rows}
	for i, field := range schema.Fields() {
		w := &walk{nodes: s.columns[places[i]], file: f, head: head}
		column := w.column(field.Type)
		if w.err || len(w.nodes) > 0 {
			return p, damagedf("column %q is not laid out as %v", field.Name, field.Type)
		}
		p.Columns = append(p.Columns, column)
	}
	return p, nil
}

// walk lays the arrays of a column, which are a list, over its type.
type walk struct {
	nodes []node
	file  *os.File
	head  int64
	err   bool
}

func (w *walk) column(t arrow.DataType) frame.Column {
	if len(w.nodes) == 0 {
		w.err = true
		return frame.Column{}
	}
	n := w.nodes[0]
	w.nodes = w.nodes[1:]
	c := frame.Column{Type: plain(t), Len: n.rows, Nulls: n.nulls}
	for _, s := range n.buffers {
		b := frame.Buffer{}
		if s.len > 0 {
			b = frame.Buffer{R: w.file, Off: w.head + s.off, Len: s.len}
		}
		c.Buffers = append(c.Buffers, b)
	}
	if nested, ok := c.Type.(arrow.NestedType); ok {
		for _, f := range nested.Fields() {
			c.Children = append(c.Children, w.column(f.Type))
		}
	}
	return c
}

// checker compares checksums of what is going to be shown.
type checker struct {
	file   *os.File
	header *header
	done   []bool // by piece
}

// columns checks all bytes of the columns at some places. They are read rather than looked at in the mapping: where
// the disk fails, that is an error, and no signal.
func (c *checker) columns(s stored, places []int) error {
	buffer := scratch.Get().(*[]byte)
	defer scratch.Put(buffer)
	for _, at := range places {
		for _, n := range s.columns[at] {
			for _, b := range n.buffers {
				for i := b.off / grain; b.len > 0 && i <= (b.off+b.len-1)/grain; i++ {
					if err := c.piece(i, *buffer); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// scratch are buffers for one piece each.
var scratch = sync.Pool{New: func() any {
	b := make([]byte, grain)
	return &b
}}

func (c *checker) piece(i int64, buffer []byte) error {
	if c.done[i] {
		return nil
	}
	c.done[i] = true
	from := c.header.size + i*grain
	b := buffer[:min(grain, c.header.bytes()-from)]
	if _, err := c.file.ReadAt(b, from); err != nil {
		return fmt.Errorf("%s: %w", c.file.Name(), err)
	}
	if crc32.Checksum(b, castagnoli) != c.header.sums[i] {
		return damagedf("the checksum of bytes %d to %d differs", from, from+int64(len(b)))
	}
	return nil
}

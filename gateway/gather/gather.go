// Package gather copies chosen rows of many frames into one new batch, in one
// pooled region of the exact size.
package gather

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

// Errors of misuse; what is wrong with rows or columns is told by the errors of package frame.
var (
	// ErrRow means a row that no batch in the gatherer has.
	ErrRow = errors.New("no such row")
	// ErrUnselected means that Gather has no rows to gather: none were
	// selected, or batches came or went since.
	ErrUnselected = errors.New("no rows are selected")
)

// Row is one row of one of the batches: the slot that the batch was put in, and the row there.
type Row struct{ Frame, Row int32 }

// Gatherer copies rows of the batches that are put into its slots. It keeps
// its working memory (a few bytes for each row of the largest selection and
// for each slot, by column), so that gathering again allocates nothing but the
// headers of the new arrays. It is for one goroutine at a time.
type Gatherer struct {
	schema   *arrow.Schema
	columns  []*node
	copier   *copier  // in place of columns if a type has no kernel
	counts   []uint32 // by slot: rows
	rows     selection
	size     int64
	selected bool
}

// New makes a gatherer for batches of s, which must be free of dictionaries
// and extension types, as frames are; the error wraps frame.ErrUnsupported.
func New(s *arrow.Schema) (*Gatherer, error) {
	g := &Gatherer{schema: s}
	for _, f := range s.Fields() {
		n, err := newNode(f.Name, f.Type)
		if err != nil {
			return nil, err
		}
		g.columns = append(g.columns, n)
	}
	if slices.ContainsFunc(g.columns, (*node).irregular) {
		g.columns, g.copier = nil, &copier{schema: s}
	}
	return g, nil
}

// Put makes the rows of batch available under slot, in the place of what was
// there. Slots are small numbers: the caller's own numbering of its frames.
// The batch is read until it is dropped, so its lease must live as long; it is
// not retained. Its arrays may be slices. Errors wrap frame.ErrCorrupt,
// frame.ErrOverflow for more than 2³¹−1 rows, or say which column is of another type.
func (g *Gatherer) Put(slot int, batch arrow.RecordBatch) error {
	g.Drop(slot)
	if int(batch.NumCols()) != g.schema.NumFields() {
		return fmt.Errorf("gather: %d columns, the schema has %d", batch.NumCols(), g.schema.NumFields())
	}
	rows := batch.NumRows()
	if rows > math.MaxInt32 {
		return fmt.Errorf("gather: %d rows in one batch: %w", rows, frame.ErrOverflow)
	}
	for slot >= len(g.counts) {
		g.counts = append(g.counts, 0)
	}
	if g.copier != nil {
		g.copier.put(slot, batch)
	}
	for i, n := range g.columns {
		if err := n.bind(slot, batch.Column(i).Data(), 0, rows); err != nil {
			g.Drop(slot)
			return err
		}
	}
	g.counts[slot] = uint32(rows)
	return nil
}

// Drop empties slot. An empty one stays so.
func (g *Gatherer) Drop(slot int) {
	g.selected = false
	if slot >= len(g.counts) {
		return
	}
	g.counts[slot] = 0
	if g.copier != nil {
		g.copier.drop(slot)
	}
	for _, n := range g.columns {
		n.drop(slot)
	}
}

// Select chooses rows, in this order, and returns how many bytes a frame of
// them takes. Errors wrap ErrRow; frame.ErrOverflow if 32-bit offsets or 2³¹−1
// bytes of one buffer do not hold them, so that fewer must be chosen; or frame.ErrCorrupt.
func (g *Gatherer) Select(rows []Row) (int64, error) {
	g.selected, g.size = false, 0
	for i, r := range rows {
		if f := uint32(r.Frame); int(f) >= len(g.counts) || uint32(r.Row) >= g.counts[f] { // negative ones are too large
			return 0, fmt.Errorf("gather: row %d of %d is row %d of frame %d: %w", i, len(rows), r.Row, r.Frame, ErrRow)
		}
	}
	// The kernels rely on what was just checked, so they read a copy that stays as it is.
	g.rows.reset(1, int64(len(rows)))
	g.rows.rows = append(g.rows.rows[:0], rows...)
	if err := g.measure(); err != nil {
		return 0, err
	}
	g.selected = true
	return g.size, nil
}

func (g *Gatherer) measure() (err error) {
	if g.copier != nil {
		g.size, err = g.copier.measure(g.rows.rows)
		return err
	}
	for _, n := range g.columns {
		if err := n.measure(&g.rows); err != nil {
			return err
		}
		g.size += n.bytes()
	}
	return nil
}

// Gather copies the selected rows into one region charged to gr as k, and
// publishes it as a frame: arrays with offset 0, buffers on multiples of 64
// bytes, zero padding, and a bitmap only where there are nulls. The error
// wraps ErrUnselected, budget.ErrExhausted, or frame.ErrCorrupt if bytes have
// changed since Select.
func (g *Gatherer) Gather(p *frame.Pool, gr *budget.Grant, k budget.Kind) (*frame.Lease, error) {
	if !g.selected {
		return nil, fmt.Errorf("gather: %w", ErrUnselected)
	}
	if g.copier != nil {
		return g.copier.gather(p, gr, k)
	}
	region, err := p.Alloc(gr, k, int(g.size))
	if err != nil {
		return nil, err
	}
	rest := region.Bytes()
	for _, n := range g.columns {
		if rest, err = n.fill(rest); err != nil {
			region.Free()
			return nil, err
		}
	}
	columns := make([]arrow.Array, len(g.columns))
	for i, n := range g.columns {
		data := n.data()
		columns[i] = array.MakeFromData(data)
		data.Release()
	}
	batch := array.NewRecordBatch(g.schema, columns, g.rows.total)
	for _, c := range columns {
		c.Release()
	}
	return p.Publish(batch, region), nil
}

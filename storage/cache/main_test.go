package cache

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"go.uber.org/goleak"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// page is what a block of one column costs.
const (
	page = 4096
	rows = 500
)

// world is a cache over a store whose blocks are made when they are asked for.
// All is given back at the end of the test.
type world struct {
	testing.TB
	ledger *budget.Ledger
	pool   *frame.Pool
	cache  *Cache
	loads  atomic.Int64
}

// newWorld has so many pages of memory.
func newWorld(t testing.TB, pages int64, o Options) *world {
	t.Helper()
	w := &world{TB: t, ledger: budget.New(budget.Options{Limit: pages * page}), pool: frame.NewPool(frame.Options{Idle: 4 * page, Poison: true})}
	o.Ledger, o.Pool = w.ledger, w.pool
	var err error
	if w.cache, err = New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.cache.Close(); err != nil {
			t.Error(err)
		}
		if err := w.pool.Close(); err != nil {
			t.Error(err)
		}
		if s := w.ledger.Stats(); s.Reserved != 0 || len(s.Used) != 0 || s.Grants != 0 {
			t.Errorf("left in the ledger: %+v", s)
		}
	})
	return w
}

func columns(names ...string) *Columns {
	var fields []arrow.Field
	for _, name := range names {
		fields = append(fields, arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64})
	}
	return NewColumns(arrow.NewSchema(fields, nil))
}

var onlyA = columns("a")

func block(n int) Key { return Key{Object: "object", Segment: n / 10, From: int64(n%10) * rows} }

// value is what a block holds.
func value(k Key, column string, row int) int64 {
	return int64(k.Segment)<<40 | k.From<<16 | int64(column[0])<<10 | int64(row)
}

// decode makes the frames of a block.
func (w *world) decode(k Key, c *Columns, g *budget.Grant) ([]*frame.Lease, error) {
	w.loads.Add(1)
	b := array.NewRecordBuilder(memory.DefaultAllocator, c.schema)
	defer b.Release()
	for i, f := range c.schema.Fields() {
		for row := range rows {
			b.Field(i).(*array.Int64Builder).Append(value(k, f.Name, row))
		}
	}
	record := b.NewRecordBatch()
	defer record.Release()
	l, err := w.pool.Assemble(g, budget.Frames, c.schema, []frame.Piece{frame.PieceOf(record, 0, rows)})
	if err != nil {
		return nil, err
	}
	return []*frame.Lease{l}, nil
}

// request asks for a block of a plan that is always live.
func (w *world) request(k Key, c *Columns, g *budget.Grant) Request {
	return Request{
		Block: k, Columns: c, Tenant: "t", Plan: always, Grant: g,
		Load: func(context.Context) ([]*frame.Lease, error) { return w.decode(k, c, g) },
	}
}

var always = func() *Plan {
	p := &Plan{}
	p.streams.Store(1)
	return p
}()

// check compares what a lease shows with what the block holds.
func check(l *Lease, k Key, c *Columns) error {
	record := l.Frames()[0].Batch()
	if !record.Schema().Equal(c.schema) || record.NumRows() != rows {
		return fmt.Errorf("%d rows of %v", record.NumRows(), record.Schema())
	}
	for i, f := range c.schema.Fields() {
		values := record.Column(i).(*array.Int64)
		for row := range rows {
			if got := values.Value(row); got != value(k, f.Name, row) {
				return fmt.Errorf("block %v, column %s, row %d: %x, not %x", k, f.Name, row, got, value(k, f.Name, row))
			}
		}
	}
	return nil
}

// get leases a block and checks it.
func (w *world) get(r Request) *Lease {
	w.Helper()
	l, err := w.cache.Get(context.Background(), r)
	if err == nil {
		err = check(l, r.Block, r.Columns)
	}
	if err != nil {
		w.Fatal(err)
	}
	return l
}

// pass reads blocks one after the other, each with memory for one, as a stream in stored order does.
func (w *world) pass(blocks ...int) (loads int64) {
	w.Helper()
	before := w.loads.Load()
	for _, n := range blocks {
		g, err := w.ledger.Admit(context.Background(), page)
		if err != nil {
			w.Fatal(err)
		}
		w.get(w.request(block(n), onlyA, g)).Release()
		g.Close()
	}
	return w.loads.Load() - before
}

// admit reserves pages.
func (w *world) admit(pages int64) *budget.Grant {
	w.Helper()
	g, err := w.ledger.Admit(context.Background(), pages*page)
	if err != nil {
		w.Fatal(err)
	}
	return g
}

func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

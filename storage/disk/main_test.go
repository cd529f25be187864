package disk

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"go.uber.org/goleak"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/cache"
	"github.com/headrace/headrace/storage/frame"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("DISK_TEST_WRITES_TO"); dir != "" {
		writeForEver(dir)
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		_ = flag.Set("rapid.checks", "30") // each is a few restarts
	}
	goleak.VerifyTestMain(m)
}

const testVersion = "test 1"

// fataler is what both testing.TB and rapid.T offer.
type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func must(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is a tier under a cache over a store whose blocks are made when they are asked for.
type world struct {
	dir    string
	ledger *budget.Ledger
	pool   *frame.Pool
	tier   *Tier
	cache  *cache.Cache
	loads  atomic.Int64
	rows   int

	mu     sync.Mutex
	events []string
	made   map[string]arrow.RecordBatch // what blocks hold
}

// newWorld opens a directory. Memory keeps so many bytes; 0: what nobody else needs.
func newWorld(t fataler, dir string, limit, keeps int64) *world {
	t.Helper()
	w := &world{dir: dir, rows: 500}
	w.enter(t, limit, keeps)
	return w
}

func (w *world) enter(t fataler, limit, keeps int64) {
	t.Helper()
	w.ledger, w.pool = budget.New(budget.Options{Limit: 1 << 30}), frame.NewPool(frame.Options{Poison: true})
	var err error
	w.tier, err = Open(context.Background(), Options{Dir: w.dir, Limit: limit, Version: testVersion, Pool: w.pool, Events: w.told()})
	must(t, err)
	w.cache, err = cache.New(cache.Options{Ledger: w.ledger, Pool: w.pool, Limit: keeps, Below: w.tier, Policy: cache.Pinned})
	must(t, err)
}

func (w *world) told() Events {
	tell := func(format string, args ...any) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events = append(w.events, fmt.Sprintf(format, args...))
	}
	return Events{
		Failed:  func(err error) { tell("failed: %v", err) },
		Works:   func() { tell("works") },
		Damaged: func(files int64, example string, err error) { tell("damaged: %s: %v, %d in all", example, err, files) },
	}
}

// heard returns what was told so far with a beginning.
func (w *world) heard(prefix string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if strings.HasPrefix(e, prefix) {
			n++
		}
	}
	return n
}

// leave ends all, and checks that nothing is left over.
func (w *world) leave(t fataler) {
	t.Helper()
	w.tier.Close()
	must(t, w.cache.Close())
	must(t, w.pool.Close())
	if s := w.ledger.Stats(); s.Reserved != 0 || len(s.Used) != 0 || s.Grants != 0 {
		t.Fatalf("left in the ledger: %+v", s)
	}
}

func columns(names ...string) *cache.Columns {
	var fields []arrow.Field
	for _, name := range names {
		f := arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64}
		if name == "text" {
			f.Type = arrow.BinaryTypes.String
		}
		fields = append(fields, f)
	}
	return cache.NewColumns(arrow.NewSchema(fields, nil))
}

var onlyA = columns("a")

func block(n int) cache.Key {
	return cache.Key{Object: "set\x00object\x00pin", Segment: n / 10, From: int64(n%10) * 500}
}

// record is what a block holds, made once.
func (w *world) record(k cache.Key, c *cache.Columns) arrow.RecordBatch {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := fmt.Sprint(k, c.Names(), w.rows)
	if w.made[name] == nil {
		if w.made == nil {
			w.made = map[string]arrow.RecordBatch{}
		}
		w.made[name] = w.make(k, c)
	}
	w.made[name].Retain()
	return w.made[name]
}

func (w *world) make(k cache.Key, c *cache.Columns) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, c.Schema())
	defer b.Release()
	for i, f := range c.Schema().Fields() {
		for row := range w.rows {
			v := int64(k.Segment)<<40 | k.From<<16 | int64(f.Name[0])<<10 | int64(row)
			switch b := b.Field(i).(type) {
			case *array.Int64Builder:
				b.Append(v)
			case *array.StringBuilder:
				b.Append(fmt.Sprint("größe ", v))
			}
		}
	}
	return b.NewRecordBatch()
}

// request asks for a block of a plan.
func (w *world) request(k cache.Key, c *cache.Columns, p *cache.Plan, g *budget.Grant) cache.Request {
	return cache.Request{
		Block: k, Columns: c, Tenant: "t", Plan: p, Grant: g, Dear: true,
		Load: func(context.Context) ([]*frame.Lease, error) {
			w.loads.Add(1)
			return w.frames(w.record(k, c), g)
		},
	}
}

// frames makes frames of a record, which is the caller's no more: two, so that there are several.
func (w *world) frames(record arrow.RecordBatch, g *budget.Grant) (all []*frame.Lease, err error) {
	defer record.Release()
	half := record.NumRows() / 2
	for _, part := range [][2]int64{{0, half}, {half, record.NumRows()}} {
		l, err := w.pool.Assemble(g, budget.Frames, record.Schema(), []frame.Piece{frame.PieceOf(record, part[0], part[1])})
		if err != nil {
			for _, l := range all {
				l.Release()
			}
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

// get leases a block of a plan, compares it, and gives it back when the tier has had its time with it.
func (w *world) get(t fataler, n int, c *cache.Columns, p *cache.Plan) {
	t.Helper()
	g, err := w.ledger.Admit(context.Background(), 1<<20)
	must(t, err)
	defer g.Close()
	l, err := w.cache.Get(context.Background(), w.request(block(n), c, p, g))
	must(t, err)
	defer l.Release()
	must(t, w.same(l.Frames(), w.record(block(n), c)))
	w.settle(t)
}

// same compares frames with a record.
func (w *world) same(frames []*frame.Lease, want arrow.RecordBatch) error {
	defer want.Release()
	var from int64
	for _, f := range frames {
		got := f.Batch()
		part := want.NewSlice(from, from+got.NumRows())
		from += got.NumRows()
		if !array.RecordEqual(got, part) {
			return fmt.Errorf("rows from %d are\n%v\nnot\n%v", from-got.NumRows(), got, part)
		}
		part.Release()
	}
	if from != want.NumRows() {
		return fmt.Errorf("%d rows of %d", from, want.NumRows())
	}
	return nil
}

// fill loads blocks.
func (w *world) fill(t fataler, from, to int, c *cache.Columns, p *cache.Plan) {
	t.Helper()
	for n := from; n < to; n++ {
		w.get(t, n, c, p)
	}
}

// folderOf makes a directory on a disk that is memory, if there is one: what is tested there is not how long a disk takes.
func folderOf(t fataler) (dir string, remove func()) {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "disk")
	if err != nil {
		dir, err = os.MkdirTemp("", "disk")
	}
	must(t, err)
	return dir, func() { _ = os.RemoveAll(dir) }
}

// inMemory is folderOf for a test.
func inMemory(t *testing.T) string {
	dir, remove := folderOf(t)
	t.Cleanup(remove)
	return dir
}

// settle waits until nothing is to be written.
func (w *world) settle(t fataler) {
	t.Helper()
	<-w.tier.found
	for deadline := time.Now().Add(20 * time.Second); w.tier.Stats().Waiting > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still writing: %+v", w.tier.Stats())
		}
	}
}

// files lists the directory's files without the lock.
func files(t fataler, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, folder))
	must(t, err)
	for _, e := range entries {
		if e.Name() != lockName {
			names = append(names, e.Name())
		}
	}
	return names
}

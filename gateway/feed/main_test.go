package feed

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"go.uber.org/goleak"

	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/cache"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

// corpus is the folder of data sets that pyarrow wrote, or why there is none.
var corpus, noCorpus string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		_ = flag.Set("rapid.checks", "40") // each is several streams: a few seconds for all
	}
	dir, err := os.MkdirTemp("", "feed")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	python := os.Getenv("HEADRACE_PYTHON")
	if python == "" {
		python = filepath.Join("..", "..", ".venv", "bin", "python")
		if _, err := os.Stat(python); err != nil {
			noCorpus = "no Python with pyarrow: set HEADRACE_PYTHON"
		}
	}
	if noCorpus == "" {
		if out, err := exec.Command(python, "testdata/make.py", dir).CombinedOutput(); err != nil {
			panic(fmt.Sprintf("%v\n%s", err, out))
		}
		corpus = dir
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// fataler is what both testing.T and rapid.T offer.
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

// rig is a feed over the corpus with memory of its own.
type rig struct {
	*Feed
	store  *storage.Store
	pool   *frame.Pool
	ledger *budget.Ledger
	cache  *cache.Cache
	forget func() error // closes it

	mu      sync.Mutex
	decoded map[string]int64          // rows by object
	opened  int                       // segments
	reading atomic.Int64              // blocks that are being decoded
	slow    func(ctx context.Context) // called before every decoding
}

func newRig(t fataler, limit int64) *rig { return newKeepingRig(t, limit, nothing) }

func newKeepingRig(t fataler, limit, keeps int64) *rig {
	t.Helper()
	if noCorpus != "" {
		panic(noCorpus)
	}
	r := &rig{
		pool: frame.NewPool(frame.Options{Poison: true}), ledger: budget.New(budget.Options{Limit: limit}),
		decoded: map[string]int64{},
	}
	var err error
	r.store, err = storage.New(context.Background(), storage.Options{
		Mounts: []storage.Mount{{URL: corpus, Tree: true}}, Pool: r.pool, Refresh: time.Hour,
		Events: storage.Events{Decode: r.count, Load: r.load},
	})
	must(t, err)
	r.remember(t, keeps)
	return r
}

// account begins anew with another ledger.
func (r *rig) account(t fataler, o budget.Options, keeps int64) {
	t.Helper()
	must(t, r.forget())
	r.ledger = budget.New(o)
	r.remember(t, keeps)
}

// nothing is too little for any block to be kept.
const nothing = 1

// remember makes a feed with a cache that keeps so many bytes; 0: what nobody else needs.
func (r *rig) remember(t fataler, keeps int64) {
	t.Helper()
	var err error
	r.cache, err = cache.New(cache.Options{Ledger: r.ledger, Pool: r.pool, Limit: keeps})
	must(t, err)
	r.forget = sync.OnceValue(r.cache.Close)
	forget := r.forget
	if test, ok := t.(interface{ Cleanup(do func()) }); ok {
		test.Cleanup(func() { _ = forget() }) // what was drawn may not do
	}
	r.Feed = New(r.store, r.pool, r.ledger, r.cache, Decoders{})
}

func (r *rig) count(ctx context.Context, object string, rows int64) (context.Context, func(int64, error)) {
	r.mu.Lock()
	r.decoded[object] += rows
	slow := r.slow
	r.mu.Unlock()
	r.reading.Add(1)
	if slow != nil {
		slow(ctx)
	}
	return ctx, func(int64, error) { r.reading.Add(-1) }
}

func (r *rig) load(ctx context.Context, _ string, _ int) (context.Context, func(error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opened++
	return ctx, func(error) {}
}

func (r *rig) rows() (n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rows := range r.decoded {
		n += rows
	}
	return n
}

// close checks that nothing is left.
func (r *rig) close(t fataler) {
	t.Helper()
	if s := r.cache.Stats(); len(r.plans) != 0 || s.Leased != 0 || r.line.Load() != 0 {
		t.Fatalf("left: %d plans, %d blocks, %d in line", len(r.plans), s.Leased, r.line.Load())
	}
	must(t, r.forget())
	must(t, r.store.Close())
	must(t, r.pool.Close())
	if st := r.ledger.Stats(); st.Reserved != 0 || len(st.Used) != 0 || st.Grants != 0 || st.Waiting != 0 {
		t.Fatalf("memory left: %+v", st)
	}
}

func need(t testing.TB) {
	t.Helper()
	if noCorpus != "" {
		t.Skip(noCorpus)
	}
}

// request is what the tests ask for, of all streams together.
type request struct {
	dataset string
	plan    sampler.Plan // of it shuffle, window, groups, seed, split
	cut     sampler.Cut
	ranks   int64
	workers int64
	columns []string
	rowID   bool
}

// walk makes the walk of a stream, as a gateway does.
func (r *rig) walk(t fataler, q request) Walk {
	t.Helper()
	w, err := r.tryWalk(t, q)
	must(t, err)
	return w
}

// tryWalk returns the error of an order that cannot be cut like that.
func (r *rig) tryWalk(t fataler, q request) (Walk, error) {
	t.Helper()
	snap, err := r.store.Snapshot(context.Background(), q.dataset, "")
	must(t, err)
	paths := make([][]string, len(q.columns))
	for i, c := range q.columns {
		paths[i] = []string{c}
	}
	projection, err := schema.Project(snap.Schema, paths)
	must(t, err)
	q.plan.Snapshot = snap.ID
	for i := range snap.Shards {
		q.plan.Shards = append(q.plan.Shards, i)
	}
	q.plan.Groups = max(q.plan.Groups, 1)
	order, err := sampler.NewOrder(q.plan, layout(snap))
	must(t, err)
	schedule, err := sampler.NewSchedule(order, q.cut)
	if err != nil {
		return Walk{}, err
	}
	hash := q.plan.Hash()
	return Walk{
		Name: fmt.Sprintf("%x%s", hash, schema.Fingerprint(projection.Schema)), Plan: q.plan, Snapshot: snap, Blocks: snap.Blocks(nil),
		Projection: projection, Order: order, Schedule: schedule, Join: q.cut.Batch > 0, RowID: q.rowID,
		Stream: sampler.Stream{Ranks: max(q.ranks, 1), Workers: max(q.workers, 1)},
	}, nil
}

// streams are the walks of all ranks and workers.
func streams(w Walk) (all []Walk) {
	for w.Stream.Rank = range w.Stream.Ranks {
		for w.Stream.Worker = range w.Stream.Workers {
			all = append(all, w)
		}
	}
	return all
}

// most is the memory that the hungriest stream of a walk asks for when it comes first.
func (r *rig) most(t fataler, w Walk) (n int64) {
	t.Helper()
	p := newPlan(r.Feed, planKey{}, w)
	defer p.close()
	for _, w := range streams(w) {
		s, err := newStream(p, w)
		must(t, err)
		if n = max(n, s.own()); s.more() {
			n = max(n, s.own()+p.leading(s.place.Epoch, math.MaxInt64))
		}
	}
	return n
}

func layout(snap *snapshot.Snapshot) []sampler.Shard {
	var all []sampler.Shard
	for i, sh := range snap.Shards {
		out := sampler.Shard{Identity: sh.Identity(), Row: snap.FirstRow(i)}
		for _, seg := range sh.Segments {
			out.Segments = append(out.Segments, sampler.Segment{Rows: seg.Rows, Blocks: seg.Blocks()})
		}
		all = append(all, out)
	}
	return all
}

// share is the rows of a walk's stream in a step, by the sampler's word, and how many of them are padded.
func share(w Walk, step sampler.Step) (rows []int64, padded int64) {
	e := w.Order.Epoch(step.Epoch)
	opened := map[place]*sampler.Window{} // a share may be many runs of a row each
	for run := range e.Runs(step, w.Stream.Rank, w.Stream.Ranks) {
		at := place{step.Epoch, run.Span, run.Window}
		window := opened[at]
		if window == nil {
			window = e.Open(run.Span, run.Window)
			opened[at] = window
		}
		refs := make([]sampler.Ref, run.To-run.From)
		window.Locate(run.From, refs)
		for _, ref := range refs {
			rows = append(rows, window.Pieces()[ref.Piece].Row+ref.Row)
			if run.Padded {
				padded++
			}
		}
	}
	return rows, padded
}

// text is what column text holds in a row of the data sets that pyarrow made.
func text(row int64) string { return strings.Repeat(fmt.Sprintf("row %d", row), 1+int(row%3)) }

// verify compares a batch with the rows it must have.
func verify(b *Batch, want []int64) error {
	at := 0
	for _, p := range b.Pieces {
		n := int(p.Record.NumRows())
		if at+n > len(want) {
			return fmt.Errorf("step %d: more than %d rows", b.Step, len(want))
		}
		if err := verifyRecord(p.Record, want[at:at+n]); err != nil {
			return fmt.Errorf("step %d: %w", b.Step, err)
		}
		at += n
	}
	if at != len(want) || b.Rows != int64(at) {
		return fmt.Errorf("step %d: %d rows (%d by its own word), want %d", b.Step, at, b.Rows, len(want))
	}
	return nil
}

func verifyRecord(record arrow.RecordBatch, want []int64) error {
	for c, f := range record.Schema().Fields() {
		for i, row := range want {
			ok := true
			switch f.Name {
			case "id", RowIDColumn:
				ok = record.Column(c).(*array.Int64).Value(i) == row
			case "text":
				if record.Column(c).(*array.String).ValueLen(i) == 40_000 { // of the liars
					ok = record.Column(c).(*array.String).Value(i)[0] == byte('a'+row%3)
					break
				}
				col := record.Column(c).(*array.String)
				ok = col.IsNull(i) == (row%11 == 0) && (col.IsNull(i) || col.Value(i) == text(row))
			case "bytes":
				value := record.Column(c).(*array.Binary).Value(i)
				ok = len(value) == 40_000 && value[0] == byte('a'+row%3) && value[39_999] == value[0]
			case "series":
				from, to := record.Column(c).(*array.List).ValueOffsets(i)
				values := record.Column(c).(*array.List).ListValues().(*array.Int8)
				ok = to-from == 40_000 && values.Value(int(from)) == int8(row%3) && values.Value(int(to-1)) == int8(row%3)
			case "list":
				from, to := record.Column(c).(*array.List).ValueOffsets(i)
				ok = to-from == row%4
			}
			if !ok {
				return fmt.Errorf("column %q: %s at %d is not of row %d", f.Name, record.Column(c).ValueStr(i), i, row)
			}
		}
	}
	return nil
}

// rowIDs is the column of row numbers.
func rowIDs(b *Batch) (ids []int64) {
	for _, p := range b.Pieces {
		ids = append(ids, p.Record.Column(int(p.Record.NumCols())-1).(*array.Int64).Int64Values()...)
	}
	return ids
}

// eventually waits for a condition.
func eventually(t fataler, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		if ok() {
			return
		}
		runtime.Gosched()
		time.Sleep(time.Millisecond)
	}
	t.Fatal("in vain: " + what)
}

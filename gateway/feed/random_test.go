package feed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/cache"
)

// drawRequest draws any request on a data set of so many rows.
func drawRequest(t *rapid.T) request {
	q := request{
		dataset: rapid.SampledFrom([]string{"segments", "batches", "batches", "long", "one"}).Draw(t, "dataset"),
		ranks:   rapid.SampledFrom([]int64{1, 1, 2, 3, 7}).Draw(t, "ranks"),
		workers: rapid.SampledFrom([]int64{1, 1, 2, 3}).Draw(t, "workers"),
		columns: rapid.SampledFrom([][]string{{"id", "text"}, {"list", "id"}, {"id"}}).Draw(t, "columns"),
		rowID:   rapid.Bool().Draw(t, "row id"),
	}
	q.plan.Shuffle = sampler.Shuffle(rapid.IntRange(0, 2).Draw(t, "shuffle"))
	if q.plan.Shuffle != sampler.ShuffleNone {
		q.plan.Seed = rapid.Uint64().Draw(t, "seed")
		q.plan.Groups = rapid.Int64Range(1, 4).Draw(t, "groups")
	}
	if q.plan.Shuffle == sampler.ShuffleWindow {
		q.plan.WindowBlocks = rapid.Int64Range(1, 6).Draw(t, "window")
	}
	if rapid.IntRange(0, 3).Draw(t, "split") == 0 {
		from := rapid.Uint32Range(0, 9000).Draw(t, "from")
		q.plan.Split = &sampler.Split{Seed: 3, From: from, To: rapid.Uint32Range(from+1000, 10_000).Draw(t, "to")}
	}
	q.cut.Batch = rapid.SampledFrom([]int64{16, 64, 100, 500, 3000}).Draw(t, "batch")
	if q.plan.Shuffle == sampler.ShuffleNone && q.ranks == 1 && rapid.Bool().Draw(t, "by blocks") {
		q.cut.Batch = 0
	}
	q.cut.Tail = sampler.Tail(rapid.IntRange(0, 2).Draw(t, "tail"))
	q.cut.Start.Epoch = rapid.Int64Range(0, 2).Draw(t, "epoch")
	q.cut.End = q.cut.Start.Epoch + rapid.Int64Range(1, 2).Draw(t, "epochs")
	if rapid.IntRange(0, 5).Draw(t, "endless") == 0 {
		q.cut.End = sampler.Endless
	}
	return q
}

// drawWalk draws a request, the place to begin, and what was already read.
func drawWalk(t *rapid.T, r *rig) Walk {
	q := drawRequest(t)
	w, err := r.tryWalk(t, q)
	if errors.Is(err, sampler.ErrShort) {
		q.cut.Tail = sampler.Keep
		w, err = r.tryWalk(t, q)
	}
	must(t, err)
	if rapid.Bool().Draw(t, "from a start") {
		q.cut.Start.Rows = rapid.Int64Range(0, max(w.Order.Rows()-1, 0)).Draw(t, "start")
		w = r.walk(t, q)
	}
	if n := w.Schedule.Count(); n > 0 && rapid.IntRange(0, 3).Draw(t, "after") == 0 {
		w.First = rapid.Int64Range(0, min(n, 10)).Draw(t, "first")
	}
	return w
}

// habits are how a client reads: how long it keeps each batch, and when it goes.
type habits struct {
	keep  time.Duration // each batch
	queue int           // batches that it still has when it asks for the next one
	leave int64         // after so many steps
	abort time.Duration // 0: never
}

func drawHabits(t *rapid.T, w Walk) habits {
	h := habits{leave: 40, queue: rapid.IntRange(0, queued).Draw(t, "queue")}
	if n := w.Schedule.Count(); n != sampler.Endless && n < 400 {
		h.leave = n + 1 // to see the end
	}
	switch rapid.IntRange(0, 5).Draw(t, "habits") {
	case 0:
		h.keep = 3 * time.Millisecond
	case 1:
		h.leave = rapid.Int64Range(0, 5).Draw(t, "leave")
	case 2:
		h.abort = time.Duration(rapid.IntRange(1, 20).Draw(t, "abort")) * time.Millisecond
	}
	return h
}

// ends tells whether such a client reads a stream to its end.
func (h habits) ends(w Walk) bool {
	n := w.Schedule.Count()
	return n != sampler.Endless && h.leave > n
}

// read reads a stream to its end, or as its client's habits are, and compares every batch with the sampler's word.
func (r *rig) read(ctx context.Context, w Walk, h habits) (receipts []*Batch, err error) {
	if h.abort > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.abort)
		defer cancel()
	}
	s, err := r.Open(ctx, w)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	var sum sampler.Sum
	var queue []*Batch
	defer func() {
		for _, b := range queue {
			b.Release()
		}
	}()
	for number := w.Stream.Next(w.First); h.leave > 0; number, h.leave = number+w.Stream.Workers, h.leave-1 {
		b, err := s.Next(ctx)
		if err == io.EOF && number >= w.Schedule.Count() && w.Schedule.Count() != sampler.Endless {
			return receipts, nil
		}
		if err == nil {
			err = r.within()
		}
		if err != nil {
			return nil, err
		}
		sum = sum.Add(b.Sum)
		if err = check(w, number, b, sum); len(b.Pieces) != 1 {
			err = fmt.Errorf("%d pieces", len(b.Pieces))
		}
		time.Sleep(h.keep)
		if err == nil && h.keep > 0 {
			rows, _ := share(w, w.Schedule.Step(number))
			err = verify(b, rows) // it is still what it was
		}
		if queue = append(queue, b); len(queue) > h.queue {
			queue[0].Release()
			queue = queue[1:]
		}
		if err != nil {
			return nil, err
		}
		if b.Receipt != nil {
			receipts, sum = append(receipts, b), sampler.Sum{}
		}
	}
	return nil, nil
}

// within tells whether memory is below its limit at the moment.
func (r *rig) within() error {
	st, held := r.ledger.Stats(), r.pool.Stats()
	var used int64
	for _, n := range st.Used {
		used += n
	}
	if used > st.Limit || st.Reserved > st.Limit || held.Live+held.Mapped+held.Copied > st.Limit {
		return fmt.Errorf("more than the limit: %+v, %+v", st, held)
	}
	return nil
}

// check compares a batch, and the sum of those of its epoch, with the sampler's word.
func check(w Walk, number int64, b *Batch, sum sampler.Sum) error {
	step := w.Schedule.Step(number)
	rows, padded := share(w, step)
	if err := verify(b, rows); err != nil {
		return err
	}
	var want sampler.Sum
	for _, row := range rows[:int64(len(rows))-padded] {
		want = sampler.NewSummer(w.Snapshot.ID).AddRange(want, row, 1)
	}
	if b.Sum != want || b.Step != number || b.Epoch != step.Epoch || b.After != step.After {
		return fmt.Errorf("step %+v: batch %+v", step, b)
	}
	if final := w.Schedule.Final(step, w.Stream.Workers); final != (b.Receipt != nil) || final && b.Receipt.Sum != sum {
		return fmt.Errorf("step %+v: receipt %+v, sum %v", step, b.Receipt, sum)
	}
	return nil
}

// accounts are the receipts of all streams of a job, added up by epoch.
type accounts struct {
	mu      sync.Mutex
	streams int // that came to the end
	rows    map[int64]int64
	sums    map[int64]sampler.Sum
}

func (a *accounts) add(receipts []*Batch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.streams++
	for _, b := range receipts {
		a.rows[b.Epoch] += b.Receipt.Rows - b.Receipt.Padded
		a.sums[b.Epoch] = a.sums[b.Epoch].Add(b.Receipt.Sum)
	}
}

// verify compares the receipts of all streams with the rows of the plan's steps, from the job's first one on.
func (a *accounts) verify(ctx context.Context, w Walk) error {
	if n := w.Schedule.Count(); n == sampler.Endless || w.First == n || a.streams < len(streams(w)) {
		return nil
	}
	first := w.Schedule.Step(w.First)
	for epoch := first.Epoch; epoch < w.Schedule.End(); epoch++ {
		from, to := w.Schedule.Range(epoch)
		if epoch == first.Epoch {
			from = first.From
		}
		want, err := w.Order.Epoch(epoch).Sum(ctx, w.Snapshot.ID, from, to)
		if err != nil || a.sums[epoch] != want || a.rows[epoch] != to-from {
			return fmt.Errorf("epoch %d: the receipts have %d rows, sum %v; the plan %d, %v (%v)", epoch, a.rows[epoch], a.sums[epoch], to-from, want, err)
		}
	}
	return nil
}

// Whatever is asked for, by however many streams at a time, with hardly more memory than the hungriest needs alone:
// every stream gets its rows in their order, and in the end everything is given back.
func TestEveryPlan(t *testing.T) {
	need(t)
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		r := newRig(t, 0)
		jobs := make([]Walk, rapid.IntRange(1, 2).Draw(t, "jobs"))
		var limit int64
		for i := range jobs {
			jobs[i] = drawWalk(t, r)
			limit = max(limit, r.most(t, jobs[i]))
		}
		limit += 1 << 20 // what blocks are found to take is asked for from then on
		const large = 4 << 20
		memory := budget.Options{Limit: limit + large + rapid.SampledFrom([]int64{0, 0, 8 << 20, 256 << 20}).Draw(t, "spare"), Large: large}
		r.account(t, memory, rapid.SampledFrom([]int64{nothing, 1 << 20, 0}).Draw(t, "keeps"))
		must(t, r.cache.SetPolicy(rapid.SampledFrom(cache.Policies).Draw(t, "policy")))
		for range rapid.IntRange(1, 2).Draw(t, "rounds") { // the second one finds what the first has left
			r.readAll(ctx, t, jobs)
		}
		r.close(t)
	})
}

// readAll reads all streams of jobs at a time, and adds up their receipts.
func (r *rig) readAll(ctx context.Context, t *rapid.T, jobs []Walk) {
	var group errgroup.Group
	all := make([]accounts, len(jobs))
	for i, job := range jobs {
		all[i].rows, all[i].sums = map[int64]int64{}, map[int64]sampler.Sum{}
		for _, w := range streams(job) {
			h := drawHabits(t, w)
			group.Go(func() error {
				receipts, err := r.read(ctx, w, h)
				if h.abort > 0 && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, budget.ErrTimeout)) {
					return nil
				}
				if err == nil && h.ends(w) {
					all[i].add(receipts)
				}
				return err
			})
		}
	}
	must(t, group.Wait())
	for i, job := range jobs {
		must(t, all[i].verify(ctx, job))
	}
}

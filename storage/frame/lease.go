package frame

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/headrace/headrace/storage/budget"
)

// frame is one record batch in one region, or in a mapped part of a file. It
// lives as long as any of its leases.
type frame struct {
	pool   *Pool
	batch  arrow.RecordBatch
	region *Region // nil: mapped
	mapped *part   // nil: in a region
	leases atomic.Int64

	mu    sync.Mutex      // guards who pays
	heirs []*budget.Grant // of the live leases that name one
}

// Lease is one holder's claim on a frame. Each holder takes its own with
// Share and gives it back with Release, once.
type Lease struct {
	frame    *frame
	view     arrow.RecordBatch // nil: all of the frame's batch; never released, for slices of it may outlive the lease
	heir     *budget.Grant     // nil: none
	released atomic.Bool
}

// Publish makes a frame of batch, whose buffers must all lie in r, and returns
// its first lease. It takes over the caller's claims on both; neither may change afterwards.
func (p *Pool) Publish(batch arrow.RecordBatch, r *Region) *Lease {
	return p.publish(&frame{pool: p, batch: batch, region: r})
}

// publish counts a new frame and returns its first lease.
func (p *Pool) publish(f *frame) *Lease {
	p.mu.Lock()
	p.stats.Frames++
	p.mu.Unlock()
	f.leases.Store(1)
	return f.lease()
}

// lease makes a lease that is already counted in f.leases.
func (f *frame) lease() *Lease {
	l := &Lease{frame: f}
	f.pool.mu.Lock()
	f.pool.stats.Leases++
	f.pool.mu.Unlock()
	f.pool.traces.add(l)
	return l
}

// Batch returns the frame's batch. It must not be used after Release of this
// lease, nor retained: arrow's own counts do not keep the memory.
func (l *Lease) Batch() arrow.RecordBatch {
	l.mustLive()
	if l.view != nil {
		return l.view
	}
	return l.frame.batch
}

// Select returns another lease on the same frame, which shows only some of the
// columns that this one shows, in any order, under a schema of theirs.
func (l *Lease) Select(s *arrow.Schema, columns []int) *Lease {
	batch := l.Batch()
	arrays := make([]arrow.Array, len(columns))
	for i, c := range columns {
		arrays[i] = batch.Column(c)
	}
	selected := l.Share()
	selected.view = array.NewRecordBatch(s, arrays, batch.NumRows())
	return selected
}

// Mapped tells whether the frame lies in a file, and costs no memory while nobody writes to that.
func (l *Lease) Mapped() bool { return l.frame.mapped != nil }

// Alone tells whether nobody else has a lease on the frame.
func (l *Lease) Alone() bool { return l.frame.leases.Load() == 1 }

// Bytes returns the memory that the frame holds, as charged.
func (l *Lease) Bytes() int64 {
	if m := l.frame.mapped; m != nil {
		return m.size
	}
	return int64(len(l.frame.region.mem))
}

// Size returns the bytes that the frame's buffers fill, without what is charged for rounding.
func (l *Lease) Size() int64 {
	if m := l.frame.mapped; m != nil {
		return m.size
	}
	return int64(l.frame.region.n)
}

// Share returns another lease on the same frame, which shows the same and has the same heir.
func (l *Lease) Share() *Lease { return l.ShareFor(l.heir) }

// ShareFor is Share with an heir of its own: it pays for the frame, if it has the memory, when who did gives that up
// while this lease, or one that was shared from it, still lives.
func (l *Lease) ShareFor(heir *budget.Grant) *Lease {
	l.mustLive()
	for {
		n := l.frame.leases.Load()
		if n == 0 {
			panic("frame: share of a frame that is gone")
		}
		if l.frame.leases.CompareAndSwap(n, n+1) {
			shared := l.frame.lease()
			shared.view, shared.heir = l.view, heir
			l.frame.name(heir)
			return shared
		}
	}
}

// Release ends the claim; the last one frees the frame's memory. Releasing
// again does nothing, from any goroutine.
func (l *Lease) Release() {
	if l.released.Swap(true) {
		return
	}
	f := l.frame
	f.pool.traces.remove(l)
	f.forget(l.heir)
	last := f.leases.Add(-1) == 0
	if last {
		f.free()
	}
	f.pool.mu.Lock()
	f.pool.stats.Leases--
	if last {
		f.pool.stats.Frames--
	}
	f.pool.mu.Unlock()
}

// Pay lets another grant pay for the frame from now on, if it has the memory, and
// tells whether it does.
func (l *Lease) Pay(to *budget.Grant) bool {
	l.mustLive()
	l.frame.mu.Lock()
	defer l.frame.mu.Unlock()
	return l.frame.pay(to)
}

// Bequeath is Release by whoever has paid so far: if others keep the frame, one of
// their heirs pays for it from now on, and the next one when that keeps it no more.
// While none has the memory, who paid still does.
func (l *Lease) Bequeath() {
	if !l.released.Load() {
		l.frame.mu.Lock()
		l.frame.inherit()
		l.frame.mu.Unlock()
	}
	l.Release()
}

// pay lets a grant pay, if it can. The lock is held here and below, where nothing else is said.
func (f *frame) pay(to *budget.Grant) bool {
	if f.mapped != nil {
		return f.mapped.pay(to)
	}
	return f.region.pay(to)
}

func (f *frame) payer() *budget.Grant {
	if f.mapped != nil {
		return f.mapped.grant
	}
	return f.region.grant
}

// inherit lets the first heir pay that can.
func (f *frame) inherit() {
	for _, heir := range f.heirs {
		if f.pay(heir) {
			return
		}
	}
}

// name counts one more lease of an heir's. It takes the lock.
func (f *frame) name(heir *budget.Grant) {
	if heir == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heirs = append(f.heirs, heir)
}

// forget counts one less. An heir that keeps the frame no more does not go on paying for others that do. It takes the lock.
func (f *frame) forget(heir *budget.Grant) {
	if heir == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.Index(f.heirs, heir)
	f.heirs = slices.Delete(f.heirs, i, i+1)
	if !slices.Contains(f.heirs, heir) && f.payer() == heir {
		f.inherit()
	}
}

// free gives the memory back; nobody can reach it any more.
func (f *frame) free() {
	f.batch.Release()
	if f.mapped != nil {
		f.mapped.free()
		return
	}
	f.region.Free()
}

// mustLive panics on a released lease: its memory may by now hold other people's rows.
func (l *Lease) mustLive() {
	if l.released.Load() {
		panic("frame: use of a released lease")
	}
}

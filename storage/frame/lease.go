package frame

import (
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
}

// Lease is one holder's claim on a frame. Each holder takes its own with
// Share and gives it back with Release, once.
type Lease struct {
	frame    *frame
	view     arrow.RecordBatch // nil: all of the frame's batch; never released, for slices of it may outlive the lease
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

// Share returns another lease on the same frame, which shows the same.
func (l *Lease) Share() *Lease {
	l.mustLive()
	for {
		n := l.frame.leases.Load()
		if n == 0 {
			panic("frame: share of a frame that is gone")
		}
		if l.frame.leases.CompareAndSwap(n, n+1) {
			shared := l.frame.lease()
			shared.view = l.view
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
// tells whether it does. While it runs, nobody else may change who pays.
func (l *Lease) Pay(to *budget.Grant) bool {
	l.mustLive()
	if m := l.frame.mapped; m != nil {
		return m.pay(to)
	}
	return l.frame.region.pay(to)
}

// Bequeath is Release, but if others keep the frame, the heir pays for it from
// now on if it has the memory. While it runs, nobody else may change who pays.
func (l *Lease) Bequeath(heir *budget.Grant) {
	if !l.released.Load() && !l.Alone() {
		l.Pay(heir)
	}
	l.Release()
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

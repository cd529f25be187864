package gateway

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/headrace/headrace/storage/budget"
)

// flights knows the running streams, so that they can be counted, cancelled by their flight, and waited for. The zero
// value is ready.
type flights struct {
	mu      sync.Mutex
	running map[*running]struct{}
	idle    chan struct{} // closed when the last one ends; nil while nobody waits
}

// running is one stream on its way.
type running struct {
	flight, tenant string
	cancel         context.CancelCauseFunc
	grant          atomic.Pointer[budget.Grant] // of its batches; nil: it waits for memory
	shared         atomic.Pointer[budget.Grant] // of its ring; nil: it has none
}

// add registers a stream; the function it returns takes it out again.
func (f *flights) add(r *running) (done func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running == nil {
		f.running = map[*running]struct{}{}
	}
	f.running[r] = struct{}{}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.running, r)
		if len(f.running) == 0 && f.idle != nil {
			close(f.idle)
			f.idle = nil
		}
	}
}

// cancel ends the streams of a tenant's flight and says how many there were. A flight without a name cannot be meant.
func (f *flights) cancel(tenant, flight string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for r := range f.running {
		if flight != "" && r.flight == flight && r.tenant == tenant {
			r.cancel(errCancelled)
			n++
		}
	}
	return n
}

// count returns how many streams of a tenant run.
func (f *flights) count(tenant string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for r := range f.running {
		if r.tenant == tenant {
			n++
		}
	}
	return n
}

// memory returns how many bytes the batches of a tenant's streams have, and how many of these wait for memory.
func (f *flights) memory(tenant string) (batches int64, waiting int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.running {
		if r.tenant != tenant {
			continue
		}
		if g := r.grant.Load(); g == nil {
			waiting++
		} else {
			batches += g.Used()
		}
		if g := r.shared.Load(); g != nil {
			batches += g.Used()
		}
	}
	return batches, waiting
}

// wait returns when no stream runs or ctx ends.
func (f *flights) wait(ctx context.Context) {
	f.mu.Lock()
	if len(f.running) == 0 {
		f.mu.Unlock()
		return
	}
	if f.idle == nil {
		f.idle = make(chan struct{})
	}
	idle := f.idle
	f.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

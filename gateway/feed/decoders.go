package feed

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/headrace/headrace/storage"
)

// Decoders says how many blocks are decoded at a time. What is zero is filled in.
type Decoders struct {
	Min         int     // the fewest decoders, and how many there are at first; as many as processors may be used
	Max         int     // the most; four times as many as processors, for those that wait for disks
	GrowAt      int     // so many blocks that wait bring another decoder while processors are idle; 128
	ShrinkBelow float64 // when less of the processors is used than this part, a decoder goes; 0.3
}

func (d Decoders) withDefaults() Decoders {
	processors := runtime.GOMAXPROCS(0) // which heeds the quota of a container
	if d.Min <= 0 {
		d.Min = processors
	}
	if d.Max <= 0 {
		d.Max = 4 * processors
	}
	if d.GrowAt <= 0 {
		d.GrowAt = 128
	}
	if d.ShrinkBelow <= 0 {
		d.ShrinkBelow = .3
	}
	d.Max = max(d.Max, d.Min)
	return d
}

// Decoding is what the decoders do at one moment.
type Decoding struct {
	Decoders int // there are, for all tenants
	Busy     int // blocks that are being decoded; more than there are decoders when those that waited for a store go on
	Waiting  int // blocks that wait for a decoder
}

// pool is the decoders of a process. Plans that have blocks waiting take turns. Who waits for a store meanwhile leaves the
// decoder to others, so that as many blocks as is good can be on their way while as many as there are processors for are
// decoded; when its bytes are there it goes on at once, since it holds memory.
type pool struct {
	Decoders
	now  func() time.Time
	used func() (time.Duration, bool) // processor time of the process

	mu      sync.Mutex
	size    int
	busy    int
	waiting int
	lines   []*line // of those who wait; the first is served next
	tenants map[string]*tally
	seen    struct {
		at   time.Time
		used time.Duration
	}
}

// line is the blocks of a plan that wait, those that came first first.
type line struct {
	of     *plan
	blocks []*waiting
}

// waiting is a block that waits.
type waiting struct {
	tally *tally
	ready chan struct{} // closed when it is served
}

// tally is how many blocks of a tenant are being decoded, and wait.
type tally struct{ busy, waiting int }

func newPool(d Decoders) *pool {
	d = d.withDefaults()
	return &pool{Decoders: d, now: time.Now, used: processorTime, size: d.Min, tenants: map[string]*tally{}}
}

func (d *pool) stats(tenant string) Decoding {
	d.mu.Lock()
	defer d.mu.Unlock()
	if tenant == "" {
		return Decoding{Decoders: d.size, Busy: d.busy, Waiting: d.waiting}
	}
	t := d.tally(tenant)
	return Decoding{Decoders: d.size, Busy: t.busy, Waiting: t.waiting}
}

// tally finds that of a tenant. The lock is held here and in all below, but where it says so.
func (d *pool) tally(tenant string) *tally {
	t := d.tenants[tenant]
	if t == nil {
		t = &tally{}
		d.tenants[tenant] = t
	}
	return t
}

// enter waits for a decoder for a block of a plan. Unless it fails, leave must follow. The lock is not held.
func (d *pool) enter(ctx context.Context, p *plan, tenant string) (*turn, error) {
	d.mu.Lock()
	d.adapt()
	t := d.tally(tenant)
	if d.busy < d.size {
		d.take(t)
		d.mu.Unlock()
		return &turn{pool: d, tally: t}, nil
	}
	w := &waiting{t, make(chan struct{})}
	l := d.line(p)
	l.blocks = append(l.blocks, w)
	t.waiting++
	d.waiting++
	d.mu.Unlock()
	select {
	case <-w.ready:
	case <-ctx.Done():
		d.mu.Lock()
		quit := d.quit(w)
		d.mu.Unlock()
		if quit {
			return nil, ctx.Err()
		} // else it was given a decoder meanwhile
	}
	return &turn{pool: d, tally: t}, nil
}

// take counts one more block that is being decoded.
func (d *pool) take(t *tally) {
	t.busy++
	d.busy++
}

// line finds the line of a plan, or makes one that is served last.
func (d *pool) line(p *plan) *line {
	i := slices.IndexFunc(d.lines, func(l *line) bool { return l.of == p })
	if i < 0 {
		i = len(d.lines)
		d.lines = append(d.lines, &line{of: p})
	}
	return d.lines[i]
}

// quit takes a block out of its line, and tells whether it was there.
func (d *pool) quit(w *waiting) bool {
	for i, l := range d.lines {
		at := slices.Index(l.blocks, w)
		if at < 0 {
			continue
		}
		d.waiting--
		w.tally.waiting--
		if l.blocks = slices.Delete(l.blocks, at, at+1); len(l.blocks) == 0 {
			d.lines = slices.Delete(d.lines, i, i+1)
		}
		return true
	}
	return false
}

// free gives back a decoder.
func (d *pool) free(t *tally) {
	d.busy--
	t.busy--
	d.adapt()
	d.serve()
}

// serve gives the decoders that are free to those who wait, plan by plan.
func (d *pool) serve() {
	for d.busy < d.size && len(d.lines) > 0 {
		l := d.lines[0]
		w := l.blocks[0]
		d.quit(w)
		if len(l.blocks) > 0 { // others first
			d.lines = append(d.lines[1:], l)
		}
		d.take(w.tally)
		close(w.ready)
	}
}

const (
	// adaptEvery is how often the number of decoders changes at most.
	adaptEvery = 250 * time.Millisecond
	// usedUp is the part of the processors in use from which on more decoders would only share them.
	usedUp = .9
)

// adapt looks whether there should be more decoders, or fewer.
func (d *pool) adapt() {
	now := d.now()
	took := now.Sub(d.seen.at)
	if took < adaptEvery {
		return
	}
	used, known := d.used()
	load := float64(used-d.seen.used) / float64(took) / float64(runtime.GOMAXPROCS(0))
	first := d.seen.at.IsZero()
	d.seen.at, d.seen.used = now, used
	switch {
	case first || !known:
	case d.waiting >= d.GrowAt && load < usedUp:
		d.size = min(d.size+1, d.Max)
		d.serve()
	case d.waiting < d.GrowAt && load < d.ShrinkBelow:
		d.size = max(d.size-1, d.Min)
	}
}

// turn is a block's use of a decoder.
type turn struct {
	pool  *pool
	tally *tally
	mu    sync.Mutex
	out   int // reads that wait for the store, and other waiting
}

// under returns a context for the block's reads, which leave the decoder to others while they wait for a store.
func (t *turn) under(ctx context.Context) context.Context { return storage.Waiting(ctx, t.wait) }

// wait leaves the decoder to others until back is called.
func (t *turn) wait() (back func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.out++; t.out == 1 {
		t.leave()
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.out--; t.out == 0 {
			t.pool.mu.Lock()
			defer t.pool.mu.Unlock()
			t.pool.take(t.tally)
		}
	}
}

// leave gives the decoder back.
func (t *turn) leave() {
	t.pool.mu.Lock()
	defer t.pool.mu.Unlock()
	t.pool.free(t.tally)
}

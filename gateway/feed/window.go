package feed

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/storage"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/cache"
	"github.com/headrace/headrace/storage/frame"
)

// window is the blocks of one window, decoded for all streams that are in it.
type window struct {
	at     place
	epoch  *sampler.Epoch
	pieces []sampler.Piece
	bytes  int64 // that it will take, by the files' own word

	// guarded by plan.mu
	users int // streams that are in it or have it read ahead
	pins  int // those that copy out of it, or wait for it
	state state
	load  *load   // the last one
	payer *convoy // of it; nil: memory that was free
	lent  int64   // bytes that the cache pays for in place of the payer

	// set while it is ready; they do not change while it is pinned
	rows   *sampler.Window // finds rows; nil in stored order without a split
	blocks []*cache.Lease  // by piece
	tables charge
}

type state int

const (
	idle state = iota
	decoding
	ready
)

// load is one decoding of a window.
type load struct {
	done   chan struct{}
	cancel context.CancelFunc
	err    error // once done is closed
	payer  *convoy
	tenant string         // of the stream that asked for it
	modest bool           // takes as little memory as it can
	held   []*cache.Lease // until done
	wanted chan struct{}  // closed, with plan.mu held, once a stream waits for it or for memory

	store, decode atomic.Int64 // nanoseconds that blocks waited for the store, and for the decoder
}

// want has a load that was put off begin at once. The plan's lock is held.
func (l *load) want() {
	select {
	case <-l.wanted:
	default:
		close(l.wanted)
	}
}

// took counts what decoding a block took.
func (l *load) took(t storage.Took) {
	l.store.Add(int64(t.Store))
	l.decode.Add(int64(t.Decode))
}

// share divides what was waited for the load as its blocks did, which may be several at a time. What is left over was
// waited for blocks that others read.
func (l *load) share(wait time.Duration) (store, decode time.Duration) {
	s, d := float64(l.store.Load()), float64(l.decode.Load())
	part := float64(wait) / max(s+d, float64(wait), 1)
	return time.Duration(s * part), time.Duration(d * part)
}

// charge is memory on the Go heap that a grant pays for.
type charge struct {
	grant *budget.Grant
	bytes int64
}

func (c *charge) end() {
	if c.grant != nil {
		c.grant.CreditHeap(budget.Tables, c.bytes)
		*c = charge{}
	}
}

// use finds a window, or makes one that is still to be decoded, and counts one more user. It must be left.
func (p *plan) use(e *sampler.Epoch, at place) *window {
	p.mu.Lock()
	w := p.windows[at]
	if w != nil {
		w.users++
	}
	p.mu.Unlock()
	if w != nil {
		return w
	}
	fresh := &window{at: at, epoch: e, pieces: e.Pieces(at.span, at.window)}
	fresh.bytes = p.bytes(e, fresh.pieces)
	p.mu.Lock()
	defer p.mu.Unlock()
	if w = p.windows[at]; w == nil {
		w = fresh
		p.windows[at] = w
	}
	w.users++
	return w
}

// leave ends a stream's use of a window. After the last one's, its blocks are given back.
func (p *plan) leave(w *window) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.users--; w.users > 0 {
		return
	}
	delete(p.windows, w.at)
	switch w.state {
	case decoding:
		w.load.cancel() // which gives back what it has
	case ready:
		if !p.located() || !p.retire(w) {
			p.evict(w)
		}
	}
}

// retire gives back the blocks of a window beside the stream that has left it, after its lull, and tells whether it does:
// taking the pages of a large window of mapped files out of the process makes a stream wait. Where memory is scarce it is
// given back at once, for the next window to be read ahead. The lock is held.
func (p *plan) retire(w *window) bool {
	if s := p.feed.ledger.Stats(); s.Limit-s.Reserved < w.bytes {
		return false
	}
	if !slices.ContainsFunc(w.blocks, (*cache.Lease).Mapped) {
		return false
	}
	blocks := w.blocks
	w.blocks = nil
	p.evict(w)
	p.retiring++
	quiet, scarce := p.quiet(), p.scarce
	p.work.Go(func() {
		quiet.wait(p.ctx, scarce)
		for _, b := range blocks {
			b.Release()
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.retiring--
		p.notify()
	})
	return true
}

// pin keeps a window as it is, and tells whether it is decoded. Unless it is, that does nothing.
func (p *plan) pin(w *window) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.state != ready {
		return false
	}
	w.pins++
	return true
}

// unpin undoes pin. The lock is held.
func (p *plan) unpin(w *window) {
	if w.pins--; w.pins == 0 {
		p.offer(w)
		p.notify()
	}
}

// offer gives up a window beyond the convoys while streams wait to be admitted. The lock is held.
func (p *plan) offer(w *window) {
	if w.state == ready && w.pins == 0 && w.payer == nil && p.feed.line.Load() > 0 {
		p.evict(w)
	}
}

// evict gives back the blocks of a window that is ready. What was sliced of them and is not yet sent is paid for by the
// streams that send it. The lock is held.
func (p *plan) evict(w *window) {
	if w.payer != nil {
		w.payer.lent -= w.lent
	}
	w.state, w.payer, w.lent = idle, nil, 0
	for _, b := range w.blocks {
		if b != nil {
			b.Release()
		}
	}
	w.blocks, w.rows = nil, nil
	w.tables.end()
	p.notify()
}

// owes tells whether a convoy pays for any of a window that is ready. The lock is held.
func (w *window) owes(c *convoy) bool {
	if c == nil {
		return false
	}
	if w.payer == c {
		return true
	}
	for _, b := range w.blocks {
		if b.Payer() == c.grant {
			return true
		}
	}
	return false
}

// begin starts the decoding of a window that is idle, with the memory of a convoy, or of a grant that ends with the
// decoding: what it was charged stays charged until the frames are gone. It is told as part of the call that asked for
// it, but does not end with that, for others may wait for it. The lock is held.
func (p *plan) begin(call context.Context, w *window, payer *convoy, grant *budget.Grant, tenant string, modest bool) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(call))
	stop := context.AfterFunc(p.ctx, cancel)
	l := &load{done: make(chan struct{}), cancel: cancel, payer: payer, tenant: tenant, modest: modest, wanted: make(chan struct{})}
	w.state, w.payer, w.load = decoding, payer, l
	quiet := p.quiet()
	if payer != nil {
		payer.loads++
		grant = payer.grant
	}
	p.work.Go(func() {
		defer cancel()
		defer stop()
		quiet.wait(ctx, l.wanted)
		err := p.decode(ctx, w, grant)
		if payer == nil {
			grant.Close()
			p.lanes.sweep()
		}
		p.finish(w, l, err)
	})
}

// finish tells everybody how the decoding of a window has ended.
func (p *plan) finish(w *window, l *load, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.payer != nil {
		w.payer.loads--
	}
	l.err = err
	w.state = ready
	w.borrow()
	if err != nil || w.users == 0 {
		p.evict(w)
	} else {
		p.offer(w)
	}
	release(l.held)
	close(l.done)
	p.notify()
}

// borrow counts what the cache pays for in place of a convoy, which has to have as much to spare: the cache's memory may be
// wanted back. The lock is held.
func (w *window) borrow() {
	if w.payer == nil {
		return
	}
	for _, b := range w.blocks {
		if b != nil && b.Payer() == nil {
			w.lent += b.Bytes()
		}
	}
	w.payer.lent += w.lent
}

// frameAt finds the frame of a piece that holds a row of its block, and where it begins.
func (w *window) frameAt(piece int, row int64) (lease *frame.Lease, index int, start int64) {
	for i, l := range w.blocks[piece].Frames() {
		n := l.Batch().NumRows()
		if row < start+n {
			return l, i, start
		}
		start += n
	}
	panic(fmt.Sprintf("row %d of a block of %d", row, start))
}

// records lists the batches of a piece.
func (w *window) records(piece int) []arrow.RecordBatch {
	var all []arrow.RecordBatch
	for _, l := range w.blocks[piece].Frames() {
		all = append(all, l.Batch())
	}
	return all
}

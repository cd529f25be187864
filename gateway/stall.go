package gateway

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/headrace/headrace/gateway/codec"
	"github.com/headrace/headrace/gateway/shm"
)

// pulse tells whether a stream moves. The sender keeps it, the call's own goroutine looks at it.
type pulse struct {
	sending  atomic.Bool  // waits for the client
	sent     atomic.Int64 // messages
	progress atomic.Pointer[codec.Progress]
	ring     atomic.Pointer[shm.Ring]
}

// beats is a number that changes as long as the client takes what it is sent.
func (p *pulse) beats() int64 {
	n := p.sent.Load()
	if progress := p.progress.Load(); progress != nil {
		n += progress.Freed()
	}
	if ring := p.ring.Load(); ring != nil {
		n += ring.Told()
	}
	return n
}

// looksPerStall is how often, within the time that a stream may stand still, it is looked at.
const looksPerStall = 8

// endStalls ends a stream whose client takes nothing while others wait for memory, until ctx ends. What it holds is what
// they wait for; the client may come back with its cursor. Time during which nobody waits does not count.
func (s *Server) endStalls(ctx context.Context, p *pulse, end context.CancelCauseFunc) {
	if s.StallTimeout <= 0 {
		return
	}
	look := time.NewTicker(max(s.StallTimeout/looksPerStall, time.Millisecond))
	defer look.Stop()
	last, since := p.beats(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		if beats := p.beats(); beats != last || !p.sending.Load() {
			last, since = beats, time.Now()
			continue
		}
		waiting := s.Ledger.Waiting()
		if waiting.IsZero() {
			continue
		}
		if waiting.After(since) {
			since = waiting
		}
		if time.Since(since) >= s.StallTimeout {
			end(errStalled)
			s.hangUp(ctx, p.progress.Load())
			return
		}
	}
}

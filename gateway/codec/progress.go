package codec

import (
	"context"
	"sync/atomic"
)

// Progress tells how far gRPC is with the messages of one stream. It may be asked from any goroutine.
type Progress struct {
	freed atomic.Int64
	live  atomic.Int64
	none  chan struct{} // has an item whenever live has become zero
}

func newProgress() *Progress { return &Progress{none: make(chan struct{}, 1)} }

// Freed counts the parts of messages that gRPC has written or given up. While a client reads, it grows.
func (p *Progress) Freed() int64 { return p.freed.Load() }

// Wait waits until gRPC has let go of all messages that were sent.
func (p *Progress) Wait(ctx context.Context) error {
	for p.live.Load() > 0 {
		select {
		case <-p.none:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// A nil Progress counts nothing.

func (p *Progress) begin() {
	if p != nil {
		p.live.Add(1)
	}
}

func (p *Progress) free() {
	if p != nil {
		p.freed.Add(1)
	}
}

func (p *Progress) end() {
	if p == nil || p.live.Add(-1) > 0 {
		return
	}
	select {
	case p.none <- struct{}{}:
	default:
	}
}

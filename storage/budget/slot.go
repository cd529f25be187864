package budget

import (
	"context"
	"fmt"
	"slices"
)

// Large waits for the one large slot, in order of arrival, until ctx ends. The
// grant pays for decoding what outgrew its share; decoders have given back all
// that they hold before. Past the slot it grows like any other. The channel is
// closed when somebody else waits for the slot: then the grant is to be closed,
// and what is charged to it given back, after the block that is being decoded.
// Its holder waits for no other memory.
func (l *Ledger) Large(ctx context.Context) (g *Grant, wanted <-chan struct{}, err error) {
	if l.large == 0 {
		return nil, nil, fmt.Errorf("budget: there is no large slot: %w", ErrExhausted)
	}
	if ctx.Err() != nil {
		return nil, nil, refusal(ctx.Err(), l.large)
	}
	l.mu.Lock()
	w := &waiter{ready: make(chan struct{})}
	l.slots = append(l.slots, w)
	l.wantSlot()
	l.serve()
	l.mu.Unlock()
	if err := l.wait(ctx, w, &l.slots); err != nil {
		return nil, nil, refusal(err, l.large)
	}
	return w.grant, w.grant.revoked, nil
}

// All below runs under the ledger's lock.

// serveSlot gives the large slot to the first who waits for it, once no
// loan is left in it.
func (l *Ledger) serveSlot() {
	if l.holder != nil || len(l.slots) == 0 {
		return
	}
	if l.large > l.free() {
		l.revoke(l.large)
		return
	}
	w := l.slots[0]
	l.slots = slices.Delete(l.slots, 0, 1)
	l.open++
	l.holder = &Grant{ledger: l, slot: l.large, revoked: make(chan struct{})}
	w.grant = l.holder
	w.done()
	if len(l.slots) > 0 {
		l.wantSlot()
	}
}

// wantSlot tells the holder of the slot that somebody else waits for it.
func (l *Ledger) wantSlot() {
	if g := l.holder; g != nil && !g.asked {
		g.asked = true
		close(g.revoked)
	}
}

// vacate ends the hold on the slot once it is empty.
func (g *Grant) vacate() {
	if l := g.ledger; l.holder == g && g.closed && g.used == 0 {
		l.holder, g.slot = nil, 0
	}
}

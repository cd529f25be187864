package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// waiter is a caller in line; ready is closed once it is served.
type waiter struct {
	need   int64 // undecided: it only waits for its turn
	stays  bool  // at the head when it is served
	grant  *Grant
	ready  chan struct{}
	served bool
}

// undecided is the need of somebody who says it when the turn has come.
const undecided = -1

// Place is one in the line for admission, of a caller who knows what it needs
// only when its turn has come. One goroutine uses it.
type Place struct {
	ledger *Ledger
	waiter *waiter
}

// Queue takes a place at the end of the line and waits until it is at the head;
// then nobody else is admitted before Leave, which must follow soon. The wait
// ends with ctx, as that of Admit does. A need of most must be one that can be met.
func (l *Ledger) Queue(ctx context.Context, most int64) (*Place, error) {
	if err := l.possible(ctx, most); err != nil {
		return nil, err
	}
	p := &Place{ledger: l, waiter: &waiter{need: undecided, stays: true, ready: make(chan struct{})}}
	l.enter(p.waiter)
	if err := l.wait(ctx, p.waiter, &l.line); err != nil {
		return nil, refusal(err, most)
	}
	return p, nil
}

// Try admits a need if it fits at once, else ErrExhausted.
func (p *Place) Try(need int64) (*Grant, error) {
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	p.ledger.clear(need)
	return p.ledger.try(need)
}

// Admit waits for need bytes. If ctx ends before, the place is lost.
func (p *Place) Admit(ctx context.Context, need int64) (*Grant, error) {
	l, w := p.ledger, p.waiter
	if err := l.possible(ctx, need); err != nil {
		return nil, err
	}
	l.mu.Lock()
	w.need, w.served, w.ready = need, false, make(chan struct{})
	l.serve()
	l.mu.Unlock()
	if err := l.wait(ctx, w, &l.line); err != nil {
		return nil, refusal(err, need)
	}
	return w.grant, nil
}

// Leave gives the place up. Leaving again does nothing.
func (p *Place) Leave() {
	l := p.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	l.quit(&l.line, p.waiter)
}

// Admit reserves need bytes in order of arrival. It waits until ctx ends:
// ErrTimeout after its deadline, its own error when it was cancelled. What
// exceeds Most is ErrTooLarge at once.
func (l *Ledger) Admit(ctx context.Context, need int64) (*Grant, error) {
	if err := l.possible(ctx, need); err != nil {
		return nil, err
	}
	w := &waiter{need: need, ready: make(chan struct{})}
	l.enter(w)
	if err := l.wait(ctx, w, &l.line); err != nil {
		return nil, refusal(err, need)
	}
	return w.grant, nil
}

// Try admits a need if it fits at once and nobody waits in line, else ErrExhausted.
func (l *Ledger) Try(need int64) (*Grant, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.line) == 0 {
		l.clear(need)
	}
	if len(l.line) > 0 {
		return nil, fmt.Errorf("budget: %d bytes wanted, %d in line: %w", need, len(l.line), ErrExhausted)
	}
	return l.try(need)
}

// clear has what is only kept make room for a need. The lock is not held for a moment.
func (l *Ledger) clear(need int64) {
	if need >= 0 && !l.room(need) {
		l.reclaim(need)
	}
}

func (l *Ledger) try(need int64) (*Grant, error) {
	if need < 0 || !l.room(need) {
		return nil, fmt.Errorf("budget: %d bytes wanted, %d of %d are free: %w", need, l.free(), l.limit, ErrExhausted)
	}
	return l.admit(need), nil
}

// possible tells why a need can never be met, or not any more.
func (l *Ledger) possible(ctx context.Context, need int64) error {
	switch {
	case need < 0:
		return fmt.Errorf("budget: need of %d bytes", need)
	case need > l.Most():
		return fmt.Errorf("budget: %d bytes needed, of %d that are there for streams: %w: ask for fewer rows or columns at once", need, l.Most(), ErrTooLarge)
	case ctx.Err() != nil:
		return refusal(ctx.Err(), need)
	}
	return nil
}

// enter puts w at the end of the line.
func (l *Ledger) enter(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line = append(l.line, w)
	l.serve()
}

// quit takes w out of a line. The lock is held.
func (l *Ledger) quit(line *[]*waiter, w *waiter) {
	*line = slices.DeleteFunc(*line, func(o *waiter) bool { return o == w })
	l.serve() // the next in line may need less
}

// wait returns nil once w is served; when ctx ends first, w leaves the line.
func (l *Ledger) wait(ctx context.Context, w *waiter, line *[]*waiter) error {
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.served { // both happened: what was given is not thrown away
		return nil
	}
	l.quit(line, w)
	return ctx.Err()
}

func refusal(err error, need int64) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("budget: %d bytes needed: %w", need, ErrTimeout)
	}
	return fmt.Errorf("budget: waiting for %d bytes: %w", need, err)
}

// serveLine admits the head of the line as long as it fits. If it would fit
// without what is lent, that is asked for.
func (l *Ledger) serveLine() {
	for len(l.line) > 0 && !l.line[0].served {
		w := l.line[0]
		if w.need != undecided {
			if !l.room(w.need) {
				if w.need <= l.Most()-l.firm {
					l.revoke(w.need)
				}
				return
			}
			w.grant = l.admit(w.need)
		}
		if !w.stays {
			l.line = slices.Delete(l.line, 0, 1)
		}
		w.done()
	}
}

func (w *waiter) done() {
	w.served = true
	close(w.ready)
}

// admit makes a grant. The bytes are free.
func (l *Ledger) admit(need int64) *Grant {
	l.open++
	l.firm += need
	return &Grant{ledger: l, admitted: need}
}

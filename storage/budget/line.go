package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// waiter is a caller in line; ready is closed once it is served.
type waiter struct {
	need   int64
	grant  *Grant // nil until it is served; in line for the large slot, whom it is for
	ready  chan struct{}
	served bool
}

// Admit reserves need bytes in order of arrival. It waits until ctx ends:
// ErrTimeout after its deadline, its own error when it was cancelled. What
// exceeds Most is ErrTooLarge at once.
func (l *Ledger) Admit(ctx context.Context, need int64) (*Grant, error) {
	switch {
	case need < 0:
		return nil, fmt.Errorf("budget: need of %d bytes", need)
	case need > l.Most():
		return nil, fmt.Errorf("budget: %d bytes needed, of %d that are there for streams: %w: ask for fewer rows or columns at once", need, l.Most(), ErrTooLarge)
	case ctx.Err() != nil:
		return nil, refusal(ctx.Err(), need)
	}
	l.mu.Lock()
	w := &waiter{need: need, ready: make(chan struct{})}
	l.line = append(l.line, w)
	l.serve()
	l.mu.Unlock()
	if err := l.wait(ctx, w, &l.line); err != nil {
		return nil, refusal(err, need)
	}
	return w.grant, nil
}

// Try admits a need if it fits at once and nobody waits in line, else ErrExhausted.
func (l *Ledger) Try(need int64) (*Grant, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if need >= 0 && len(l.line) == 0 && !l.room(need) {
		l.reclaim(need)
	}
	if len(l.line) > 0 || need < 0 || !l.room(need) {
		return nil, fmt.Errorf("budget: %d bytes wanted, %d of %d are free, %d in line: %w", need, l.free(), l.limit, len(l.line), ErrExhausted)
	}
	return l.admit(need), nil
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
	*line = slices.DeleteFunc(*line, func(o *waiter) bool { return o == w })
	l.serve() // the next in line may need less
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
	for len(l.line) > 0 {
		w := l.line[0]
		if !l.room(w.need) {
			if w.need <= l.Most()-l.firm {
				l.revoke(w.need)
			}
			return
		}
		l.line = slices.Delete(l.line, 0, 1)
		w.grant = l.admit(w.need)
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

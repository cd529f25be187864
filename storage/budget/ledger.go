// Package budget is the ledger of memory: reservations, grants, the one limit.
package budget

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
)

// Errors of this package; they come wrapped with the numbers.
var (
	// ErrTooLarge means that the need exceeds the limit and can never be met.
	ErrTooLarge = errors.New("larger than the memory limit")
	// ErrExhausted means that no memory is free now.
	ErrExhausted = errors.New("memory exhausted")
	// ErrTimeout means that the deadline passed while waiting in line.
	ErrTimeout = errors.New("no memory in time")
)

// Kind says what charged memory is used for.
type Kind string

// The kinds of memory that are counted apart.
const (
	Frames  Kind = "frames"  // decoded blocks
	Input   Kind = "input"   // stored bytes on their way to a decoder
	Scratch Kind = "scratch" // what decoders use while they work
	Batches Kind = "batches" // gathered or compressed bytes on their way out
	Mapped  Kind = "mapped"  // pages of files in frames: they become memory when somebody writes to the file
	Copies  Kind = "copies"  // what did become memory
)

// Options of a Ledger.
type Options struct {
	Limit int64 // bytes, the most that is ever reserved
}

// Stats are the numbers of a ledger at one moment.
type Stats struct {
	Limit    int64          // bytes
	Reserved int64          // bytes held by grants, used or not; never over Limit
	Used     map[Kind]int64 // bytes charged, by kind; kinds at zero are left out
	Waiting  int            // callers in line
	Grants   int            // grants that are open
}

// Ledger shares out one limit of memory. Needs are admitted whole, first come
// first served; who waits holds nothing, and who holds never waits, so no set
// of holders can block one another.
type Ledger struct {
	mu       sync.Mutex
	limit    int64
	reserved int64
	used     map[Kind]int64
	line     []*waiter
	open     int
}

// waiter is a caller in line; ready is closed once its grant is set.
type waiter struct {
	need  int64
	grant *Grant
	ready chan struct{}
}

// New makes a ledger of o.Limit bytes.
func New(o Options) *Ledger {
	return &Ledger{limit: max(o.Limit, 0), used: make(map[Kind]int64)}
}

// Admit reserves need bytes, all at once and in order of arrival, and waits
// for them until ctx ends: ErrTimeout after its deadline, its own error when
// it was cancelled. A need over the limit is ErrTooLarge at once.
func (l *Ledger) Admit(ctx context.Context, need int64) (*Grant, error) {
	if need < 0 {
		return nil, fmt.Errorf("budget: need of %d bytes", need)
	}
	if need > l.limit {
		return nil, fmt.Errorf("budget: %d bytes needed, limit is %d: %w", need, l.limit, ErrTooLarge)
	}
	if err := ctx.Err(); err != nil {
		return nil, l.refusal(err, need)
	}
	l.mu.Lock()
	if len(l.line) == 0 && need <= l.limit-l.reserved {
		defer l.mu.Unlock()
		return l.admit(need), nil
	}
	w := &waiter{need: need, ready: make(chan struct{})}
	l.line = append(l.line, w)
	l.mu.Unlock()
	return l.wait(ctx, w)
}

// Try admits a need if it fits at once and nobody waits in line, else ErrExhausted.
func (l *Ledger) Try(need int64) (*Grant, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.line) > 0 || need < 0 || need > l.limit-l.reserved {
		return nil, fmt.Errorf("budget: %d bytes wanted, %d of %d are free, %d in line: %w", need, l.limit-l.reserved, l.limit, len(l.line), ErrExhausted)
	}
	return l.admit(need), nil
}

// wait returns w's grant once it is ready; when ctx ends first, w leaves the line.
func (l *Ledger) wait(ctx context.Context, w *waiter) (*Grant, error) {
	select {
	case <-w.ready:
		return w.grant, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.grant != nil { // both happened: what was given is not thrown away
		return w.grant, nil
	}
	for i, other := range l.line {
		if other == w {
			l.line = append(l.line[:i], l.line[i+1:]...)
			break
		}
	}
	l.serve() // the next in line may need less
	return nil, l.refusal(ctx.Err(), w.need)
}

func (l *Ledger) refusal(err error, need int64) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("budget: %d bytes needed, limit is %d: %w", need, l.limit, ErrTimeout)
	}
	return fmt.Errorf("budget: waiting for %d bytes: %w", need, err)
}

// admit makes a grant. The lock is held and the bytes are free.
func (l *Ledger) admit(need int64) *Grant {
	l.reserved += need
	l.open++
	return &Grant{ledger: l, admitted: need}
}

// serve admits the head of the line as long as it fits. The lock is held.
func (l *Ledger) serve() {
	for len(l.line) > 0 && l.line[0].need <= l.limit-l.reserved {
		w := l.line[0]
		l.line[0] = nil
		l.line = l.line[1:]
		w.grant = l.admit(w.need)
		close(w.ready)
	}
}

// Stats returns the numbers of this moment; they agree with each other.
func (l *Ledger) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{
		Limit: l.limit, Reserved: l.reserved, Used: maps.Clone(l.used),
		Waiting: len(l.line), Grants: l.open,
	}
}

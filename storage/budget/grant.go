package budget

import "fmt"

// Grant is one holder's share of a ledger. It holds the larger of what was
// admitted and what is charged; once closed, what is charged. Its methods may
// be called by several goroutines at once.
type Grant struct {
	ledger   *Ledger
	admitted int64 // guarded by ledger.mu, as all below
	used     int64
	closed   bool
}

// Charge takes n bytes for k. Past what was admitted the grant grows if the
// bytes are free at once and nobody waits in line, else ErrExhausted (and
// ErrTooLarge too if n alone exceeds the limit). A closed grant takes no more.
func (g *Grant) Charge(k Kind, n int64) error {
	if n < 0 {
		panic(fmt.Sprintf("budget: charge of %d bytes", n))
	}
	l := g.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.closed {
		return fmt.Errorf("budget: %d bytes of %s on a closed grant: %w", n, k, ErrExhausted)
	}
	if n > l.limit {
		return fmt.Errorf("budget: %d bytes of %s, limit is %d: %w, %w", n, k, l.limit, ErrExhausted, ErrTooLarge)
	}
	growth := max(g.used+n-max(g.admitted, g.used), 0)
	if growth > 0 && (len(l.line) > 0 || growth > l.limit-l.reserved) {
		return fmt.Errorf("budget: %d more bytes of %s on a grant of %d with %d in use (%d of %d reserved, %d waiting): %w",
			n, k, g.admitted, g.used, l.reserved, l.limit, len(l.line), ErrExhausted)
	}
	l.reserved += growth
	g.used += n
	l.count(k, n)
	return nil
}

// Credit gives n bytes of k back, also after Close. What the grant had grown
// by goes first. Giving back more than was charged panics: the books would be wrong from then on.
func (g *Grant) Credit(k Kind, n int64) {
	l := g.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if n < 0 || n > g.used || n > l.used[k] {
		panic(fmt.Sprintf("budget: credit of %d bytes of %s, charged are %d on the grant, %d of this kind", n, k, g.used, l.used[k]))
	}
	held := max(g.admitted, g.used)
	g.used -= n
	l.count(k, -n)
	l.reserved -= held - max(g.admitted, g.used)
	l.serve()
}

// Move books n bytes of one kind under another. It never fails, for the grant
// holds as much as before; moving more than was charged panics.
func (g *Grant) Move(from, to Kind, n int64) {
	l := g.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if n < 0 || n > g.used || n > l.used[from] {
		panic(fmt.Sprintf("budget: move of %d bytes of %s, charged are %d on the grant, %d of this kind", n, from, g.used, l.used[from]))
	}
	l.count(from, -n)
	l.count(to, n)
}

// Close returns what is not charged at once; charged bytes return as they are
// credited. Closing again does nothing.
func (g *Grant) Close() {
	l := g.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.closed {
		return
	}
	g.closed = true
	l.open--
	l.reserved -= max(g.admitted, g.used) - g.used
	g.admitted = 0
	l.serve()
}

// count moves the books of k by n bytes. The lock is held.
func (l *Ledger) count(k Kind, n int64) {
	if l.used[k] += n; l.used[k] == 0 {
		delete(l.used, k)
	}
}

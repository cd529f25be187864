package budget

import (
	"fmt"
	"slices"
)

// Grant is one holder's share of a ledger. It holds the larger of what was
// admitted and what is charged; once closed, what is charged. Its methods may
// be called by several goroutines at once.
type Grant struct {
	ledger   *Ledger
	loan     bool  // it has nothing of its own
	admitted int64 // guarded by ledger.mu, as all below
	lent     int64 // held on loan
	slot     int64 // held as the large slot
	used     int64
	needed   int64 // of used, what decoders cannot do without
	expected int64 // that needed will come to: what a loan holds for it
	peak     int64 // the most of that that they asked for
	closed   bool

	asked   bool          // what is lent, or the large slot, is wanted back
	revoked chan struct{} // closed when it is
}

// Charge takes n bytes for k. Past what the grant holds it grows if the bytes
// are free at once, else ErrExhausted (and ErrTooLarge too if n alone exceeds the
// limit). While others wait in line, decoders do not let it grow, for they have
// the large slot; what has no other place to go does. A closed grant takes no more.
func (g *Grant) Charge(k Kind, n int64) error { return g.charge(k, n, false) }

// ChargeHeap is Charge for bytes on the Go heap, which the collector's limit has to know.
func (g *Grant) ChargeHeap(k Kind, n int64) error { return g.charge(k, n, true) }

func (g *Grant) charge(k Kind, n int64, heap bool) error {
	if n < 0 {
		panic(fmt.Sprintf("budget: charge of %d bytes", n))
	}
	l := g.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if n > l.limit {
		return fmt.Errorf("budget: %d bytes of %s, limit is %d: %w, %w", n, k, l.limit, k.exhausted(), ErrTooLarge)
	}
	if g.closed {
		return fmt.Errorf("budget: %d bytes of %s on a closed grant: %w", n, k, k.exhausted())
	}
	if k.needed() {
		g.peak = max(g.peak, g.needed+n)
	}
	if growth := g.growth(k, n); growth > 0 && !g.extend(k, n) {
		if !g.loan && growth <= l.Most()-l.firm {
			l.revoke(growth) // too late for this one, in time for the next
		}
		return fmt.Errorf("budget: %d more bytes of %s on a grant of %d with %d in use (%d of %d reserved, %d waiting): %w",
			n, k, g.admitted+g.lent+g.slot, g.used, l.limit-l.free(), l.limit, l.waiting(), k.exhausted())
	}
	g.use(k, n)
	l.count(k, n, heap)
	l.serve() // what the grant grew by may have been meant for another
	return nil
}

// use puts n bytes on the grant, or with a negative n takes them off.
func (g *Grant) use(k Kind, n int64) {
	g.ledger.stir(g)
	g.change(func() {
		g.used += n
		if k.needed() {
			g.needed += n
		}
	})
}

// growth is how much the grant has to grow to be charged n more bytes of k, beside what is expected.
func (g *Grant) growth(k Kind, n int64) int64 {
	needed := g.needed
	if k.needed() {
		needed += n
	}
	return max(g.used+n+max(g.expected-needed, 0)-g.lent-g.slot-g.firm(), 0)
}

// grow tells whether the grant may be charged n bytes of k beyond what it holds, at once.
func (g *Grant) grow(k Kind, n int64) bool {
	l := g.ledger
	if g.loan {
		return !g.asked && l.lend(g, n)
	}
	return (len(l.line) == 0 || !k.decoding()) && l.room(n)
}

// extend is grow for n bytes to be charged; what is only kept makes room.
func (g *Grant) extend(k Kind, n int64) bool {
	if growth := g.growth(k, n); g.grow(k, growth) {
		return true
	} else if !g.ledger.quiet() || !g.ledger.reclaim(growth) {
		return false
	}
	return !g.closed && (g.growth(k, n) == 0 || g.grow(k, g.growth(k, n))) // the lock was not held for a moment
}

// firm is what the grant holds for good, the large slot not counted.
func (g *Grant) firm() int64 { return max(g.admitted, g.used-g.lent-g.slot) }

// change lets f change the grant and keeps the ledger's sums in step. What is
// lent and neither in use nor expected to be goes.
func (g *Grant) change(f func()) {
	l := g.ledger
	had := g.lent
	l.firm -= g.firm()
	l.lent -= had
	f()
	g.lent = min(g.lent, g.used+max(g.expected-g.needed, 0))
	if had > 0 && g.lent == 0 {
		l.loans = slices.DeleteFunc(l.loans, func(o *Grant) bool { return o == g })
	}
	l.firm += g.firm()
	l.lent += g.lent
}

// Credit gives n bytes of k back, also after Close. What the grant had grown
// by goes first. Giving back more than was charged panics: the books would be
// wrong from then on.
func (g *Grant) Credit(k Kind, n int64) { g.credit(k, n, false) }

// CreditHeap undoes ChargeHeap.
func (g *Grant) CreditHeap(k Kind, n int64) { g.credit(k, n, true) }

func (g *Grant) credit(k Kind, n int64, heap bool) {
	l := g.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	g.mustHave(k, n, heap)
	l.count(k, -n, heap)
	g.use(k, -n)
	g.vacate()
	l.serve()
}

// mustHave panics unless n bytes of k are charged.
func (g *Grant) mustHave(k Kind, n int64, heap bool) {
	have := g.used - g.needed
	if k.needed() {
		have = g.needed
	}
	if l := g.ledger; n < 0 || n > have || n > l.used[k] || heap && n > l.heap {
		panic(fmt.Sprintf("budget: credit of %d bytes of %s, charged are %d on the grant, %d of this kind", n, k, have, l.used[k]))
	}
}

// Move books n bytes of one kind under another; neither may be a decoder's. It
// never fails, for the grant holds as much as before; moving more than was charged panics.
func (g *Grant) Move(from, to Kind, n int64) {
	l := g.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	g.mustHave(from, n, false)
	l.count(from, -n, false)
	l.count(to, n, false)
}

// Pass lets another grant of the ledger pay for n bytes of k, which are not a
// decoder's, if that holds them or can grow by them at once, and tells whether it does.
func (g *Grant) Pass(k Kind, n int64, to *Grant) bool {
	l := g.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	g.mustHave(k, n, false)
	if !g.loan {
		g.use(k, -n) // to may need just these bytes
	}
	if growth := to.growth(k, n); to.closed || growth > 0 && !to.grow(k, growth) {
		if !g.loan {
			g.use(k, n)
		}
		return false
	}
	to.use(k, n)
	if g.loan {
		g.use(k, -n)
	}
	g.vacate()
	l.serve()
	return true
}

// Free returns how many bytes of what was admitted are not in use.
func (g *Grant) Free() int64 {
	g.ledger.mu.Lock()
	defer g.ledger.mu.Unlock()
	return max(g.admitted-g.used, 0)
}

// Used returns how many bytes are charged.
func (g *Grant) Used() int64 {
	g.ledger.mu.Lock()
	defer g.ledger.mu.Unlock()
	return g.used
}

// Split makes a grant of its own of n bytes that were admitted and are not in
// use. It panics if there are fewer.
func (g *Grant) Split(n int64) *Grant {
	l := g.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if n < 0 || n > g.admitted-g.used {
		panic(fmt.Sprintf("budget: split of %d bytes, admitted are %d, in use %d", n, g.admitted, g.used))
	}
	part := &Grant{ledger: l}
	g.change(func() { g.admitted -= n })
	part.change(func() { part.admitted = n })
	l.open++
	return part
}

// Peak returns the most bytes that decoders held or asked for in vain since the last call, without what was read ahead.
func (g *Grant) Peak() int64 {
	g.ledger.mu.Lock()
	defer g.ledger.mu.Unlock()
	peak := g.peak
	g.peak = g.needed
	return peak
}

// Closed tells whether the grant takes no more: what is charged to it is to be given back.
func (g *Grant) Closed() bool {
	g.ledger.mu.Lock()
	defer g.ledger.mu.Unlock()
	return g.closed
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
	l.open--
	g.closed = true
	g.change(func() { g.admitted, g.expected = 0, 0 })
	g.vacate()
	l.serve()
}

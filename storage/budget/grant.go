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
	seats    []*Seat
	window   *charge // whose frames it pays for, if any
	loan     bool    // all of it is revocable
	admitted int64   // guarded by ledger.mu, as all below
	extra    int64   // held revocably, beyond what was admitted
	slot     int64   // held as the large slot
	used     int64
	decoding int64 // of used, what decoders have
	peak     int64 // the most that they asked for
	closed   bool

	asked   bool          // what is revocable is wanted back
	revoked chan struct{} // closed when it is, or when the large slot is wanted
}

// Charge takes n bytes for k. Past what the grant holds it grows if the bytes
// are free at once and nobody waits in line, else ErrExhausted (and ErrTooLarge
// too if n alone exceeds the limit). A closed grant takes no more.
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
		return fmt.Errorf("budget: %d bytes of %s, limit is %d: %w, %w", n, k, l.limit, ErrExhausted, ErrTooLarge)
	}
	if g.closed {
		return fmt.Errorf("budget: %d bytes of %s on a closed grant: %w", n, k, ErrExhausted)
	}
	if k.decoding() {
		g.peak = max(g.peak, g.decoding+n)
	}
	if err := g.take(k, n); err != nil {
		return err
	}
	l.count(k, n, heap)
	l.serve() // what the grant grew by may have been meant for another
	return nil
}

// take puts n bytes on the grant.
func (g *Grant) take(k Kind, n int64) error {
	l := g.ledger
	growth := max(g.used+n-g.extra-g.slot-g.firm(), 0)
	if growth > 0 && !g.grow(growth) {
		return fmt.Errorf("budget: %d more bytes of %s on a grant of %d with %d in use (%d of %d reserved, %d waiting): %w",
			n, k, g.admitted+g.extra+g.slot, g.used, l.limit-l.free(), l.limit, l.waiting(), ErrExhausted)
	}
	g.change(func() {
		g.used += n
		if k.decoding() {
			g.decoding += n
		}
	})
	return nil
}

// grow makes sure that n more bytes may be charged.
func (g *Grant) grow(n int64) bool {
	l := g.ledger
	if g.loan {
		return !g.asked && l.reserve(g, n)
	}
	if len(l.line) == 0 && l.room(n) {
		return true
	}
	if n <= l.Most()-l.firm {
		l.revoke(n) // too late for this one, in time for the next
	}
	return false
}

// firm is what the grant holds for good, the large slot not counted.
func (g *Grant) firm() int64 { return max(g.admitted, g.used-g.extra-g.slot) }

// change lets f change the grant and keeps the ledger's sums in step. What is
// revocable and not in use goes when it is no longer reserved for anything.
func (g *Grant) change(f func()) {
	l := g.ledger
	had := g.extra
	l.firm -= g.firm()
	l.spare -= had
	f()
	if g.loan || g.closed {
		g.extra = min(g.extra, max(g.used-g.admitted, 0))
	}
	if had > 0 && g.extra == 0 {
		l.ahead = slices.DeleteFunc(l.ahead, func(o *Grant) bool { return o == g })
	}
	l.firm += g.firm()
	l.spare += g.extra
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
	g.change(func() {
		g.used -= n
		if k.decoding() {
			g.decoding -= n
		}
	})
	g.vacate()
	l.serve()
}

// mustHave panics unless n bytes of k are charged.
func (g *Grant) mustHave(k Kind, n int64, heap bool) {
	have := g.used - g.decoding
	if k.decoding() {
		have = g.decoding
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
// decoder's. If it can neither hold them nor grow by them at once, nothing
// changes and the error is ErrExhausted.
func (g *Grant) Pass(k Kind, n int64, to *Grant) error {
	l := g.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	g.mustHave(k, n, false)
	if to.closed {
		return fmt.Errorf("budget: %d bytes of %s to a closed grant: %w", n, k, ErrExhausted)
	}
	g.change(func() { g.used -= n })
	err := to.take(k, n)
	if err != nil {
		g.change(func() { g.used += n })
	}
	l.serve()
	return err
}

// Free returns how many bytes of what was admitted are not in use.
func (g *Grant) Free() int64 {
	g.ledger.mu.Lock()
	defer g.ledger.mu.Unlock()
	return max(g.admitted-g.used, 0)
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

// Peak returns the most bytes that decoders held or asked for in vain since the last call.
func (g *Grant) Peak() int64 {
	g.ledger.mu.Lock()
	defer g.ledger.mu.Unlock()
	peak := g.peak
	g.peak = g.decoding
	return peak
}

// Close returns what is not charged at once, and the seats; charged bytes return
// as they are credited. Closing again does nothing.
func (g *Grant) Close() {
	l := g.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.closed {
		return
	}
	l.open--
	for _, s := range g.seats {
		s.close()
	}
	g.close()
	l.serve()
}

func (g *Grant) close() {
	g.closed = true
	g.change(func() { g.admitted = 0 })
	g.vacate()
}

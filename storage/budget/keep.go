package budget

import "sync/atomic"

// Keeper is the holder of what is kept only because it may be asked for again.
// Like a loan it takes bytes that are free at once while nobody waits. Unlike a
// loan it gives back piece by piece, and itself says which: before any grant is
// refused for lack of free bytes, and for those who wait.
type Keeper struct {
	ledger *Ledger
	grant  *Grant
	give   func(bytes int64) (freed int64)
	wake   chan struct{}
	wanted atomic.Int64 // bytes that those who wait lack; set under ledger.mu
	asked  int64        // what wanted is going to be; guarded by ledger.mu, as dry
	dry    bool         // it could not give what was wanted last
	told   bool         // and need not hear of it again
}

// Keep makes the ledger's keeper; there can be one. give gives up kept bytes,
// at least so many if there are, and returns how many were; it waits for nobody,
// may be called by anybody, several at a time, and may credit grants with what it
// gave up, but not charge them.
func (l *Ledger) Keep(give func(bytes int64) (freed int64)) *Keeper {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keeper != nil {
		panic("budget: a second keeper")
	}
	l.open++
	l.keeper = &Keeper{
		ledger: l, give: give, wake: make(chan struct{}, 1),
		grant: &Grant{ledger: l, loan: true, revoked: make(chan struct{})},
	}
	return l.keeper
}

// Grant pays for what is kept.
func (k *Keeper) Grant() *Grant { return k.grant }

// Wake tells that bytes are wanted: Repay is to be called.
func (k *Keeper) Wake() <-chan struct{} { return k.wake }

// Wanted returns how many bytes those who wait lack: Repay is to be called when
// what was in use is so no more. It takes no lock.
func (k *Keeper) Wanted() int64 { return k.wanted.Load() }

// Repay gives up what is wanted.
func (k *Keeper) Repay() {
	n := k.wanted.Load()
	if n == 0 || k.give(n) >= n {
		return
	}
	l := k.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	k.dry, k.told = true, true // others are to be asked
	l.serve()
	k.told = false
}

// Short returns how many bytes have to be given up before n that a grant pays for
// can be kept, and whether anything may be kept now.
func (k *Keeper) Short(from *Grant, n int64) (bytes int64, ok bool) {
	l := k.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	spent := from.firm() - max(from.admitted, from.used-n-from.lent-from.slot) // that it need not hold any more
	return max(n-spent-l.free(), 0), l.quiet() && !k.grant.closed
}

// Close ends the keeping. What is charged is to be given back.
func (k *Keeper) Close() {
	k.grant.Close()
	l := k.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keeper = nil
}

// All below runs under the ledger's lock.

// want asks the keeper for bytes on behalf of those who wait, and returns how many
// will come.
func (l *Ledger) want(n int64) int64 {
	k := l.keeper
	if k == nil || n <= 0 {
		return 0
	}
	n = min(n, k.grant.lent)
	k.asked = max(n, k.asked)
	if k.dry {
		return 0
	}
	return n
}

// tellKeeper lets the keeper know what those who wait have asked for.
func (l *Ledger) tellKeeper() {
	k := l.keeper
	if k == nil {
		return
	}
	k.wanted.Store(k.asked)
	switch {
	case k.asked == 0:
		k.dry = false
	case !k.told:
		select {
		case k.wake <- struct{}{}:
		default: // it has not looked since it was told
		}
	}
	k.asked = 0
}

// stir notes that a grant has changed: if it is the keeper's, it may give again.
func (l *Ledger) stir(g *Grant) {
	if l.keeper != nil && l.keeper.grant == g {
		l.keeper.dry = false
	}
}

// reclaim has the keeper give up bytes until n are free, and tells whether it
// gave any. The lock is not held meanwhile.
func (l *Ledger) reclaim(n int64) bool {
	k := l.keeper
	if k == nil || k.grant.lent == 0 || n > l.Most() {
		return false
	}
	n -= l.free()
	if n <= 0 {
		return false
	}
	l.mu.Unlock()
	freed := k.give(n)
	l.mu.Lock()
	return freed > 0
}

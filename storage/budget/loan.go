package budget

// Loan returns a grant that has nothing of its own and takes bytes as they are
// charged, if they are free at once and nobody waits: for what is good to have
// and can be had again. The channel is closed when somebody waits for them; then
// the grant takes no more, and what is charged has to be given back soon, without
// waiting for anybody.
func (l *Ledger) Loan() (g *Grant, revoked <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open++
	g = &Grant{ledger: l, loan: true, revoked: make(chan struct{})}
	return g, g.revoked
}

// Expect has a loan hold as much as its decoder will need in all, if that is free
// at once and nobody waits, and tells whether it does; what is only kept makes
// room. Expect(0) ends it: what is held is what is charged.
func (g *Grant) Expect(n int64) bool {
	l := g.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	g.expected = n
	ok := g.growth(Scratch, 0) == 0 || g.extend(Scratch, 0)
	if !ok {
		g.expected = 0
	}
	g.change(func() {})
	l.serve()
	return ok
}

// Plenty tells whether half of all memory is spare, n more bytes not counted:
// then some may be taken for what may turn out not to be needed.
func (g *Grant) Plenty(n int64) bool {
	l := g.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spare()-n >= l.limit/2
}

// All below runs under the ledger's lock.

// lend gives g n more bytes that may be wanted back.
func (l *Ledger) lend(g *Grant, n int64) bool {
	if !l.quiet() || n > l.free() {
		return false
	}
	if g.lent == 0 && (l.keeper == nil || g != l.keeper.grant) {
		l.loans = append(l.loans, g)
	}
	// Not through change, for they would go again before they are in use.
	g.lent += n
	l.lent += n
	return true
}

// revoke asks for what is kept, then for loans, the newest first, until what is
// asked for makes n bytes free.
func (l *Ledger) revoke(n int64) {
	short := n - l.free()
	short -= l.want(short)
	for _, g := range l.loans {
		if g.asked {
			short -= g.lent
		}
	}
	for i := len(l.loans) - 1; i >= 0 && short > 0; i-- {
		if g := l.loans[i]; !g.asked {
			short -= g.lent
			g.asked = true
			close(g.revoked)
		}
	}
}

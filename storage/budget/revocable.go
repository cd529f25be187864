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

// All below runs under the ledger's lock.

// reserve gives g n more revocable bytes.
func (l *Ledger) reserve(g *Grant, n int64) bool {
	if !l.quiet() || n > l.free() {
		return false
	}
	if g.extra == 0 {
		l.ahead = append(l.ahead, g)
	}
	// Not through change, for on a loan they would go again before they are in use.
	g.extra += n
	l.spare += n
	return true
}

// ask tells the holder to give back what is revocable. Nobody enters a window that is wanted back.
func (g *Grant) ask() {
	g.asked = true
	close(g.revoked)
	if g.window != nil {
		g.window.plan.remove(g.window)
	}
}

// revoke asks for revocable bytes back, the newest first, until those asked for
// make n bytes free.
func (l *Ledger) revoke(n int64) {
	short := n - l.free()
	for _, g := range l.ahead {
		if g.asked {
			short -= g.extra
		}
	}
	for i := len(l.ahead) - 1; i >= 0 && short > 0; i-- {
		if g := l.ahead[i]; !g.asked {
			short -= g.extra
			g.ask()
		}
	}
}

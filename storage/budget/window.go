package budget

import "context"

// Window is a window of a plan. All streams of the plan that read it share one
// charge for its frames.
type Window struct {
	// Plan names what streams must have in common to share frames: the plan, the
	// columns, and the span if it has several.
	Plan   string
	Number int64
	// Bytes are those of the plan's largest window, for its charge serves one after the other.
	Bytes int64
}

// Seat is the place of one stream among the windows of a plan. A stream takes
// them in ascending order: Enter, then the leases, then back with the leases,
// then Move. A seat belongs to one goroutine, but for the channels that it returns.
//
// A stream that enters a window holds it, or has to wait only for streams that
// still read an earlier one; those never wait for it.
type Seat struct {
	ledger *Ledger
	plan   *plan
	bytes  int64
	want   int64
	charge *charge       // nil while it waits
	ready  chan struct{} // closed when charge is set
	claim  *charge       // reserved ahead by this seat
	closed bool
}

// Seats returns the seats of the windows that the grant was admitted with, in
// their order. They end with the grant.
func (g *Grant) Seats() []*Seat { return g.seats }

// Enter waits for the window that the seat was admitted for or last moved to,
// and returns the grant that pays for its frames. Whoever needs a frame that is
// not there yet loads it, on that grant. The wait ends with ctx.
func (s *Seat) Enter(ctx context.Context) (*Grant, error) {
	l := s.ledger
	l.mu.Lock()
	ready := s.ready
	l.mu.Unlock()
	select {
	case <-ready:
	case <-ctx.Done():
		return nil, refusal(ctx.Err(), s.bytes)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return s.charge.grant, nil
}

// Move leaves the window for a later one, as soon as nothing more is needed of
// it; all leases on its frames are given back before. It does not wait: Enter does.
func (s *Seat) Move(number int64) {
	l := s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.closed || s.want == number {
		return
	}
	s.want = number
	if s.claim != nil && s.claim.number != number {
		s.retract()
	}
	if s.charge != nil {
		s.ready = make(chan struct{})
		l.queued = append(l.queued, s)
		s.leave()
	}
	l.settle(s.plan)
	l.serve()
}

// Ahead reserves a later window for prefetch, if nobody has it yet, its bytes
// are free at once and nobody waits for memory. The channel is closed when
// somebody does, or needs the window's place: then the leases on its frames go
// back and Retract has to follow soon, without waiting for anybody. By entering
// the window the seat, or another of the plan, makes it firm.
func (s *Seat) Ahead(number int64) (g *Grant, revoked <-chan struct{}, ok bool) {
	l := s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.closed || s.claim != nil || s.bytes <= 0 || s.plan.charge(number) != nil {
		return nil, nil, false
	}
	c := newCharge(l, s.plan, s.bytes, number)
	if !l.reserve(c.grant, s.bytes) {
		s.plan.remove(c)
		return nil, nil, false
	}
	s.claim, c.owner = c, s
	l.serve() // it may be just what another waits for
	return c.grant, c.grant.revoked, true
}

// Retract gives up the window that was reserved ahead; its leases are given back
// before. Once it was entered, by whomever, it does nothing.
func (s *Seat) Retract() {
	l := s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.claim != nil {
		s.retract()
		l.serve()
	}
}

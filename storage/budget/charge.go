package budget

import "slices"

// All of this file runs under the ledger's lock.

// plan is all that is charged for the windows of one Window.Plan. While any of
// its seats waits, another one sits in a charge.
type plan struct {
	name    string
	seats   int
	charges []*charge
}

// charge is the memory of one window: firm while somebody sits in it, else
// revocable and reserved ahead by its owner.
type charge struct {
	plan   *plan
	grant  *Grant
	bytes  int64
	number int64
	firm   bool
	seats  int
	owner  *Seat // who reserved it ahead and has not entered it or retracted
}

func newCharge(l *Ledger, p *plan, bytes, number int64) *charge {
	c := &charge{plan: p, grant: &Grant{ledger: l, revoked: make(chan struct{})}, bytes: bytes, number: number}
	c.grant.window = c
	p.charges = append(p.charges, c)
	return c
}

// charge returns that of a window, nil if there is none.
func (p *plan) charge(number int64) *charge {
	if p != nil {
		for _, c := range p.charges {
			if c.number == number {
				return c
			}
		}
	}
	return nil
}

// taken tells whether somebody sits in a window.
func (p *plan) taken(number int64) bool {
	c := p.charge(number)
	return c != nil && c.seats > 0
}

func (p *plan) remove(c *charge) {
	p.charges = slices.DeleteFunc(p.charges, func(o *charge) bool { return o == c })
}

// seat makes a seat for a stream that is being admitted. Behind another's window
// it waits to begin with; else there is a charge, or the bytes for one are free.
func (l *Ledger) seat(w Window, behind bool) *Seat {
	p := l.plans[w.Plan]
	if p == nil {
		p = &plan{name: w.Plan}
		l.plans[w.Plan] = p
	}
	p.seats++
	s := &Seat{ledger: l, plan: p, bytes: w.Bytes, want: w.Number, ready: make(chan struct{})}
	l.queued = append(l.queued, s)
	switch c := p.charge(w.Number); {
	case c != nil && c.seats > 0:
		l.sit(s, c)
	case behind && p.taken(w.Number-1):
	default:
		l.own(s)
	}
	return s
}

// own gives a seat that waits a charge of its own if its bytes are free, and
// tells whether they were.
func (l *Ledger) own(s *Seat) bool {
	c := s.plan.charge(s.want)
	switch {
	case c == nil && l.room(s.bytes):
		c = newCharge(l, s.plan, s.bytes, s.want)
		c.secure()
	case c != nil && !c.firm && c.bytes <= l.Most()-l.firm:
		c.secure()
	default:
		return false
	}
	l.sit(s, c)
	return true
}

// serveSeats lets those who wait for slower streams have memory of their own, if it is free.
func (l *Ledger) serveSeats() {
	for _, s := range slices.Clone(l.queued) {
		if s.charge == nil && l.own(s) {
			l.settle(s.plan)
		}
	}
}

// secure makes a charge firm, whether its bytes were revocable or are free.
func (c *charge) secure() {
	c.firm = true
	c.grant.change(func() { c.grant.admitted, c.grant.extra = c.bytes, 0 })
}

// loosen makes a charge that nobody sits in its owner's prefetch again.
func (l *Ledger) loosen(c *charge) {
	c.firm = false
	c.grant.change(func() { c.grant.admitted, c.grant.extra = 0, c.bytes })
	l.ahead = append(l.ahead, c.grant)
}

// end gives up a charge. Frames that others still lease stay charged to its grant.
func (c *charge) end() {
	c.plan.remove(c)
	c.grant.close()
}

// sit puts a seat that waits into a charge.
func (l *Ledger) sit(s *Seat, c *charge) {
	l.queued = slices.DeleteFunc(l.queued, func(o *Seat) bool { return o == s })
	if c.owner == s {
		c.owner, s.claim = nil, nil
	}
	c.seats++
	s.charge = c
	close(s.ready)
}

// leave takes the seat out of its charge; settle follows.
func (s *Seat) leave() {
	s.charge.seats--
	s.charge = nil
}

// retract ends the seat's claim.
func (s *Seat) retract() {
	c := s.claim
	s.claim, c.owner = nil, nil
	if !c.firm {
		c.end()
	}
}

// close ends the seat.
func (s *Seat) close() {
	l := s.ledger
	s.closed = true
	if s.claim != nil {
		s.retract()
	}
	if s.charge != nil {
		s.leave()
	}
	l.queued = slices.DeleteFunc(l.queued, func(o *Seat) bool { return o == s })
	l.settle(s.plan)
	if s.plan.seats--; s.plan.seats == 0 {
		delete(l.plans, s.plan.name)
	}
}

// settle hands the charges that their last seat has left to those that wait, the
// slowest first, until nothing changes.
func (l *Ledger) settle(p *plan) {
	for i := 0; i < len(p.charges); i++ {
		c := p.charges[i]
		if c.seats > 0 || !c.firm {
			continue
		}
		switch next := l.slowest(p); {
		case c.owner != nil: // who sits in another charge
			l.loosen(c)
		case next == nil:
			c.end()
		default:
			l.hand(c, next)
		}
		i = -1 // the charges have changed
	}
	for _, s := range slices.Clone(l.queued) {
		if s.plan == p && p.taken(s.want) {
			l.sit(s, p.charge(s.want))
		}
	}
}

// slowest returns the seat of the plan that waits for the earliest window.
func (l *Ledger) slowest(p *plan) (least *Seat) {
	for _, s := range l.queued {
		if s.plan == p && (least == nil || s.want < least.want) {
			least = s
		}
	}
	return least
}

// hand gives a charge that was left to next, unless there is one of its window:
// that is taken instead.
func (l *Ledger) hand(c *charge, next *Seat) {
	d := c.plan.charge(next.want)
	switch {
	case d == nil:
		c.number = next.want
		d = c
	case d.firm:
	case l.firm-c.grant.firm()+c.grant.used-d.grant.firm()+max(d.bytes, d.grant.used) <= l.Most():
		c.end()
		d.secure()
	default: // so much of the old window is leased elsewhere that both do not fit
		d.grant.ask()
		c.number = next.want
		d = c
	}
	l.sit(next, d)
}

package cache

import "math/rand/v2"

// adaptive is W-TinyLFU with a window that finds its own size: what is new is
// kept in the window for some time, and stays beyond it only if it was used more
// often lately than what would have to go. A large window suits data that is
// used again soon, a small one data that is used again and again.
type adaptive struct {
	window    list // what is new, by last use
	probation list // what came out of it, by last use
	protected list // what was used there, by last use
	candidate *item
	counts    sketch
	climb     climber
	random    *rand.Rand
}

// protectedShare is what of the space beyond the window is for items that were used there.
const protectedShare = 0.8

func newAdaptive() *adaptive {
	return &adaptive{climb: newClimber(), random: rand.New(rand.NewPCG(1, 1))}
}

func (p *adaptive) len() int { return p.window.len + p.probation.len + p.protected.len }

func (p *adaptive) bytes() int64 { return p.window.bytes + p.probation.bytes + p.protected.bytes }

func (p *adaptive) Use(i *item) {
	switch i.list {
	case nil:
		p.climb.miss(i.hash)
		p.window.push(i)
		p.counts.fit(p.len())
	case &p.window:
		i.move(&p.window)
	case &p.probation:
		p.climb.hit(p.probation.len)
		p.release(i)
		i.move(&p.protected)
		p.demote()
	default:
		i.move(&p.protected)
	}
	p.counts.add(i.hash, p.len())
	if p.climb.step(p.len()) {
		p.resize()
	}
}

// demote keeps the protected part to its share.
func (p *adaptive) demote() {
	most := int64(protectedShare * (1 - p.climb.window) * float64(p.bytes()))
	for p.protected.bytes > most && p.protected.len > 1 {
		p.protected.first.move(&p.probation)
	}
}

// resize fills a window that has grown with what is least worth beyond it. One
// that has shrunk gives up its oldest when there is need.
func (p *adaptive) resize() {
	p.demote()
	most := p.share()
	for i := p.probation.first; i != nil && p.window.bytes+i.bytes <= most; i = p.probation.first {
		p.release(i)
		i.move(&p.window)
	}
}

// share is how many bytes the window is for.
func (p *adaptive) share() int64 { return int64(p.climb.window * float64(p.bytes())) }

// Victim is the oldest on probation, or what left the window last if it is worth no more.
func (p *adaptive) Victim() *item {
	for most := p.share(); p.window.bytes > most; {
		i := p.window.oldest()
		if i == nil {
			break
		}
		i.move(&p.probation)
		p.candidate = i
	}
	victim, c := p.probation.oldest(), p.candidate
	if i := p.window.oldest(); c == nil && victim != nil && i != nil { // what is new takes the room of several, or streams do
		i.move(&p.probation)
		p.candidate, c = i, i
	}
	switch {
	case victim != nil && c != nil && c != victim && !c.leased():
		p.candidate = nil
		if p.admits(c, victim) {
			return victim
		}
		p.climb.left(c.hash, p.len())
		return c
	case victim != nil:
		return victim
	}
	if i := p.protected.oldest(); i != nil {
		return i
	}
	return p.window.oldest()
}

// margin is by how many uses a newcomer has to be ahead: the use that brought it
// here is one, which the other may have before it. So passes over the data, in
// whatever order, do not make what was kept change places with what was not.
const margin = 1

// admits tells whether a newcomer is worth more. A few are let in although they
// seem not: else what shares the counters of hot data could stay for ever.
func (p *adaptive) admits(candidate, victim *item) bool {
	c, v := p.counts.count(candidate.hash), p.counts.count(victim.hash)
	return c > v+margin || c > 5 && p.random.IntN(128) == 0
}

// release forgets the candidate if that is the item.
func (p *adaptive) release(i *item) {
	if p.candidate == i {
		p.candidate = nil
	}
}

func (p *adaptive) Remove(i *item) {
	p.release(i)
	i.remove()
}

package cache

// lru gives up what was not used for longest: right where what was used lately
// is used again soon, useless for passes over more than fits.
type lru struct{ all list }

func (p *lru) Use(i *item) { i.move(&p.all) }

func (p *lru) Victim() *item { return p.all.oldest() }

func (p *lru) Remove(i *item) { i.remove() }

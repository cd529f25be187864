package cache

// pinned keeps what came first: of a job that reads every block once an epoch
// no policy can keep more than what fits, and this one keeps just that. What no
// live plan uses goes before all else, the oldest first.
type pinned struct {
	plans map[*Plan]*list // in order of arrival; none is empty
	clock uint64
}

func newPinned() *pinned { return &pinned{plans: map[*Plan]*list{}} }

// Use puts a new item behind those of its plan. What plans that have ended left
// behind goes over to the one that uses it now.
func (p *pinned) Use(i *item) {
	plan := i.plan.Load()
	if i.list != nil {
		if i.list.plan == plan || i.list.plan.Live() {
			return
		}
		p.Remove(i)
	}
	l := p.plans[plan]
	if l == nil {
		l = &list{plan: plan}
		p.plans[plan] = l
	}
	p.clock++
	i.came = p.clock
	l.push(i)
}

func (p *pinned) Victim() *item {
	var oldest, newest *item
	for plan, l := range p.plans {
		if plan.Live() {
			if i := l.newest(); i != nil && (newest == nil || i.came > newest.came) {
				newest = i
			}
		} else if i := l.oldest(); i != nil && (oldest == nil || i.came < oldest.came) {
			oldest = i
		}
	}
	if oldest != nil {
		return oldest
	}
	return newest
}

func (p *pinned) Remove(i *item) {
	l := i.list
	i.remove()
	if l.len == 0 {
		delete(p.plans, l.plan)
	}
}

package cache

import "slices"

// lfu gives up what was used least often since it came, of those the one that
// was not used for longest: right where some data is always hot.
type lfu struct {
	counts []*list // by ascending count
}

func (p *lfu) Use(i *item) {
	at, count := 0, 1
	if old := i.list; old != nil {
		count = old.count + 1
		at = p.find(old.count) + 1
		i.remove()
		if old.len == 0 {
			at--
			p.counts = slices.Delete(p.counts, at, at+1)
		}
	}
	if at == len(p.counts) || p.counts[at].count != count {
		p.counts = slices.Insert(p.counts, at, &list{count: count})
	}
	p.counts[at].push(i)
}

func (p *lfu) Victim() *item {
	for _, l := range p.counts {
		if i := l.oldest(); i != nil {
			return i
		}
	}
	return nil
}

func (p *lfu) Remove(i *item) {
	old := i.list
	i.remove()
	if old.len == 0 {
		at := p.find(old.count)
		p.counts = slices.Delete(p.counts, at, at+1)
	}
}

// find returns where the list of a count is.
func (p *lfu) find(count int) int {
	at, _ := slices.BinarySearchFunc(p.counts, count, func(l *list, count int) int { return l.count - count })
	return at
}

package cache

import "sync/atomic"

// Policy decides which entries stay when there is not room for all. It is used
// under one lock and holds only entries that are resident.
type Policy interface {
	// Use notes that an item was asked for. If the policy does not have it, it is new.
	Use(*item)
	// Victim returns the one that has to go next, nil if all are leased. It stays
	// with the policy until Remove.
	Victim() *item
	// Remove forgets an item.
	Remove(*item)
}

// item is what policies know of an entry. It is part of the entry, so that a
// policy's books take no memory beside it but for what is shared by all.
type item struct {
	prev, next *item // in the list of the policy that it is in
	list       *list // nil: no policy has it
	entry      *entry
	hash       uint64 // of its key and columns
	bytes      int64
	used       uint64               // when it was last, by the cache's clock
	came       uint64               // when, by the clock of pinned
	plan       atomic.Pointer[Plan] // that asked for it last
	leases     atomic.Int32
}

// leased tells whether it cannot go now.
func (i *item) leased() bool { return i.leases.Load() > 0 }

// list is items in order, and their bytes. Its zero value is empty.
type list struct {
	first, last *item
	len         int
	bytes       int64
	count       int   // of lfu: how often each was used
	plan        *Plan // of pinned: whose they are
}

// push puts an item at the end.
func (l *list) push(i *item) {
	i.prev, i.next, i.list = l.last, nil, l
	if l.last == nil {
		l.first = i
	} else {
		l.last.next = i
	}
	l.last = i
	l.len++
	l.bytes += i.bytes
}

// remove takes an item out of its list.
func (i *item) remove() {
	l := i.list
	if i.prev == nil {
		l.first = i.next
	} else {
		i.prev.next = i.next
	}
	if i.next == nil {
		l.last = i.prev
	} else {
		i.next.prev = i.prev
	}
	l.len--
	l.bytes -= i.bytes
	i.prev, i.next, i.list = nil, nil, nil
}

// move puts an item at the end of a list, whichever it is in.
func (i *item) move(to *list) {
	if i.list != nil {
		i.remove()
	}
	to.push(i)
}

// oldest returns the first item that is not leased.
func (l *list) oldest() *item {
	for i := l.first; i != nil; i = i.next {
		if !i.leased() {
			return i
		}
	}
	return nil
}

// newest returns the last item that is not leased.
func (l *list) newest() *item {
	for i := l.last; i != nil; i = i.prev {
		if !i.leased() {
			return i
		}
	}
	return nil
}

package storage

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/snapshot"
)

// mount lists its folder when asked and keeps the datasets it ever found.
type mount struct {
	Mount
	refresh  time.Duration
	far      bool // it lies in a store
	requests int  // that may be in flight there
	pace     pace
	outage   outage
	clients  *bucket.Clients
	shelves  []*shelf
	events   Events
	ledger   *budget.Ledger // nil: none
	registry *registry
	passed   atomic.Int64 // when a reader last found something changed since it was listed, in Unix nanoseconds
	gate     gate         // guards what follows
	last     *listing
}

// listing is what was found in a mount at one time. It does not change.
type listing struct {
	began  time.Time
	number int64
	sets   map[string]*found // by name
	err    error             // why nothing could be listed
}

func newMount(m Mount, refresh time.Duration, clients *bucket.Clients, shelves []*shelf, events Events, r *registry) (*mount, error) {
	base, err := bucket.Base(m.URL)
	if err != nil {
		return nil, err
	}
	if m.Name == "" && m.Tree {
		m.Name = base
	}
	if m.Name == "" || m.Name == "/" || m.Name == "." {
		return nil, fmt.Errorf("mount of %q needs a name", m.URL)
	}
	if err := m.checkFiles(); err != nil {
		return nil, fmt.Errorf("dataset %q: %w", m.Name, err)
	}
	return &mount{Mount: m, refresh: refresh, far: bucket.Far(m.URL), requests: clients.Requests(m.URL), clients: clients, shelves: shelves, events: events, registry: r, gate: newGate(), last: &listing{}}, nil
}

func (m *mount) rules() snapshot.Rules { return snapshot.Rules{Schema: m.Schema, Hive: m.Hive} }

// open opens the mount's folder or bucket. A folder is opened anew each time, so
// that one which was replaced, or a link to it that was moved on, is seen; a
// bucket in a store has the same clients each time.
func (m *mount) open() (*bucket.Bucket, error) {
	b, err := m.clients.Open(m.URL)
	if err != nil {
		return nil, err
	}
	return b.Observed(bucket.Events{Answered: m.pace.answered, Failed: m.failed, Works: m.works, Request: func(ctx context.Context, verb string) func(int64, error) {
		done := m.events.Request(ctx, m.Name, verb)
		if verb != "get" {
			return done
		}
		m.pace.ask(time.Now())
		return func(n int64, err error) {
			m.pace.came(time.Now(), n)
			done(n, err)
		}
	}}), nil
}

// failed tells that the store is out of order.
func (m *mount) failed(store string, attempt int, err error) {
	if m.outage.failed(time.Now()) {
		m.events.Failed(m.Name, store, attempt, err)
	}
}

// works tells that the store answers again, if it was told that it does not.
func (m *mount) works(store string) {
	if after, tell := m.outage.works(time.Now()); tell {
		m.events.Works(m.Name, store, after)
	}
}

// listing returns the newest listing, which it makes if the last one is older
// than the mount's refresh. Callers that come meanwhile wait for it.
func (m *mount) listing(ctx context.Context) (*listing, error) {
	if err := m.gate.enter(ctx); err != nil {
		return nil, err
	}
	defer m.gate.leave()
	if m.old(m.last) {
		next, err := m.list(ctx)
		if err != nil {
			return nil, err
		}
		m.last = next
	}
	return m.last, m.last.err
}

// leastAge is how old a listing gets, whatever readers find.
const leastAge = time.Second

// old tells whether to make another listing: because of its age, or because
// readers have found that it is not true any more.
func (m *mount) old(l *listing) bool {
	age := time.Since(l.began)
	return l.number == 0 || age >= m.refresh || age >= leastAge && l.began.UnixNano() < m.passed.Load()
}

// list makes a listing. A folder that cannot be listed is the error of its
// dataset; in a tree, which has no datasets then, it is the listing's.
func (m *mount) list(ctx context.Context) (*listing, error) {
	l := &listing{began: time.Now(), number: m.last.number + 1}
	d := newDiscovery(&m.Mount, l.number)
	err := m.walk(ctx, d)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	switch {
	case err != nil && m.Tree:
		l.err = err
		return l, nil
	case err != nil:
		d = newDiscovery(&m.Mount, l.number)
		d.set("").err = err
	}
	l.sets = d.finish(m.Name)
	for name, f := range l.sets {
		f.dataset = m.registry.meet(name, f.folder, m)
	}
	return l, nil
}

func (m *mount) walk(ctx context.Context, d *discovery) error {
	b, err := m.open()
	if err != nil {
		return err
	}
	if key := m.listFile(); key != "" {
		if d.listed, err = readList(ctx, b, key); err != nil {
			return errors.Join(err, b.Close())
		}
	}
	return errors.Join(b.List(ctx, "", d.visit), b.Close())
}

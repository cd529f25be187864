package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/headrace/headrace/storage/bucket"
)

// objects shares open objects between readers, so that many streams over one
// dataset do not need as many file descriptors.
type objects struct {
	mu   sync.Mutex
	open map[version]*shared
	idle []version // in stores, open without users; who was used last comes last
}

// maxIdle is how many objects in stores stay open without users: they remember
// their footers, each of which is a round trip.
const maxIdle = 256

// version is one object as pinned.
type version struct {
	dataset *dataset
	key     string
	pin     bucket.Pin
}

// shared is an open object with a count of its users, guarded by objects.mu.
type shared struct {
	gate  gate // held while it is being opened
	obj   *bucket.Object
	users int
}

// acquire opens an object, or joins those who have it open. Unless it fails,
// the function it returns must be called, once.
func (o *objects) acquire(ctx context.Context, v version) (*bucket.Object, func(), error) {
	o.mu.Lock()
	if o.open == nil {
		o.open = map[version]*shared{}
	}
	s := o.open[v]
	if s == nil {
		s = &shared{gate: newGate()}
		o.open[v] = s
	}
	if s.users++; s.users == 1 {
		o.idle = slices.DeleteFunc(o.idle, func(at version) bool { return at == v })
	}
	o.mu.Unlock()

	if err := s.join(ctx, v); err != nil {
		o.release(v, s)
		return nil, nil, err
	}
	return s.obj, func() { o.release(v, s) }, nil
}

// join opens the object unless another user already did.
func (s *shared) join(ctx context.Context, v version) error {
	if err := s.gate.enter(ctx); err != nil {
		return err
	}
	defer s.gate.leave()
	if s.obj != nil {
		return nil
	}
	b, err := v.dataset.mount.open()
	if err != nil {
		return err
	}
	s.obj, err = b.Under(v.dataset.folder).Open(ctx, v.key, v.pin)
	return errors.Join(err, b.Close())
}

// release ends one user's share; the last one closes the object.
func (o *objects) release(v version, s *shared) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s.users--; s.users > 0 {
		return
	}
	if s.obj != nil && s.obj.Remote() {
		if o.idle = append(o.idle, v); len(o.idle) <= maxIdle {
			return
		}
		v = o.idle[0]
		o.idle = slices.Delete(o.idle, 0, 1)
		s = o.open[v]
	}
	delete(o.open, v)
	if s.obj != nil {
		// It was only read: closing has nothing to tell.
		_ = s.obj.Close()
	}
}

func (o *objects) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, v := range o.idle {
		_ = o.open[v].obj.Close() // it was only read
		delete(o.open, v)
	}
	o.idle = nil
	if n := len(o.open); n > 0 {
		return fmt.Errorf("store closed with %d objects open", n)
	}
	return nil
}

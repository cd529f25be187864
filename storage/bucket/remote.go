package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// store is a bucket behind HTTP. Every method makes one try; its error is a
// *fault, or what broke the connection. What is written once for all of them is
// remote.
type store interface {
	// list returns a page of what begins with prefix, and what to ask for the
	// next one with; "" after the last.
	list(ctx context.Context, prefix, page string) ([]entry, string, error)
	// get asks for n bytes from off on of one version. With n = 0 it asks for no
	// bytes, of whatever version there is.
	get(ctx context.Context, key string, of stamp, off, n int64) (*answer, error)
	// change writes an object, or removes it if data is nil. To remove what is
	// not there is ErrNotFound, or no error.
	change(ctx context.Context, key string, data []byte) error
}

// entry is one object in a listing.
type entry struct {
	key string
	stamp
}

// stamp is what a store tells about a version of an object.
type stamp struct {
	size int64
	tag  string // its ETag or generation
	id   string // its version id; empty if the bucket keeps no versions, or nobody said yet
}

// versionMark comes before the version id in a pin.
const versionMark = " version "

func (s stamp) pin() Pin {
	p := strconv.FormatInt(s.size, 10) + " " + url.QueryEscape(s.tag)
	if s.id != "" {
		p += versionMark + url.QueryEscape(s.id)
	}
	return Pin(p)
}

// stampOf is the inverse of pin.
func stampOf(p Pin) (stamp, bool) {
	listed, id, _ := strings.Cut(string(p), versionMark)
	size, tag, ok := strings.Cut(listed, " ")
	n, err := strconv.ParseInt(size, 10, 64)
	s := stamp{size: n}
	var err1, err2 error
	s.tag, err1 = url.QueryUnescape(tag)
	s.id, err2 = url.QueryUnescape(id)
	return s, ok && err == nil && err1 == nil && err2 == nil && n >= 0 && s.tag != "" && s.pin() == p
}

// answer is what comes back for a get.
type answer struct {
	stamp               // of the version that the bytes are of
	body  io.ReadCloser // nil if no bytes were asked for
}

// remote is a bucket in a store.
type remote struct {
	name    string // scheme and bucket, for errors
	store   store
	options Options
	slots   chan struct{} // one for each request in flight
	idle    func()        // closes idle connections
}

// renewer is a store whose credentials can be thrown away for new ones.
type renewer interface{ renew() }

// attempt runs f, one try of a request, until it succeeds, fails for good, or
// has failed too often. f tells by moved whether it got anywhere: then the
// count starts anew.
func (r *remote) attempt(ctx context.Context, e Events, what string, f func(ctx context.Context) (moved bool, err error)) error {
	for failed := 0; ; {
		began := time.Now()
		moved, err := r.once(ctx, f)
		if err == nil {
			e.tried(r.name, 0, 0, nil)
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if moved {
			failed = 0
		}
		failed++
		bad := faultOf(err)
		e.tried(r.name, failed, time.Since(began), bad)
		if bad.expired {
			if s, ok := r.store.(renewer); ok {
				s.renew()
			}
		}
		switch {
		case bad.what != trouble:
			return bad
		case bad.final:
			return fmt.Errorf("%w: %s: %s: %w", ErrUnreachable, r.name, what, bad)
		case failed >= r.options.Tries:
			return fmt.Errorf("%w: %s: %s: %d times in a row, at last: %w", ErrUnreachable, r.name, what, failed, bad)
		}
		if err := sleep(ctx, max(bad.after, r.pause(failed))); err != nil {
			return err
		}
	}
}

// once makes one try, as soon as fewer than the most requests are in flight.
func (r *remote) once(ctx context.Context, f func(ctx context.Context) (bool, error)) (bool, error) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
		return f(ctx)
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// pause is drawn at random, so that those who failed together do not come back
// together.
func (r *remote) pause(failed int) time.Duration {
	most := r.options.Backoff << min(failed-1, 10)
	return rand.N(min(most, 100*r.options.Backoff)) + 1
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// request makes one try under a watch and reports it.
func (r *remote) request(ctx context.Context, e Events, verb string, f func(ctx context.Context, alive func()) (int64, error)) (n int64, err error) {
	if e.Request != nil {
		done := e.Request(ctx, verb)
		defer func() { done(n, err) }()
	}
	ctx, alive, stop := watched(ctx, r.options.Patience)
	defer stop()
	if e.Answered != nil {
		alive = timed(alive, e.Answered)
	}
	n, err = f(ctx, alive)
	if err != nil && errors.Is(context.Cause(ctx), errStalled) {
		err = errStalled
	}
	return n, err
}

// timed tells when it was first called.
func timed(alive func(), tell func(after time.Duration)) func() {
	began, told := time.Now(), false
	return func() {
		if alive(); !told {
			told = true
			tell(time.Since(began))
		}
	}
}

// open returns an object. With a pin no request is made: the first read finds
// out whether that version is still there.
func (r *remote) open(ctx context.Context, key, name string, pin Pin, e Events) (*Object, error) {
	v := &held{in: r, key: key, name: name, events: e}
	of, ok := stampOf(pin)
	switch {
	case pin == "":
		err := r.attempt(ctx, e, fmt.Sprintf("look at %q", key), func(ctx context.Context) (bool, error) {
			_, err := r.request(ctx, e, "get", func(ctx context.Context, _ func()) (int64, error) {
				a, err := r.store.get(ctx, name, stamp{}, 0, 0)
				if err != nil {
					return 0, err
				}
				if of = a.stamp; of.tag == "" {
					return 0, &fault{what: unversioned, final: true}
				}
				return 0, nil
			})
			return false, err
		})
		if err != nil {
			return nil, explain(key, err)
		}
	case !ok:
		return nil, fmt.Errorf("%w: %q was pinned in another place", ErrChanged, key)
	}
	v.at.Store(&of)
	return &Object{key: key, size: of.size, in: v}, nil
}

// explain turns what a store says of one object into this package's errors.
func explain(key string, err error) error {
	switch f := (*fault)(nil); {
	case errors.As(err, &f) && f.what == absent:
		return &refusal{key, ErrNotFound}
	case errors.As(err, &f) && f.what == unversioned:
		return fmt.Errorf("%q: %w", key, ErrUnversioned)
	case errors.As(err, &f) && f.what == replaced:
		return fmt.Errorf("%w: %q is no longer the version listed, a new plan will have the new one (%w)", ErrChanged, key, f)
	}
	return err
}

// put writes an object.
func (r *remote) put(ctx context.Context, name string, data []byte, e Events) error {
	if data == nil {
		data = []byte{}
	}
	return r.change(ctx, "put", name, data, e)
}

// remove removes an object.
func (r *remote) remove(ctx context.Context, name string, e Events) error {
	err := r.change(ctx, "remove", name, nil, e)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

func (r *remote) change(ctx context.Context, verb, name string, data []byte, e Events) error {
	err := r.attempt(ctx, e, fmt.Sprintf("%s %q", verb, name), func(ctx context.Context) (bool, error) {
		_, err := r.request(ctx, e, verb, func(ctx context.Context, _ func()) (int64, error) {
			return int64(len(data)), r.store.change(ctx, name, data)
		})
		return false, err
	})
	return explain(name, err)
}

// held is an object of a store, held to one version.
type held struct {
	in        *remote
	key, name string
	events    Events
	at        atomic.Pointer[stamp]
	tail      atomic.Pointer[ending]
	closed    atomic.Bool
}

// ending is the bytes from off on, up to the end of an object or just before it.
// That is where formats keep what is read again whenever something of the object
// is: it is remembered, if it is not much.
type ending struct {
	off   int64
	bytes []byte
}

const (
	maxEnding = 64 << 10
	// nearEnd is how far from the end an ending may end: a footer has its length behind it.
	nearEnd = 16
)

func (h *held) pin() Pin { return h.at.Load().pin() }

func (h *held) close() error {
	h.closed.Store(true)
	return nil
}

// readAt fills p. A body that is cut short is taken up where it ended.
func (h *held) readAt(ctx context.Context, p []byte, off int64) error {
	if h.closed.Load() {
		return fmt.Errorf("%w: read %q: it was closed", ErrUnreachable, h.key)
	}
	if len(p) == 0 {
		return nil
	}
	if t := h.tail.Load(); t != nil && off >= t.off && off+int64(len(p)) <= t.off+int64(len(t.bytes)) {
		copy(p, t.bytes[off-t.off:])
		return nil
	}
	back := waits(ctx)
	err := h.get(ctx, p, off)
	if back(); err != nil {
		return err
	}
	if end := off + int64(len(p)); len(p) <= maxEnding && end >= h.at.Load().size-nearEnd {
		h.tail.Store(&ending{off, bytes.Clone(p)})
	}
	return nil
}

// get fills p from the store.
func (h *held) get(ctx context.Context, p []byte, off int64) error {
	var done int
	what := fmt.Sprintf("read %q, bytes %d to %d", h.key, off, off+int64(len(p)))
	return explain(h.key, h.in.attempt(ctx, h.events, what, func(ctx context.Context) (bool, error) {
		n, err := h.in.request(ctx, h.events, "get", func(ctx context.Context, alive func()) (int64, error) {
			return h.fetch(ctx, p[done:], off+int64(done), alive)
		})
		done += int(n)
		return n > 0, err
	}))
}

// fetch fills p with one request, as far as its answer goes.
func (h *held) fetch(ctx context.Context, p []byte, off int64, alive func()) (int64, error) {
	of := *h.at.Load()
	a, err := h.in.store.get(ctx, h.name, of, off, int64(len(p)))
	if err != nil {
		return 0, err
	}
	defer func() { _ = a.body.Close() }() // all that matters was read, or is asked for again
	// A store that takes no notice of the condition must not go unnoticed.
	if a.size != of.size || a.tag != of.tag {
		return 0, &fault{what: replaced, final: true, text: "other bytes have its name now"}
	}
	var n int
	for n < len(p) && err == nil {
		alive()
		var m int
		m, err = a.body.Read(p[n:])
		n += m
	}
	if n == len(p) {
		if a.id != "" && of.id == "" {
			of.id = a.id
			h.at.Store(&of)
		}
		return int64(n), nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return int64(n), err
}

// Package bucket lists and reads exact versions of objects, whole or by range, with retries; local folders included.
//
// A bucket is a local folder, or lies in a store that is reached over HTTP: S3
// and what speaks like it, Google Cloud Storage, Azure Blob Storage. What all of
// these promise alike is written once, in remote.go; a store itself (s3.go,
// gcs.go, azure.go, mem.go) lists a page, gets a range of one version, and puts
// or removes one object, each in one try. Keys go to the stores as they are:
// none is escaped in a way of our own, so whatever others wrote can be read.
package bucket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

var (
	// ErrNotFound means that there is definitely no such object.
	ErrNotFound = errors.New("object not found")
	// ErrChanged means that the object is no longer the version asked for.
	ErrChanged = errors.New("object changed")
	// ErrNotRegular means that the name belongs to something without bytes of
	// its own: a folder, a FIFO, a socket, a device.
	ErrNotRegular = errors.New("not a regular file")
	// ErrOutside means that the name leads out of the bucket.
	ErrOutside = errors.New("outside the bucket")
	// ErrUnversioned means that the store tells nothing by which a reader could be
	// held to one version of the object.
	ErrUnversioned = errors.New("the store tells neither ETag nor generation, so nobody could see whether the object changes while it is read: upload it through the store itself")
	// ErrTruncated means that the object ends before the range asked for does.
	ErrTruncated = errors.New("object is truncated")
	// ErrUnreachable means that the system or the store refused or failed: a
	// folder that does not open, a missing permission, a bad disk, a store that
	// still answers with errors after all retries. Trying again may help.
	ErrUnreachable = errors.New("storage cannot be reached")
)

// Pin names the exact bytes of an object: opaque and comparable. For a local
// file it is made of device, inode, size and the times of its last change.
// Writing to a file moves its times by the kernel's clock, so two changes
// within one tick (a few milliseconds on older kernels) can share a pin. In a
// store it is made of the size and the ETag or generation, and of the version
// id once the store has told it.
type Pin string

// Lists tells whether an object with pin p is the version that a listing shows
// with pin listed. Listings do not tell all that a pin can hold.
func (p Pin) Lists(listed Pin) bool {
	return p == listed || listed != "" && strings.HasPrefix(string(p), string(listed)+versionMark)
}

// Attrs is what a listing tells about one object.
type Attrs struct {
	Key  string
	Size int64
	Pin  Pin
	Err  error // why the object cannot be read; nil if it can
}

// Events are called as requests go to a store; nil ones are not called. They
// must not block.
type Events struct {
	// Request is called when a try of a request begins; what it returns, when it
	// is over, with the bytes of objects that came or went. verb is "get",
	// "list", "put" or "remove".
	Request func(ctx context.Context, verb string) func(bytes int64, err error)
	// Answered is called when the first bytes of an object come that a request
	// asked for, with the time since it was sent.
	Answered func(after time.Duration)
	// Failed is called when a store is out of order: a request that will be tried
	// again failed several times in a row, or took very long to fail, or there is
	// nobody to ask. What a store answers about an object is no such trouble.
	Failed func(store string, attempt int, err error)
	// Works is called when a store has answered a request.
	Works func(store string)
}

// tried tells how a try of a request went, for the so-manieth time in a row.
func (e Events) tried(store string, attempt int, took time.Duration, bad *fault) {
	switch {
	case bad == nil || bad.what != trouble || bad.final && bad.status != 0:
		if e.Works != nil {
			e.Works(store)
		}
	case e.Failed != nil && (attempt >= outTries || took >= outTime || bad.final):
		e.Failed(store, attempt, bad)
	}
}

// A store that fails now and then is in order.
const (
	outTries = 3
	outTime  = 10 * time.Second
)

// Bucket holds objects under keys, which are slash-separated paths. It is one
// local folder, out of which no name or link leads, or all under one prefix of
// a bucket in a store. It is safe for concurrent use.
type Bucket struct {
	local  *folder
	remote *remote // nil for a local one
	under  string  // what is put before every key: empty, or ends in a slash
	events Events
	close  func() error
}

// Open opens what a path or a URL leads to, with clients of its own that are
// closed with the bucket. See Clients.Open.
func Open(url string) (*Bucket, error) {
	c := NewClients(Options{})
	b, err := c.Open(url)
	if err != nil {
		return nil, err
	}
	inner := b.close
	b.close = func() error { c.Close(); return inner() }
	return b, nil
}

// Under returns b seen from one of its folders: keys are relative to it, links
// may still lead anywhere in b. It is closed with b.
func (b *Bucket) Under(folder string) *Bucket {
	view := *b
	if folder != "" {
		view.under += strings.TrimSuffix(folder, "/") + "/"
	}
	return &view
}

// Observed returns b with e called for the requests that it makes. It is closed
// with b.
func (b *Bucket) Observed(e Events) *Bucket {
	view := *b
	view.events = e
	return &view
}

// Close closes the bucket; open objects of local folders stay usable.
func (b *Bucket) Close() error { return b.close() }

// Open opens the object key for reading. A pin other than "" asks for exactly
// that version: anything else is ErrChanged, at the latest when it is read. A key
// that is no proper name, or leads out of the folder through a link, is answered
// like one that is not there, so the answer tells nothing of what lies elsewhere.
// In a local folder it never waits for a FIFO, socket or device: those are
// ErrNotRegular. In a store it sends no request if the pin is known.
func (b *Bucket) Open(ctx context.Context, key string, pin Pin) (*Object, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !validKey(key) {
		return nil, &refusal{key, ErrOutside}
	}
	if b.remote != nil {
		return b.remote.open(ctx, key, b.under+key, pin, b.events)
	}
	return b.local.open(key, b.under+key, pin)
}

// List yields everything under prefix, sorted bytewise by key, and stops at
// the first error of yield. Folders come as keys that end in a slash, before
// what they hold; yield may answer fs.SkipDir to leave one out. What cannot be
// read is listed too, with the reason in Err: FIFOs, sockets, devices, links
// that lead out of the folder or to another folder, keys of a store that are no
// paths, and, a second time, folders that do not open. Folder links are not
// followed. What vanishes meanwhile is left out.
func (b *Bucket) List(ctx context.Context, prefix string, yield func(Attrs) error) error {
	if prefix != "" && !validKey(strings.TrimSuffix(prefix, "/")) {
		return fmt.Errorf("list %q: %w", prefix, ErrOutside)
	}
	if b.remote != nil {
		return b.remote.list(ctx, b.under, prefix, yield, b.events)
	}
	return b.local.list(ctx, b.under, prefix, yield)
}

// Put writes an object, whole or not at all, in place of what was there. It is
// for small ones: data is sent again when a try fails.
func (b *Bucket) Put(ctx context.Context, key string, data []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !validKey(key) {
		return &refusal{key, ErrOutside}
	}
	if b.remote != nil {
		return b.remote.put(ctx, b.under+key, data, b.events)
	}
	return b.local.put(key, b.under+key, data)
}

// Remove removes an object. One that is not there is no error.
func (b *Bucket) Remove(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !validKey(key) {
		return &refusal{key, ErrOutside}
	}
	if b.remote != nil {
		return b.remote.remove(ctx, b.under+key, b.events)
	}
	return b.local.remove(key, b.under+key)
}

// validKey accepts clean relative slash paths only: no "..", no empty parts,
// nothing absolute, no NUL. Escapes such as %2f mean nothing: keys are taken
// as they are.
func validKey(key string) bool {
	return fs.ValidPath(key) && key != "." && !strings.ContainsRune(key, 0)
}

// refusal is the one answer to names without an object behind them. Its text
// is the same for all of them; its cause is for code that must tell them apart.
type refusal struct {
	key   string
	cause error
}

func (r *refusal) Error() string { return fmt.Sprintf("%v: %q", ErrNotFound, r.key) }

func (r *refusal) Is(target error) bool { return target == ErrNotFound || target == r.cause }

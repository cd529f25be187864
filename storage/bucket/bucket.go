// Package bucket lists and reads exact versions of objects, whole or by range; local folders included.
package bucket

import (
	"context"
	"errors"
	"io"
)

var (
	// ErrNotFound means that there is definitely no such object.
	ErrNotFound = errors.New("object not found")
	// ErrChanged means that the object is no longer the version asked for.
	ErrChanged = errors.New("object changed")
	// ErrNotRegular means that the name belongs to something without bytes of
	// its own: a FIFO, a socket, a device.
	ErrNotRegular = errors.New("not a regular file")
	// ErrOutside means that the name leads, or may lead, out of the bucket.
	ErrOutside = errors.New("outside the bucket")
	// ErrTruncated means that the object ends before the range asked for does.
	ErrTruncated = errors.New("object is truncated")
)

// Pin names the exact bytes of an object: opaque and comparable.
type Pin string

// Attrs is what a listing tells about one object.
type Attrs struct {
	Key  string
	Size int64
	Pin  Pin
	Err  error // why the object cannot be read; nil if it can
}

// Bucket is one folder of objects.
type Bucket struct{}

// Open opens the folder root: a path or a file:// URL.
func Open(root string) (*Bucket, error) { return nil, nil }

// List yields every object under prefix, sorted bytewise by key.
func (b *Bucket) List(ctx context.Context, prefix string, yield func(Attrs) error) error { return nil }

// Open opens the object key for reading.
func (b *Bucket) Open(ctx context.Context, key string, pin Pin) (*Object, error) { return nil, nil }

// Close closes the folder; open objects stay usable.
func (b *Bucket) Close() error { return nil }

// Object is one open version of an object.
type Object struct{}

// ReadAt fills p from off or fails.
func (o *Object) ReadAt(ctx context.Context, p []byte, off int64) error { return nil }

// ReaderAt returns o as an io.ReaderAt whose reads end with ctx.
func (o *Object) ReaderAt(ctx context.Context) io.ReaderAt { return nil }

// Size returns the object's length in bytes.
func (o *Object) Size() int64 { return 0 }

// Key returns the object's name in its bucket.
func (o *Object) Key() string { return "" }

// Pin returns what names these exact bytes.
func (o *Object) Pin() Pin { return "" }

// Close closes the object.
func (o *Object) Close() error { return nil }

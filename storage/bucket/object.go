package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// Object is one open version of an object. It is safe for concurrent use.
//
// A local one keeps its file open: its old bytes stay readable when the name is
// removed or another file is renamed over it; once the file itself is written to
// or truncated, every read fails with ErrChanged. In a store each read asks for
// the version: it fails with ErrChanged, or ErrNotFound, once that is gone.
type Object struct {
	key   string
	size  int64
	in    content
	clock *Clock // of its reads; nil: nobody asks
}

// content is where the bytes of an object are.
type content interface {
	readAt(ctx context.Context, p []byte, off int64) error // all of p, within the size
	pin() Pin
	close() error
}

// ReadAt fills all of p with the bytes from off on, or fails: with
// ErrTruncated when the object ends before, with ErrChanged when it is no longer
// what was opened. After an error p holds nothing of use.
func (o *Object) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if off < 0 || off > o.size || int64(len(p)) > o.size-off {
		return fmt.Errorf("%w: %q has %d bytes, bytes %d to %d are missing", ErrTruncated, o.key, o.size, max(off, o.size), off+int64(len(p)))
	}
	if o.clock != nil {
		o.clock.start()
		defer o.clock.stop()
	}
	return o.in.readAt(ctx, p, off)
}

// ReaderAt returns o as an io.ReaderAt whose reads fail once ctx is done. As
// that interface wants it, a read beyond the end is short with io.EOF.
func (o *Object) ReaderAt(ctx context.Context) io.ReaderAt { return readerAt{ctx, o} }

type readerAt struct {
	ctx context.Context
	o   *Object
}

func (r readerAt) ReadAt(p []byte, off int64) (int, error) {
	var end error
	if left := max(0, r.o.size-off); off >= 0 && int64(len(p)) > left {
		p, end = p[:left], io.EOF
		off = min(off, r.o.size)
	}
	if err := r.o.ReadAt(r.ctx, p, off); err != nil {
		return 0, err
	}
	return len(p), end
}

// Remote tells whether the object lies in a store, where a read costs a round
// trip and several are best made at once.
func (o *Object) Remote() bool {
	_, local := o.in.(*file)
	return !local
}

// Descriptor calls use with the open file behind the object, for what only the
// system can do with it. The number is good until use returns. Objects in stores
// have none.
func (o *Object) Descriptor(use func(fd uintptr)) error {
	f, local := o.in.(*file)
	if !local {
		return errors.ErrUnsupported
	}
	c, err := f.f.SyscallConn()
	if err != nil {
		return err
	}
	return c.Control(use)
}

// Size returns the object's length in bytes.
func (o *Object) Size() int64 { return o.size }

// Key returns the object's name in its bucket.
func (o *Object) Key() string { return o.key }

// Pin returns what names these exact bytes. In a store it may tell more once
// something was read.
func (o *Object) Pin() Pin { return o.in.pin() }

// Close closes the object; reads after it fail.
func (o *Object) Close() error { return o.in.close() }

// file is a local object.
type file struct {
	key  string
	f    *os.File
	as   Pin
	seen atomic.Pointer[version] // as last found unchanged
}

func newFile(key string, f *os.File) (*Object, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("%w: open %q: %w", ErrUnreachable, key, reason(err))
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %q is a %s", ErrNotRegular, key, kind(info.Mode()))
	}
	v := versionOf(info)
	o := &file{key: key, f: f, as: v.pin()}
	o.seen.Store(&v)
	return &Object{key: key, size: info.Size(), in: o}, nil
}

func (o *file) readAt(_ context.Context, p []byte, off int64) error {
	_, err := o.f.ReadAt(p, off)
	// Look only after reading: what changes later cannot be in p any more. It
	// also explains a read that came out short.
	if changed := o.check(); changed != nil {
		return changed
	}
	if err != nil {
		return fmt.Errorf("%w: read %q at %d: %w", ErrUnreachable, o.key, off, reason(err))
	}
	return nil
}

func (o *file) check() error {
	info, err := o.f.Stat()
	if err != nil {
		return fmt.Errorf("%w: read %q: %w", ErrUnreachable, o.key, reason(err))
	}
	was, is := o.seen.Load(), versionOf(info)
	if is == *was {
		return nil
	}
	if !is.sameBytes(*was) {
		return fmt.Errorf("%w: %q was written to while it was being read", ErrChanged, o.key)
	}
	o.seen.Store(&is)
	return nil
}

func (o *file) pin() Pin { return o.as }

func (o *file) close() error { return o.f.Close() }

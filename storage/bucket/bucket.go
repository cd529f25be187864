// Package bucket lists and reads exact versions of objects, whole or by range; local folders included.
package bucket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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
	// ErrTruncated means that the object ends before the range asked for does.
	ErrTruncated = errors.New("object is truncated")
	// ErrUnreachable means that the system refused or failed: a folder that
	// does not open, a missing permission, a bad disk. Trying again may help.
	ErrUnreachable = errors.New("storage cannot be reached")
)

// Pin names the exact bytes of an object: opaque and comparable. For a local
// file it is made of device, inode, size and the times of its last change.
// Writing to a file moves its times by the kernel's clock, so two changes
// within one tick (a few milliseconds on older kernels) can share a pin.
type Pin string

// Bucket is one local folder of objects. Keys are slash-separated paths below
// it; nothing outside it can be reached, by whatever name or link.
type Bucket struct {
	root    *os.Root
	escapes error  // what root says when a name leads out of it
	under   string // what is put before every key: empty, or ends in a slash
}

// Open opens the folder root: a path or a file:// URL. ErrUnreachable does not
// name it, since the text may reach those who need not know where data lies.
func Open(root string) (*Bucket, error) {
	path, err := localPath(root)
	if err != nil {
		return nil, err
	}
	r, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("%w: the folder does not open: %w", ErrUnreachable, reason(err))
	}
	// The error is not exported, so the one way to know it is to provoke it.
	_, out := r.Lstat("..")
	return &Bucket{root: r, escapes: errors.Unwrap(out)}, nil
}

func localPath(root string) (string, error) {
	scheme, _, ok := strings.Cut(root, "://")
	if !ok {
		return root, nil
	}
	u, err := url.Parse(root)
	if err != nil {
		return "", fmt.Errorf("open bucket: %w", err)
	}
	if scheme != "file" {
		return "", fmt.Errorf("open bucket %q: only local folders (file://) are supported", u.Redacted())
	}
	if u.Host != "" && u.Host != "localhost" {
		return "", fmt.Errorf("open bucket %q: a file URL names no other host", root)
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("open bucket %q: a file URL has no parameters", root)
	}
	return u.Path, nil
}

// Base returns the name of the folder that root, as for Open, leads to: the
// last part of its absolute path.
func Base(root string) (string, error) {
	p, err := localPath(root)
	if err != nil {
		return "", err
	}
	abs, err := filepath.Abs(p)
	if err != nil {
		return "", fmt.Errorf("name of folder %q: %w", root, err)
	}
	return filepath.Base(abs), nil
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

// Close closes the folder; open objects stay usable.
func (b *Bucket) Close() error { return b.root.Close() }

// Open opens the object key for reading. It never waits for a FIFO, socket or
// device: those are ErrNotRegular. A pin other than "" asks for exactly that
// version: anything else is ErrChanged. A key that is no proper name, or leads
// out of the folder through a link, is answered like one that is not there,
// so the answer tells nothing of what lies elsewhere.
func (b *Bucket) Open(ctx context.Context, key string, pin Pin) (*Object, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !validKey(key) {
		return nil, &refusal{key, ErrOutside}
	}
	info, err := b.root.Stat(b.under + key)
	if err != nil {
		return nil, b.openError(key, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %q is a %s", ErrNotRegular, key, kind(info.Mode()))
	}
	f, err := b.root.OpenFile(b.under+key, openFlags, 0)
	if err != nil {
		return nil, b.openError(key, err)
	}
	o, err := newObject(key, f)
	if err == nil && pin != "" && o.pin != pin {
		err = fmt.Errorf("%w: %q is another version than the one listed", ErrChanged, key)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return o, nil
}

func (b *Bucket) openError(key string, err error) error {
	switch {
	case errors.Is(err, b.escapes):
		return &refusal{key, ErrOutside}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return &refusal{key, ErrNotFound}
	}
	return fmt.Errorf("%w: open %q: %w", ErrUnreachable, key, reason(err))
}

// reason strips the path from a path error: the key is named already, and the
// folder's place on this machine is nobody's business.
func reason(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
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

func kind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "folder"
	case m&fs.ModeNamedPipe != 0:
		return "FIFO"
	case m&fs.ModeSocket != 0:
		return "socket"
	case m&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}

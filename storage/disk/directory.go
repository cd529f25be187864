package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// directory is where blocks lie, as it was entered: should it be deleted, its files can be read by those who have them
// open, and no others.
type directory struct {
	path string
	root *os.Root
	held *os.File // the lock
}

// errGone means that somebody has deleted the directory.
var errGone = errors.New("the directory was deleted")

// enter makes the directory within another one and takes its lock, for which it waits so long.
func enter(ctx context.Context, within string, wait time.Duration) (d *directory, err error) {
	d = &directory{path: filepath.Join(within, folder)}
	if err := os.MkdirAll(d.path, 0o700); errors.Is(err, syscall.ENOTDIR) {
		return nil, fmt.Errorf("%s: %w", d.path, ErrNoDirectory)
	} else if err != nil {
		return nil, err
	}
	if d.root, err = os.OpenRoot(d.path); err == nil {
		err = d.lock(ctx, wait)
	}
	if err != nil {
		d.leave()
		return nil, err
	}
	return d, nil
}

func (d *directory) leave() {
	if d.held != nil {
		_ = d.held.Close() // which gives the lock back
	}
	if d.root != nil {
		_ = d.root.Close()
	}
}

// gone tells whether the directory is no longer where it was.
func (d *directory) gone() bool {
	here, err := d.root.Stat(".")
	there, failed := os.Stat(d.path)
	return errors.Is(failed, fs.ErrNotExist) || err == nil && failed == nil && !os.SameFile(here, there)
}

// open opens a file for reading, and tells its size. What has the name and is no file is damage: it will not become one
// again.
func (d *directory) open(name string) (*os.File, int64, error) {
	f, err := d.root.OpenFile(name, os.O_RDONLY|quietly, 0)
	if err != nil {
		if info, statErr := d.root.Lstat(name); statErr == nil && !info.Mode().IsRegular() { // as a socket, or a link that leads nowhere
			err = damagedf("it is no file: %v", err)
		}
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = damagedf("it is no file")
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// remove deletes a file with a name of ours, if it is ours by what it holds too. It tells whether the name is free.
func (d *directory) remove(name string) (bool, error) {
	f, _, err := d.open(name)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist), nil
	}
	mine := ours(f)
	if err := f.Close(); err != nil || !mine {
		return false, err
	}
	if err := d.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return true, nil
}

// renew makes the directory again if somebody has deleted it, and all blocks with it.
func (t *Tier) renew() error {
	t.renewal.Lock()
	defer t.renewal.Unlock()
	old := t.dir.Load()
	if !old.gone() {
		return nil
	}
	fresh, err := enter(t.ctx, t.options.Dir, 0)
	if err != nil {
		return err
	}
	t.former = append(t.former, old)
	t.dir.Store(fresh)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.index.clear()
	return nil
}

package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// lockName is the file whose lock says whose the directory is. It holds a process id, for people.
const lockName = "lock"

// openLock opens the file of the lock, or makes it. It is going to be overwritten: so somebody else's that has the name is
// not taken for it, and neither is what a link leads to.
func (d *directory) openLock() (err error) {
	foreign := fmt.Errorf("%s: %w", filepath.Join(d.path, lockName), errTaken)
	if info, err := d.root.Lstat(lockName); err == nil && !info.Mode().IsRegular() {
		return foreign
	}
	if d.held, err = d.root.OpenFile(lockName, os.O_RDWR|os.O_CREATE|quietly, 0o600); err != nil {
		return err
	}
	b := make([]byte, mostHeld)
	n, err := d.held.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if n == len(b) || strings.Trim(string(b[:n]), "0123456789\n") != "" {
		return foreign
	}
	return nil
}

// mostHeld is more bytes than a process id has.
const mostHeld = 24

// lock waits for the lock and writes down whose it is.
func (d *directory) lock(ctx context.Context, wait time.Duration) error {
	const again = 50 * time.Millisecond
	if err := d.openLock(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		taken, err := lock(d.held)
		if err != nil {
			return err
		}
		if !taken {
			break
		}
		select {
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return ctx.Err()
			}
			return fmt.Errorf("%s: %w by process %s", filepath.Dir(d.path), ErrBusy, d.holder())
		case <-time.After(again):
		}
	}
	if err := d.held.Truncate(0); err != nil {
		return err
	}
	_, err := d.held.WriteAt(fmt.Appendln(nil, os.Getpid()), 0)
	return err
}

// holder is the process that has the lock, by its own word.
func (d *directory) holder() string {
	b := make([]byte, mostHeld)
	n, _ := d.held.ReadAt(b, 0)
	return strings.TrimSpace(string(b[:n]))
}

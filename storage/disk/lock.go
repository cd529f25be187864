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
func (t *Tier) openLock() (err error) {
	foreign := fmt.Errorf("%s: %w", filepath.Join(t.options.Dir, folder, lockName), errTaken)
	if info, err := t.root.Lstat(lockName); err == nil && !info.Mode().IsRegular() {
		return foreign
	}
	if t.held, err = t.root.OpenFile(lockName, os.O_RDWR|os.O_CREATE|quietly, 0o600); err != nil {
		return err
	}
	b := make([]byte, mostHeld)
	n, err := t.held.ReadAt(b, 0)
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
func (t *Tier) lock(ctx context.Context) error {
	const again = 50 * time.Millisecond
	if err := t.openLock(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, t.options.Wait)
	defer cancel()
	for {
		taken, err := lock(t.held)
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
			return fmt.Errorf("%s: %w by process %s", t.options.Dir, ErrBusy, t.holder())
		case <-time.After(again):
		}
	}
	if err := t.held.Truncate(0); err != nil {
		return err
	}
	_, err := t.held.WriteAt(fmt.Appendln(nil, os.Getpid()), 0)
	return err
}

// holder is the process that has the lock, by its own word.
func (t *Tier) holder() string {
	b := make([]byte, mostHeld)
	n, _ := t.held.ReadAt(b, 0)
	return strings.TrimSpace(string(b[:n]))
}

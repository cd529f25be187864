package arrowfile

import (
	"errors"
	"fmt"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

// Causes become part of a snapshot's identity: they must not depend on the
// machine, the folder or the moment, only on the bytes of the object.

func corruptf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", snapshot.ErrCorrupt, fmt.Sprintf(format, args...))
}

func unsupportedf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", snapshot.ErrUnsupported, fmt.Sprintf(format, args...))
}

// inObject names the object, and gives damage that the copier found the class
// that damage has here.
func inObject(key string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, frame.ErrCorrupt) && !errors.Is(err, snapshot.ErrCorrupt):
		return fmt.Errorf("%s: %w: %w", key, snapshot.ErrCorrupt, err)
	}
	return fmt.Errorf("%s: %w", key, err)
}

// inColumn says which column an error is about.
func inColumn(name string, err error) error {
	return fmt.Errorf("column %q: %w", name, err)
}

// guard turns a panic of a library over foreign bytes into an error. The
// allocator panics too, when memory runs out: that is not the file's fault.
func guard(err *error) {
	switch p := recover().(type) {
	case nil:
	case error:
		if errors.Is(p, budget.ErrExhausted) || errors.Is(p, budget.ErrTooLarge) {
			*err = p
			return
		}
		*err = corruptf("reading it failed: %v", p)
	default:
		*err = corruptf("reading it failed: %v", p)
	}
}

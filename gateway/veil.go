package gateway

import (
	"errors"
	"fmt"

	"github.com/headrace/headrace/auth"
	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/snapshot"
)

// telling are the errors of files whose texts may name columns.
var telling = []error{schema.ErrMismatch, schema.ErrDuplicate, snapshot.ErrUnsupported, snapshot.ErrCorrupt}

// veiled is an error that says less than it knows: the rest is for the log.
type veiled struct {
	cause error
	text  string
}

func (v *veiled) Error() string { return v.text }
func (v *veiled) Unwrap() error { return v.cause }

// veil leaves only the kind of an error that is about a dataset's files, unless all columns are granted: its text may name
// others than those that are.
func veil(err error, dataset string, granted auth.Columns) error {
	if granted.All() {
		return err
	}
	for _, kind := range telling {
		if errors.Is(err, kind) {
			return &veiled{err, fmt.Sprintf("dataset %q: %v: more is told to those who may read all columns", dataset, kind)}
		}
	}
	return err
}

// unveiled is all that an error knows.
func unveiled(err error) error {
	var v *veiled
	if errors.As(err, &v) {
		return v.cause
	}
	return err
}

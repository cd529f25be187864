package sampler

import "errors"

// ErrBorder says that a place lies within a step, or beyond the last one.
var ErrBorder = errors.New("not at a step border")

// ErrShort says that the rows do not fill a single batch, so that dropping the tail would drop everything.
var ErrShort = errors.New("fewer rows than one batch")

// Tail says what becomes of the rows after the last full batch.
type Tail int

// What the rows after the last full batch can become.
const (
	Keep Tail = iota // they are a last, shorter step
	Drop             // they are left out, and counted
	Pad              // they are a last step, filled up with rows of the epoch's end
)

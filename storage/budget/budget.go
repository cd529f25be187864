// Package budget is the ledger of memory: reservations, grants, the one limit.
package budget

import (
	"context"
	"errors"
)

// Errors of this package; they come wrapped with the numbers.
var (
	// ErrTooLarge means that the need exceeds the limit and can never be met.
	ErrTooLarge = errors.New("larger than the memory limit")
	// ErrExhausted means that no memory is free now.
	ErrExhausted = errors.New("memory exhausted")
	// ErrTimeout means that the deadline passed while waiting in line.
	ErrTimeout = errors.New("no memory in time")
)

// Kind says what charged memory is used for.
type Kind string

// The kinds of memory that are counted apart.
const (
	Frames  Kind = "frames"
	Input   Kind = "input"
	Scratch Kind = "scratch"
	Batches Kind = "batches"
)

// Options of a Ledger.
type Options struct {
	Limit int64 // bytes, the most that is ever reserved
}

// Stats are the numbers of a ledger at one moment.
type Stats struct {
	Limit    int64          // bytes
	Reserved int64          // bytes admitted and not yet returned
	Used     map[Kind]int64 // bytes charged, by kind; kinds at zero are left out
	Waiting  int            // callers in line
	Grants   int            // grants that are open
}

// Ledger shares out one limit of memory.
type Ledger struct{}

// Grant is a share of the ledger.
type Grant struct{}

// New makes a ledger.
func New(Options) *Ledger { panic("unfinished") }

// Admit reserves need bytes.
func (l *Ledger) Admit(ctx context.Context, need int64) (*Grant, error) { panic("unfinished") }

// Stats returns the numbers of now.
func (l *Ledger) Stats() Stats { panic("unfinished") }

// Charge takes n bytes.
func (g *Grant) Charge(k Kind, n int64) error { panic("unfinished") }

// Credit gives n bytes back.
func (g *Grant) Credit(k Kind, n int64) { panic("unfinished") }

// Close returns what is not charged.
func (g *Grant) Close() { panic("unfinished") }

// Package budget is the ledger of memory: reservations, grants, the one limit.
//
// Memory is given out in three ways, none of which can block another for ever:
//
//   - A [Grant] is a holder's own share. It is admitted whole, first come first
//     served. Who waits in line holds nothing, and who holds never waits in line:
//     a grant grows only by what is free at once. A [Place] is for those who know
//     what they need only when their turn has come.
//   - A loan is what is only good to have. It takes what is free while nobody
//     waits, and its holder gives it back soon when it is told to. The [Keeper]
//     has what is kept in case it is asked for again: on loan, too, but given
//     back piece by piece, and before anybody is refused.
//   - The one large slot is for decoding what outgrew its grant. It is set
//     aside; while nobody decodes in it, only loans may fill it.
//
// What streams share, and who among them waits for whom, is not known here: a
// grant may be cut in two, and a charge may pass from one grant to another.
package budget

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"
)

// Errors of this package; they come wrapped with the numbers.
var (
	// ErrTooLarge means that the need exceeds the limit and can never be met.
	ErrTooLarge = errors.New("larger than the memory limit")
	// ErrExhausted means that no memory is free now.
	ErrExhausted = errors.New("memory exhausted")
	// ErrScratch is an ErrExhausted of a decoder, which might go on with another grant.
	ErrScratch = fmt.Errorf("%w by decoding", ErrExhausted)
	// ErrTimeout means that the deadline passed while waiting in line.
	ErrTimeout = errors.New("no memory in time")
)

// Kind says what charged memory is used for.
type Kind string

// The kinds of memory that are counted apart.
const (
	Frames  Kind = "frames"  // decoded blocks
	Input   Kind = "input"   // stored bytes on their way to a decoder
	Ahead   Kind = "ahead"   // stored bytes that are read before a decoder asks for them: without memory for that it only takes longer
	Scratch Kind = "scratch" // what decoders use while they work
	Batches Kind = "batches" // gathered or compressed bytes on their way out
	Tables  Kind = "tables"  // orders of rows
	Mapped  Kind = "mapped"  // pages of files in frames: they become memory when somebody writes to the file
	Copies  Kind = "copies"  // what did become memory
)

// decoding tells the kinds that a decoder gives back whole when it ends.
func (k Kind) decoding() bool { return k.needed() || k == Ahead }

// needed tells the kinds without which a decoder cannot go on.
func (k Kind) needed() bool { return k == Input || k == Scratch }

// exhausted is the error that says that there is no memory for it.
func (k Kind) exhausted() error {
	if k.decoding() {
		return ErrScratch
	}
	return ErrExhausted
}

// Options of a Ledger.
type Options struct {
	Limit int64 // bytes, the most that is ever reserved
	Large int64 // bytes of Limit for the one large slot
	// Heap is told, in steps of a few MiB and under the ledger's lock, how many of
	// the charged bytes lie on the Go heap.
	Heap func(bytes int64)
}

// Stats are the numbers of a ledger at one moment.
type Stats struct {
	Limit    int64          // bytes
	Reserved int64          // bytes held, used or not; never over Limit
	Lent     int64          // of those, bytes on loan, which are given back when somebody waits
	Used     map[Kind]int64 // bytes charged, by kind; kinds at zero are left out
	Heap     int64          // of those, bytes on the Go heap
	Waiting  int            // callers in line or for the large slot
	Grants   int            // grants that are open
}

// Ledger shares out one limit of memory. It is safe for concurrent use.
type Ledger struct {
	limit int64
	large int64
	tell  func(int64)

	mu   sync.Mutex // guards all below, and all grants
	firm int64      // held by grants, the large slot not counted; at most limit - large
	lent int64      // on loan
	used map[Kind]int64
	heap int64
	told int64 // the last word to tell
	open int

	line   []*waiter // for admission
	slots  []*waiter // for the large slot
	holder *Grant    // of the large slot
	loans  []*Grant  // that have lent bytes, oldest first; the keeper is not among them
	keeper *Keeper
	since  time.Time
}

// New makes a ledger of o.Limit bytes.
func New(o Options) *Ledger {
	limit := max(o.Limit, 0)
	l := &Ledger{limit: limit, large: min(max(o.Large, 0), limit), tell: o.Heap, used: make(map[Kind]int64)}
	if l.tell == nil {
		l.tell = func(int64) {}
	}
	return l
}

// Most is the largest need that can ever be admitted: the limit less the large slot.
func (l *Ledger) Most() int64 { return l.limit - l.large }

// Slot is the size of the large slot.
func (l *Ledger) Slot() int64 { return l.large }

// Waiting returns since when there has always been somebody who waits for
// memory; the zero time if nobody does.
func (l *Ledger) Waiting() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.since
}

// Stats returns the numbers of this moment; they agree with each other.
func (l *Ledger) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{
		Limit: l.limit, Reserved: l.limit - l.free(), Lent: l.lent, Used: maps.Clone(l.used), Heap: l.heap,
		Waiting: l.waiting(), Grants: l.open,
	}
}

// free is what nobody holds. The lock is held here and in all below.
func (l *Ledger) free() int64 {
	n := l.limit - l.firm - l.lent
	if l.holder != nil {
		n -= l.large
	}
	return n
}

// spare is what nobody needs: it is free, or only kept.
func (l *Ledger) spare() int64 {
	if l.keeper == nil {
		return l.free()
	}
	return l.free() + l.keeper.grant.lent
}

// room tells whether n more firm bytes can be held at once.
func (l *Ledger) room(n int64) bool { return n <= l.Most()-l.firm && n <= l.free() }

// quiet tells whether nobody waits for bytes that are free or lent.
func (l *Ledger) quiet() bool { return len(l.line) == 0 && len(l.slots) == 0 }

func (l *Ledger) waiting() int { return len(l.line) + len(l.slots) }

// note keeps the time since when somebody waits.
func (l *Ledger) note() {
	switch {
	case l.waiting() == 0:
		l.since = time.Time{}
	case l.since.IsZero():
		l.since = time.Now()
	}
}

// serve gives what is free to those who wait: first for the large slot, for they
// hold memory; then in line.
func (l *Ledger) serve() {
	l.serveSlot()
	if l.holder != nil || len(l.slots) == 0 {
		l.serveLine()
	}
	l.tellKeeper()
	l.note()
}

// heapStep is how coarsely Options.Heap is told, in bytes.
const heapStep = 8 << 20

// count moves the books of k by n bytes, on the Go heap or off it.
func (l *Ledger) count(k Kind, n int64, heap bool) {
	if l.used[k] += n; l.used[k] == 0 {
		delete(l.used, k)
	}
	if !heap {
		return
	}
	if l.heap += n; l.heap > l.told || l.heap < l.told-2*heapStep {
		l.told = (l.heap + heapStep - 1) / heapStep * heapStep
		l.tell(l.told)
	}
}

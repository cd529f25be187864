// Package disk keeps decoded blocks in a directory, so that memory and restarts do not decide what is loaded again.
//
// A block with its columns is one file: an Arrow IPC file that holds the frames as they were, and in its head the full
// key, the layout, and checksums. It is written once under another name, brought to the disk, and renamed; it never
// changes. A hit maps it: nothing is decoded and nothing copied, and the memory is the system's page cache. Whoever cuts
// such a file short or writes to it meanwhile waits for the kernel, as with all files that are mapped.
//
// Checksums are compared each time a block is mapped, and not only at first: the bytes lie where other programs, disks and
// time can change them, and comparing costs a fraction of what sending does. What differs is deleted, told, and loaded.
//
// Blocks are written beside the streams, from the time on when they are loaded and not when memory gives them up: then
// somebody waits for that memory. What memory no longer has when the disk comes to it is left out, and comes again with
// the next load. So nothing but the block that is being written is held for the disk.
//
// Two gateways cannot share a directory: one would delete what the other has counted. Only files whose name and header are
// ours are ever deleted.
package disk

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headrace/headrace/storage/cache"
	"github.com/headrace/headrace/storage/frame"
)

// Errors of Open: mistakes in how the gateway is set up. A disk that fails is none.
var (
	// ErrBusy means that another process uses the directory; the text says which.
	ErrBusy = errors.New("the directory is in use")
	// ErrNoDirectory means that there is something else in the directory's place.
	ErrNoDirectory = errors.New("not a directory")
)

// Options of a Tier.
type Options struct {
	Dir     string // of this tier's own; made if it is not there
	Limit   int64  // bytes of files
	Version string // of the program: blocks that another one has decoded may be wrong in ways that this one mends
	Pool    *frame.Pool
	// Wait is how long to wait for another process to leave the directory: a gateway that is being replaced.
	Wait   time.Duration
	Events Events
}

// Events tell what an operator has to know. All may be nil.
type Events struct {
	// Failed tells that the disk cannot be used, once until it works again. Nothing else suffers from it.
	Failed func(err error)
	// Works tells that it can be used again.
	Works func()
	// Damaged tells of so many files of blocks that are not what was written, and what is wrong with one of them: of the
	// first one at once, of those that are found within a minute after that together.
	Damaged func(files int64, example string, err error)
}

func (e Events) withDefaults() Events {
	if e.Failed == nil {
		e.Failed = func(error) {}
	}
	if e.Works == nil {
		e.Works = func() {}
	}
	if e.Damaged == nil {
		e.Damaged = func(int64, string, error) {}
	}
	return e
}

// Stats are the numbers of a tier at one moment.
type Stats struct {
	Dir     string
	Limit   int64 // bytes
	Bytes   int64 // of files
	Blocks  int
	Waiting int // blocks that are to be written
	Counts
	Failed string // why the disk cannot be used now; empty: it can
}

// Counts are counted from the start of the tier on.
type Counts struct {
	Hits    int64 // blocks that were there
	Misses  int64 // blocks that were not
	Written int64 // blocks
	Bytes   int64 // written
	Dropped int64 // blocks that memory gave up before they were written
	Refused int64 // blocks for which there was no room
	Evicted int64 // blocks that made room
	Damaged int64 // files that were not what was written
	Errors  int64 // of the disk
}

// Tier is a cache.Below on a disk. It is safe for concurrent use.
type Tier struct {
	options Options
	queue   chan job
	readers chan struct{} // one for each block that is being read
	pause   time.Duration
	work    sync.WaitGroup
	ctx     context.Context // of all that is beside the streams
	end     context.CancelFunc
	found   chan struct{} // closed when what was there at the start is known

	dir     atomic.Pointer[directory] // nil: the disk failed at the start
	renewal sync.Mutex                // one at a time
	former  []*directory              // that were deleted: whoever uses one may go on; guarded by renewal

	mu      sync.Mutex // guards all below
	index   *index
	pending map[id]struct{} // in the queue, or being written
	counts  Counts
	trouble [2]trouble // by work
	untold  damages

	hits, misses atomic.Int64
	unread       atomic.Bool // there is trouble with reading
}

// work is what the disk is for.
type work int

const (
	reading work = iota
	writing
)

// trouble is what the disk failed with last, until it works again.
type trouble struct {
	text string
	rest time.Time // when to try again
}

var _ cache.Below = (*Tier)(nil)

const (
	folder = "blocks" // within the directory

	queued  = 1 << 14 // blocks that wait to be written at most: their names, not their rows
	writers = 2       // so that one writes while the other waits for the disk
)

// reads is how many blocks are read at a time: checking them takes processors, and a buffer each; and a disk serves
// several at a time.
func reads() int { return max(8, 2*runtime.GOMAXPROCS(0)) }

// Open opens a directory. What is there from before is found meanwhile; Get waits for it. Close must be called. The errors
// are ErrBusy, ErrNoDirectory and that of ctx: whatever else is wrong is an event, and the tier then keeps nothing.
func Open(ctx context.Context, o Options) (*Tier, error) {
	o.Events = o.Events.withDefaults()
	t := &Tier{
		options: o, queue: make(chan job, queued), readers: make(chan struct{}, reads()), pause: time.Minute, found: make(chan struct{}),
		index: newIndex(o.Limit), pending: map[id]struct{}{},
	}
	t.ctx, t.end = context.WithCancel(context.Background())
	dir, err := enter(ctx, o.Dir, o.Wait)
	switch {
	case err == nil:
		t.dir.Store(dir)
		t.work.Go(t.scan)
		for range writers {
			t.work.Go(t.write)
		}
		return t, nil
	case errors.Is(err, ErrBusy) || errors.Is(err, ErrNoDirectory) || ctx.Err() != nil:
		return nil, err
	}
	close(t.found)
	t.fail(writing, err)
	return t, nil
}

// Close ends the writing and leaves the directory to others. Nobody may call Get or Loaded any more.
func (t *Tier) Close() {
	t.end()
	t.work.Wait()
	if d := t.dir.Load(); d != nil {
		d.leave()
	}
	for _, d := range t.former {
		d.leave()
	}
}

// fail notes that the disk cannot be used for something, and for how long not to try.
func (t *Tier) fail(w work, err error) {
	t.mu.Lock()
	first := !t.failing()
	t.counts.Errors++
	t.trouble[w] = trouble{err.Error(), time.Now().Add(t.pause)}
	t.unread.Store(t.trouble[reading].text != "")
	t.mu.Unlock()
	if first {
		t.options.Events.Failed(err)
	}
}

// succeed notes that it can, once nothing has failed for a while: where some files can be used and others cannot, it
// would be told again and again else.
func (t *Tier) succeed(w work) {
	t.mu.Lock()
	if time.Now().Before(t.trouble[w].rest) {
		t.mu.Unlock()
		return
	}
	before := t.failing()
	t.trouble[w] = trouble{}
	t.unread.Store(t.trouble[reading].text != "")
	again := before && !t.failing()
	t.mu.Unlock()
	if again {
		t.options.Events.Works()
	}
}

// failing tells whether there is trouble. The lock is held.
func (t *Tier) failing() bool { return t.trouble != [2]trouble{} }

// count changes the counts.
func (t *Tier) count(change func(*Counts)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.counts)
}

// Stats returns the numbers of this moment.
func (t *Tier) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Stats{
		Dir: t.options.Dir, Limit: t.options.Limit, Bytes: t.index.bytes, Blocks: t.index.count, Waiting: len(t.pending),
		Counts: t.counts, Failed: cmp.Or(t.trouble[writing].text, t.trouble[reading].text),
	}
	s.Hits, s.Misses = t.hits.Load(), t.misses.Load()
	return s
}

// discard takes an entry out and deletes its file.
func (t *Tier) discard(e *entry) {
	t.mu.Lock()
	was := t.index.remove(e)
	t.mu.Unlock()
	if was {
		t.delete(e)
	}
}

// delete deletes the files of entries that were taken out.
func (t *Tier) delete(entries ...*entry) {
	for _, e := range entries {
		if _, err := t.dir.Load().remove(e.id.file()); err != nil {
			t.fail(writing, err)
		}
	}
}

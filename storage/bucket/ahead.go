package bucket

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// Range is a run of bytes of an object.
type Range struct{ Off, Len int64 }

func (r Range) end() int64 { return r.Off + r.Len }

// Reading says what will be read of an object.
type Reading struct {
	// Ranges are column chunks or buffers, each of which is read about front to
	// back, all of them at once or one after the other.
	Ranges []Range
	// Memory gives n bytes to read into, and how to give them back; an error
	// means that there are none to be had now.
	Memory func(n int) (bytes []byte, free func(), err error)
	// Again means that bytes are read more than once: they are kept while there
	// is room, and else given back once they were read.
	Again bool
}

const (
	// gap is how many bytes between two ranges are read rather than skipped: on
	// a fast connection they take less time than a request of their own.
	gap = 128 << 10
	// piece is how many bytes one request asks for at most: enough that its
	// round trip matters little, little enough that several are in flight.
	piece = 4 << 20
	// leastPiece is what it asks for where many columns share the memory.
	leastPiece = 256 << 10
	// held is how many bytes may be held at once. Ranges that are fewer in all
	// are fetched once, whatever the order in which they are read.
	heldAtOnce = 32 << 20
	// flying is how many requests are made ahead, as far as what may be held goes:
	// where many columns share that, they are small.
	flying = 32
)

// Ahead returns o as an object whose reads are served from requests that were
// made before: of a few MiB each, with near ranges joined, several in flight.
// What is not in its ranges can be read too, with a request of its own, and so
// is all when there is no memory. The memory is given back when the object is
// closed, at the latest; o stays open. ctx lends the requests its values; they
// end with Close.
func (o *Object) Ahead(ctx context.Context, r Reading) *Object {
	ctx, cancel := context.WithCancel(unwatched(context.WithoutCancel(ctx)))
	a := &ahead{of: o, ctx: ctx, cancel: cancel, memory: r.Memory, again: r.Again}
	a.cut(r.Ranges)
	return &Object{key: o.key, size: o.size, in: a, clock: o.clock}
}

// ahead is the content of an object that is read ahead.
type ahead struct {
	of     *Object
	ctx    context.Context
	cancel context.CancelFunc
	memory func(n int) ([]byte, func(), error)
	again  bool
	work   sync.WaitGroup

	most int64 // bytes to hold at once
	next int   // pieces after the one that is read to fetch

	mu     sync.Mutex
	clock  int64
	pieces []*fetched // in order, apart from each other
	bytes  int64      // held
	flying int
	closed bool
}

// fetched is a piece: idle, being fetched, or there.
type fetched struct {
	Range
	bytes []byte
	free  func()
	done  chan struct{} // closed when it is there; nil while it is idle
	err   error
	users int
	used  int64   // when it was read last
	read  []Range // what of it was read, in order, apart from each other
	gone  bool    // all of it was
}

// padding is how many bytes may be left out between two reads: writers align
// what they write.
const padding = 64

// note takes r to be read, and tells whether all of f was.
func (f *fetched) note(r Range) bool {
	i, _ := slices.BinarySearchFunc(f.read, r.Off, func(at Range, off int64) int { return cmp.Compare(at.end()+padding, off) })
	j := i
	for ; j < len(f.read) && f.read[j].Off <= r.end()+padding; j++ {
		end := max(r.end(), f.read[j].end())
		r.Off = min(r.Off, f.read[j].Off)
		r.Len = end - r.Off
	}
	f.read = slices.Replace(f.read, i, j, r)
	return r.Off <= f.Off+padding && r.end() >= f.end()-padding
}

// cut joins ranges that are near each other, and cuts what is long into pieces.
func (a *ahead) cut(ranges []Range) {
	ranges = slices.DeleteFunc(slices.Clone(ranges), func(r Range) bool { return r.Len <= 0 || r.Off < 0 || r.Off >= a.of.size })
	slices.SortFunc(ranges, func(x, y Range) int { return cmp.Compare(x.Off, y.Off) })
	var joined []Range
	var all int64
	for _, r := range ranges {
		r.Len = min(r.Len, a.of.size-r.Off)
		if n := len(joined) - 1; n >= 0 && r.Off <= joined[n].end()+gap {
			joined[n].Len = max(joined[n].Len, r.end()-joined[n].Off)
			continue
		}
		joined = append(joined, r)
	}
	for _, r := range joined {
		all += r.Len
	}
	step := int64(piece)
	a.most, a.next = heldAtOnce, heldAtOnce // all of them
	if all > a.most {
		// Each range is read in a place of its own: that takes a piece, and one that comes next.
		readers := int64(len(ranges))
		step = min(max(a.most/(2*readers), leastPiece), piece)
		a.most = max(a.most, 2*readers*step)
		a.next = int(a.most/(readers*step)) - 1
	}
	for _, r := range joined {
		n := (r.Len + step - 1) / step
		for i := range n {
			from, to := r.Off+r.Len*i/n, r.Off+r.Len*(i+1)/n
			a.pieces = append(a.pieces, &fetched{Range: Range{from, to - from}})
		}
	}
}

func (a *ahead) pin() Pin { return a.of.Pin() }

// close ends requests and gives everything back.
func (a *ahead) close() error {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.cancel()
	a.work.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.pieces {
		a.drop(f)
	}
	return nil
}

func (a *ahead) readAt(ctx context.Context, p []byte, off int64) error {
	for len(p) > 0 {
		f, n := a.at(off, int64(len(p)))
		if err := a.read(ctx, f, p[:n], off); err != nil {
			return err
		}
		p, off = p[n:], off+n
	}
	return nil
}

// at finds the piece that off lies in, nil for none, and how many of the n bytes
// from off on lie there, or before the next piece.
func (a *ahead) at(off, n int64) (*fetched, int64) {
	i, _ := slices.BinarySearchFunc(a.pieces, off, func(f *fetched, off int64) int {
		if f.end() <= off {
			return -1
		}
		return 1
	})
	switch {
	case i == len(a.pieces):
		return nil, n
	case a.pieces[i].Off > off:
		return nil, min(n, a.pieces[i].Off-off)
	}
	return a.pieces[i], min(n, a.pieces[i].end()-off)
}

// read fills p, which lies in f, if f is not nil.
func (a *ahead) read(ctx context.Context, f *fetched, p []byte, off int64) error {
	if f == nil || !a.take(f) {
		return a.of.in.readAt(ctx, p, off)
	}
	defer a.give(f, Range{off, int64(len(p))})
	if err := f.await(ctx); err != nil {
		return err
	}
	if f.err != nil {
		return f.err
	}
	copy(p, f.bytes[off-f.Off:])
	return nil
}

// await waits until f is there.
func (f *fetched) await(ctx context.Context) error {
	select {
	case <-f.done:
		return nil
	default:
	}
	defer waits(ctx)()
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// take makes sure that f is there or on its way, with what comes after it, and
// keeps it until give. It is false if there is no memory for it.
func (a *ahead) take(f *fetched) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || !a.begin(f, true) {
		return false
	}
	a.clock++
	f.used = a.clock
	f.users++
	i, _ := slices.BinarySearchFunc(a.pieces, f.Off, func(f *fetched, off int64) int { return cmp.Compare(f.Off, off) })
	for _, next := range a.pieces[i+1 : min(len(a.pieces), i+1+a.next)] {
		if a.flying >= flying || next.gone || !a.begin(next, false) {
			break
		}
	}
	return true
}

// begin fetches f if it is idle. If it is needed, other pieces make room; for memory
// that is scarce only those that were read do, for the others would be fetched again.
func (a *ahead) begin(f *fetched, needed bool) bool {
	if f.done != nil {
		return true
	}
	for a.bytes+f.Len > a.most {
		if !needed || !a.evict(false) {
			break
		}
	}
	if a.bytes+f.Len > a.most && !needed {
		return false
	}
	bytes, free, err := a.memory(int(f.Len))
	for err != nil && needed && a.evict(true) {
		bytes, free, err = a.memory(int(f.Len))
	}
	if err != nil {
		return false
	}
	done := make(chan struct{})
	f.bytes, f.free, f.done, f.err = bytes[:f.Len], free, done, nil
	a.bytes += f.Len
	a.flying++
	a.work.Go(func() {
		err := a.of.in.readAt(a.ctx, f.bytes, f.Off)
		a.mu.Lock()
		defer a.mu.Unlock()
		f.err = err
		a.flying--
		close(done)
	})
	return true
}

// give lets go of f, of which r was read. Once all was, it is not needed.
func (a *ahead) give(f *fetched, r Range) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f.users--
	if f.gone = f.note(r) || f.gone; f.gone && f.users == 0 && !a.again {
		a.drop(f)
	}
}

// evict drops the piece that was not read for longest, if there is one that
// nobody reads or waits for; of those only that were read, or of all.
func (a *ahead) evict(read bool) bool {
	var oldest *fetched
	for _, f := range a.pieces {
		if f.users > 0 || !f.there() || read && !f.gone {
			continue
		}
		if oldest == nil || f.used < oldest.used {
			oldest = f
		}
	}
	if oldest == nil {
		return false
	}
	a.drop(oldest)
	return true
}

func (f *fetched) there() bool {
	if f.done == nil {
		return false
	}
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// drop gives the memory of a piece back, if it is there.
func (a *ahead) drop(f *fetched) {
	if !f.there() {
		return
	}
	f.free()
	a.bytes -= f.Len
	f.bytes, f.free, f.done = nil, nil, nil
}

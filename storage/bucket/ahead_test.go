package bucket

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"
)

// counted is a bucket in memory that notes the ranges asked for, and lets a test
// look on.
type counted struct {
	*memory
	mu    sync.Mutex
	asked []Range
	on    func(Range) error // nil: nothing
}

func (c *counted) get(ctx context.Context, key string, of stamp, off, n int64) (*answer, error) {
	c.mu.Lock()
	if n > 0 {
		c.asked = append(c.asked, Range{off, n})
	}
	c.mu.Unlock()
	if c.on != nil && n > 0 {
		if err := c.on(Range{off, n}); err != nil {
			return nil, err
		}
	}
	return c.memory.get(ctx, key, of, off, n)
}

// far makes an object of n bytes.
func far(t interface {
	Fatal(...any)
	Context() context.Context
}, n int,
) (*Object, *counted, []byte) {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data) // never fails
	c := &counted{memory: newMemory()}
	r := &remote{name: "mem://x", store: c, options: Options{Tries: 1}.withDefaults(), slots: make(chan struct{}, 64)}
	if err := r.put(t.Context(), "x", data, Events{}); err != nil {
		t.Fatal(err)
	}
	o, err := r.open(t.Context(), "x", "x", "", Events{})
	if err != nil {
		t.Fatal(err)
	}
	return o, c, data
}

// ledger counts the bytes that were given out.
type ledger struct {
	out, most, peak atomic.Int64 // most 0: no bound
}

func (l *ledger) give(n int) ([]byte, func(), error) {
	if now := l.out.Add(int64(n)); l.most.Load() > 0 && now > l.most.Load() {
		l.out.Add(-int64(n))
		return nil, nil, errors.New("no memory")
	} else if now > l.peak.Load() {
		l.peak.Store(now)
	}
	var once atomic.Bool
	return make([]byte, n), func() {
		if !once.CompareAndSwap(false, true) {
			panic("given back twice")
		}
		l.out.Add(-int64(n))
	}, nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAheadFetchesEverythingOnceInLargePieces(t *testing.T) {
	const n = 20 << 20
	o, c, data := far(t, n)
	var l ledger
	// Four column chunks right behind each other, and one a little apart.
	ranges := []Range{{4, 3 << 20}, {4 + 3<<20, 5 << 20}, {12 << 20, 4 << 20}, {16<<20 + 100<<10, 1 << 20}}
	a := o.Ahead(t.Context(), Reading{Ranges: ranges, Memory: l.give})
	// As decoders do: headers first, then all columns in turn.
	header := make([]byte, 256)
	for _, r := range ranges {
		for off := r.Off; off+256 < r.end(); off += 1 << 20 {
			must(t, a.ReadAt(t.Context(), header, off))
		}
	}
	var at [4]int64
	buffer := make([]byte, 64<<10)
	for more := true; more; {
		more = false
		for i, r := range ranges {
			p := buffer[:min(int64(len(buffer)), r.Len-at[i])]
			must(t, a.ReadAt(t.Context(), p, r.Off+at[i]))
			if !bytes.Equal(p, data[r.Off+at[i]:][:len(p)]) {
				t.Fatal("other bytes came")
			}
			at[i] += int64(len(p))
			more = more || at[i] < r.Len
		}
	}
	var total int64
	for _, r := range c.asked {
		total += r.Len
	}
	if len(c.asked) > 6 || total > 18<<20 {
		t.Errorf("%d requests for %d bytes: %v", len(c.asked), total, c.asked)
	}
	must(t, a.Close())
	if l.out.Load() != 0 {
		t.Errorf("%d bytes were not given back", l.out.Load())
	}
	must(t, o.ReadAt(t.Context(), header, 0)) // the object itself stays open
}

func TestAheadKeepsRequestsInFlight(t *testing.T) {
	o, c, _ := far(t, 24<<20)
	var flight sync.WaitGroup
	flight.Add(6) // all pieces: the first read comes back only once they are all on their way
	c.on = func(Range) error {
		flight.Done()
		flight.Wait()
		return nil
	}
	var l ledger
	a := o.Ahead(t.Context(), Reading{Ranges: []Range{{0, 24 << 20}}, Memory: l.give})
	must(t, a.ReadAt(t.Context(), make([]byte, 1), 0))
	must(t, a.Close())
}

// What is small and far apart is asked for many at a time: memory is no reason to wait.
func TestAheadKeepsManySmallRequestsInFlight(t *testing.T) {
	o, c, _ := far(t, 24<<20)
	var ranges []Range
	for off := int64(0); off < 24<<20; off += 256 << 10 {
		ranges = append(ranges, Range{off, 8 << 10})
	}
	var flight sync.WaitGroup
	flight.Add(32)
	var n atomic.Int64
	c.on = func(Range) error {
		if n.Add(1) <= 32 {
			flight.Done()
			flight.Wait()
		}
		return nil
	}
	var l ledger
	a := o.Ahead(t.Context(), Reading{Ranges: ranges, Memory: l.give})
	must(t, a.ReadAt(t.Context(), make([]byte, 1), 0))
	must(t, a.Close())
}

func TestAheadHoldsABoundedPartOfLargeRanges(t *testing.T) {
	const n = 128 << 20
	o, c, data := far(t, n)
	var l ledger
	ranges := []Range{{0, 60 << 20}, {60 << 20, 68 << 20}}
	a := o.Ahead(t.Context(), Reading{Ranges: ranges, Memory: l.give})
	buffer := make([]byte, 256<<10)
	for off := int64(0); off < 60<<20; off += int64(len(buffer)) {
		for _, r := range ranges {
			must(t, a.ReadAt(t.Context(), buffer, r.Off+off))
			if !bytes.Equal(buffer, data[r.Off+off:][:len(buffer)]) {
				t.Fatal("other bytes came")
			}
		}
	}
	must(t, a.Close())
	if l.peak.Load() > heldAtOnce+piece || l.out.Load() != 0 {
		t.Errorf("%d bytes at once, %d left", l.peak.Load(), l.out.Load())
	}
	if len(c.asked) > n/piece+3 {
		t.Errorf("%d requests for %d MiB", len(c.asked), n>>20)
	}
}

func TestAheadWithoutMemoryReadsAsItIsAsked(t *testing.T) {
	o, c, data := far(t, 1<<20)
	var l ledger
	l.most.Store(1)
	a := o.Ahead(t.Context(), Reading{Ranges: []Range{{0, 1 << 20}}, Memory: l.give})
	p := make([]byte, 1000)
	must(t, a.ReadAt(t.Context(), p, 5000))
	if !bytes.Equal(p, data[5000:6000]) || !slices.Equal(c.asked, []Range{{5000, 1000}}) {
		t.Errorf("asked for %v", c.asked)
	}
	must(t, a.Close())
}

// Where memory is scarce, what was fetched and is still to be read does not make room for what is read before it.
func TestAheadKeepsWhatIsStillToBeRead(t *testing.T) {
	o, c, data := far(t, 20<<20)
	for _, again := range []bool{false, true} {
		var l ledger
		l.most.Store(2*piece + 1)
		c.asked = nil
		a := o.Ahead(t.Context(), Reading{Ranges: []Range{{0, 20 << 20}}, Memory: l.give, Again: again})
		read := func(off, n int64) {
			t.Helper()
			p := make([]byte, n)
			must(t, a.ReadAt(t.Context(), p, off))
			if !bytes.Equal(p, data[off:off+n]) {
				t.Error("other bytes came")
			}
		}
		read(0, 1000)           // and what comes after
		read(3*piece, 1000)     // there is no memory for it
		read(1000, piece-1000)  // the first piece was read
		read(piece, piece-1000) // the next one is still there
		read(3*piece, 1000)     // in the place of the first one
		read(2*piece-1000, 1000)
		must(t, a.Close())
		slices.SortFunc(c.asked, func(x, y Range) int { return cmp.Or(cmp.Compare(x.Off, y.Off), cmp.Compare(x.Len, y.Len)) })
		for _, twice := range []int64{0, piece} {
			if n := len(slices.DeleteFunc(slices.Clone(c.asked), func(r Range) bool { return r.Off != twice })); n != 1 {
				t.Errorf("again %v: %v", again, c.asked)
			}
		}
	}
}

func TestAheadTellsErrorsToThoseWhoReadThem(t *testing.T) {
	o, c, _ := far(t, 12<<20)
	c.on = func(r Range) error {
		if r.Off >= 8<<20 {
			return &fault{status: 500, final: true}
		}
		return nil
	}
	var l ledger
	a := o.Ahead(t.Context(), Reading{Ranges: []Range{{0, 12 << 20}}, Memory: l.give})
	p := make([]byte, 100)
	must(t, a.ReadAt(t.Context(), p, 100))
	if err := a.ReadAt(t.Context(), p, 9<<20); !errors.Is(err, ErrUnreachable) {
		t.Errorf("%v, want ErrUnreachable", err)
	}
	if _, err := a.ReaderAt(t.Context()).ReadAt(make([]byte, 100), 12<<20-50); err == nil || err == io.EOF {
		t.Errorf("an error was taken for the end: %v", err)
	}
	must(t, a.Close())
	if l.out.Load() != 0 {
		t.Errorf("%d bytes were not given back", l.out.Load())
	}
}

func TestAheadEndsWithItsReaders(t *testing.T) {
	o, c, _ := far(t, 12<<20)
	stuck := make(chan struct{})
	c.on = func(Range) error { <-stuck; return nil }
	var l ledger
	a := o.Ahead(t.Context(), Reading{Ranges: []Range{{0, 12 << 20}}, Memory: l.give})
	ctx, cancel := context.WithCancel(t.Context())
	var group errgroup.Group
	group.Go(func() error { return a.ReadAt(ctx, make([]byte, 1), 0) })
	cancel()
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context.Canceled", err)
	}
	close(stuck)
	must(t, a.Close())
	if err := a.ReadAt(t.Context(), make([]byte, 1), 0); err != nil {
		t.Errorf("after it was closed: %v, want what the object itself says", err)
	}
	if l.out.Load() != 0 {
		t.Errorf("%d bytes were not given back", l.out.Load())
	}
}

// Whatever is read in whatever order, by several at once, with whatever memory:
// the bytes are those of the object.
func TestAheadIsTheObject(t *testing.T) {
	o, _, data := far(t, 3<<20)
	rapid.Check(t, func(t *rapid.T) {
		span := rapid.Custom(func(t *rapid.T) Range {
			off := rapid.Int64Range(0, int64(len(data))).Draw(t, "off")
			return Range{off, rapid.Int64Range(0, int64(len(data))-off).Draw(t, "len")}
		})
		var l ledger
		l.most.Store(rapid.SampledFrom([]int64{0, 0, 1, 1 << 20, 3 << 20}).Draw(t, "memory"))
		a := o.Ahead(context.Background(), Reading{Ranges: rapid.SliceOf(span).Draw(t, "ranges"), Memory: l.give, Again: rapid.Bool().Draw(t, "again")})
		reads := rapid.SliceOfN(span, 1, 8).Draw(t, "reads")
		var group errgroup.Group
		for _, r := range reads {
			group.Go(func() error {
				p := make([]byte, r.Len)
				if err := a.ReadAt(context.Background(), p, r.Off); err != nil {
					return err
				}
				if !bytes.Equal(p, data[r.Off:r.end()]) {
					return fmt.Errorf("%v: other bytes", r)
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil || l.out.Load() != 0 {
			t.Fatalf("%v, %d bytes were not given back", err, l.out.Load())
		}
	})
}

package frame

import (
	"context"
	"errors"
	"math/rand"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/headrace/headrace/storage/budget"
)

func TestCostStepsAreFourAnOctave(t *testing.T) {
	page := Cost(1)
	for _, c := range []struct{ n, want int64 }{
		{0, 0},
		{1, 1},
		{page, 1},
		{page + 1, 2},
		{5 * page, 5},
		{7*page + 1, 8},
		{8*page + 1, 10},
		{11 * page, 12},
		{16*page + 1, 20},
		{28*page + 1, 32},
		{1024 * page, 1024},
		{1024*page + 1, 1280},
	} {
		if got := Cost(c.n); got != c.want*page {
			t.Errorf("Cost(%d) is %d pages, not %d", c.n, got/page, c.want)
		}
	}
	for n := int64(1); n < 1<<40; n = n*9/8 + 1 {
		if c := Cost(n); c < n || c > n+n/4+page {
			t.Errorf("Cost(%d) = %d", n, c)
		}
	}
}

func TestRegionsAreChargedAlignedAndReused(t *testing.T) {
	l, g, p := world(t, 1<<20)
	r, err := p.Alloc(g, budget.Input, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Bytes()) != 10_000 || uintptr(unsafe.Pointer(&r.Bytes()[0]))%align != 0 {
		t.Fatal("wrong length or alignment")
	}
	if used := l.Stats().Used[budget.Input]; used != Cost(10_000) {
		t.Fatalf("charged %d", used)
	}
	first := &r.Bytes()[0]
	r.Free()
	r.Free()
	if s := p.Stats(); s.Regions != 0 || s.Live != 0 || s.Idle != Cost(10_000) {
		t.Fatalf("%+v", s)
	}
	again, err := p.Alloc(g, budget.Input, 9_000)
	if err != nil {
		t.Fatal(err)
	}
	if &again.Bytes()[0] != first {
		t.Error("idle memory was not used again")
	}
	again.Free()
	if _, err := p.Alloc(g, budget.Input, 2<<20); !errors.Is(err, budget.ErrExhausted) {
		t.Error(err)
	}
	if _, err := p.Alloc(g, budget.Input, -1); err == nil {
		t.Error("a region of -1 bytes")
	}
}

func TestIdleMemoryKeepsToItsLimitOldestFirst(t *testing.T) {
	_, g, p := world(t, 1<<30)
	p.options.Idle = 3 * Cost(1)
	var regions []*Region
	for _, n := range []int{1, 1, int(Cost(1)) + 1, 1 << 20} {
		r, err := p.Alloc(g, budget.Frames, n)
		if err != nil {
			t.Fatal(err)
		}
		regions = append(regions, r)
	}
	for _, r := range regions {
		r.Free()
	}
	if s := p.Stats(); s.Idle != 3*Cost(1) || len(*p.shelves[int(Cost(1))]) != 1 {
		t.Errorf("%+v", s)
	}
}

func TestPoisonOverwritesFreedMemory(t *testing.T) {
	_, g, p := world(t, 1<<20)
	r, err := p.Alloc(g, budget.Frames, 5000)
	if err != nil {
		t.Fatal(err)
	}
	stale := r.Bytes()
	for i, b := range stale {
		if b != poison {
			t.Fatalf("byte %d of new memory is %#x", i, b)
		}
		stale[i] = 7
	}
	r.Free() // the pool keeps the mapping, so stale can still be looked at
	for i, b := range stale {
		if b != poison {
			t.Fatalf("byte %d outlived Free: %#x", i, b)
		}
	}
}

func TestCloseTellsWhatIsLive(t *testing.T) {
	l := budget.New(budget.Options{Limit: 1 << 20})
	g, err := l.Admit(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	p := NewPool(Options{})
	lease, err := p.Assemble(g, budget.Frames, schemaOf(), nil)
	if err != nil {
		t.Fatal(err)
	}
	err = p.Close()
	if !errors.Is(err, ErrLive) || !strings.Contains(err.Error(), "1 leases") {
		t.Fatal(err)
	}
	if traced := strings.Contains(err.Error(), "TestCloseTellsWhatIsLive"); traced != tracing {
		t.Fatalf("stacks in the error: %v, built with the tag leases: %v", traced, tracing)
	}
	lease.Release()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

// ints is a batch of n numbers, each v, in a frame.
func ints(t testing.TB, p *Pool, g *budget.Grant, n int, v int64) *Lease {
	t.Helper()
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	for range n {
		b.Append(v)
	}
	arr := b.NewArray()
	defer arr.Release()
	s := schemaOf(arrow.PrimitiveTypes.Int64)
	batch := array.NewRecordBatch(s, []arrow.Array{arr}, int64(n))
	defer batch.Release()
	l, err := p.Assemble(g, budget.Frames, s, []Piece{PieceOf(batch, 0, int64(n))})
	if err != nil {
		t.Error(err)
	}
	return l
}

func TestMemoryLivesAsLongAsAnyLease(t *testing.T) {
	l, g, p := world(t, 1<<20)
	first := ints(t, p, g, 100, 7)
	values := first.Batch().Column(0).(*array.Int64).Int64Values()
	second := first.Share()
	first.Release()
	first.Release()
	if s := p.Stats(); s.Frames != 1 || s.Leases != 1 || values[99] != 7 || l.Stats().Used[budget.Frames] != second.Bytes() {
		t.Fatalf("%+v, value %d", s, values[99])
	}
	second.Release()
	if values[99] == 7 {
		t.Error("memory outlived its leases")
	}
	for name, use := range map[string]func(){"Batch": func() { second.Batch() }, "Share": func() { second.Share() }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s of a released lease went through", name)
				}
			}()
			use()
		}()
	}
}

// An heir pays for a frame as long as it keeps it, if it can.
func TestBequeath(t *testing.T) {
	l, g, p := world(t, 1<<20)
	heir, poor := heir(t, l), heir(t, l)
	defer heir.Close()
	poor.Close() // it takes nothing any more
	for _, c := range []struct {
		name   string
		grant  *budget.Grant // nil: nobody else keeps it
		shared bool
		pays   bool
	}{{"shared", heir, true, true}, {"alone", nil, false, false}, {"shared with one who cannot pay", poor, true, false}, {"shared without an heir", nil, true, false}} {
		lease := ints(t, p, g, 100, 7)
		var other *Lease
		if c.shared {
			other = lease.ShareFor(c.grant)
		}
		reserved := l.Stats().Reserved
		lease.Bequeath()
		lease.Bequeath() // does nothing
		if c.shared {
			if got := l.Stats(); got.Reserved != reserved || got.Used[budget.Frames] != other.Bytes() {
				t.Errorf("%s: %+v", c.name, got)
			}
			if got := pays(heir, budget.Frames, other.Bytes()); got != c.pays {
				t.Errorf("%s: the heir pays: %v", c.name, got)
			}
			other.Release()
		}
		if got := l.Stats(); got.Reserved != 0 {
			t.Errorf("%s: afterwards %+v", c.name, got)
		}
	}
}

// An heir that keeps a frame no more does not go on paying: the next one does, who still keeps it.
func TestHeirsPayForWhatTheyKeep(t *testing.T) {
	l, g, p := world(t, 1<<20)
	first, second := heir(t, l), heir(t, l)
	lease := ints(t, p, g, 100, 7)
	early, late := lease.ShareFor(first), lease.ShareFor(second)
	message := early.Share() // for the same heir
	lease.Bequeath()
	early.Release()
	if !pays(first, budget.Frames, late.Bytes()) {
		t.Error("the first heir does not pay while a message of its own is on its way")
	}
	message.Release()
	if !pays(second, budget.Frames, late.Bytes()) {
		t.Error("the second heir does not pay for what only it keeps")
	}
	late.Release()
	first.Close()
	second.Close()
	if got := l.Stats(); got.Reserved != 0 {
		t.Errorf("%+v", got)
	}
}

func heir(t *testing.T, l *budget.Ledger) *budget.Grant {
	t.Helper()
	g, err := l.Try(0)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// pays tells whether a grant is charged n bytes: no other one can give them back.
func pays(g *budget.Grant, k budget.Kind, n int64) (yes bool) {
	defer func() { _ = recover() }() // then it does not
	g.Credit(k, n)
	return g.Charge(k, n) == nil
}

func TestLeasesOfManyGoroutines(t *testing.T) {
	_, g, p := world(t, 1<<24)
	var all sync.WaitGroup
	for seed := range int64(8) {
		all.Go(func() {
			r := rand.New(rand.NewSource(seed))
			for range 100 {
				leases := []*Lease{ints(t, p, g, 1+r.Intn(2000), seed)}
				for range r.Intn(4) {
					leases = append(leases, leases[0].Share())
				}
				var some sync.WaitGroup
				for _, l := range leases {
					some.Go(func() {
						if v := l.Batch().Column(0).(*array.Int64).Value(0); v != seed {
							t.Errorf("%d in a frame of %d", v, seed)
						}
						l.Release()
					})
					some.Go(func() { l.Bytes() })
				}
				some.Wait()
			}
		})
	}
	all.Wait()
}

// Regions that are cut from one mapping do not overlap, are zero at first, and come and go by themselves.
func TestFreshRegionsLieSideBySide(t *testing.T) {
	_, g, _ := world(t, 1<<40)
	p := NewPool(Options{})
	var all []*Region
	for _, n := range []int{3, 5 << 20, 100, 70 << 10, slabBytes / 4, slabBytes/4 + 1, 30 << 20, 16 << 20, 16 << 20, 16 << 20, 16 << 20} {
		r, err := p.Alloc(g, budget.Frames, n)
		if err != nil {
			t.Fatal(err)
		}
		mem := r.Bytes()
		if uintptr(unsafe.Pointer(&mem[0]))%align != 0 {
			t.Errorf("%d bytes are not aligned", n)
		}
		for _, at := range []int{0, n / 2, n - 1} {
			if mem[at] != 0 {
				t.Errorf("byte %d of %d is %d", at, n, mem[at])
			}
			mem[at] = byte(len(all) + 1)
		}
		all = append(all, r)
	}
	for _, odd := range []int{1, 0} { // those between others first
		for i, r := range all {
			if i%2 != odd {
				continue
			}
			if mem := r.Bytes(); mem[0] != byte(i+1) || mem[len(mem)/2] != byte(i+1) || mem[len(mem)-1] != byte(i+1) {
				t.Errorf("region %d holds what was written to another", i)
			}
			r.Free()
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if p.slab != nil {
		t.Error("a closed pool keeps fresh memory")
	}
}

// What was freed on a processor is taken there before what others have in their caches; else the newest is.
func TestShelvesPreferTheProcessor(t *testing.T) {
	var s shelf
	put := func(n, cpu int) { s = append(s, idleMemory{mem: make([]byte, n), cpu: cpu}) }
	put(1, 2)
	for n := 2; n <= 70; n++ {
		put(n, n%2)
	}
	for i, c := range []struct{ cpu, want int }{{0, 70}, {0, 68}, {1, 69}, {3, 67}, {2, 66}, {0, 64}} {
		if got := len(s.take(c.cpu)); got != c.want {
			t.Errorf("%d: processor %d took number %d, not %d", i, c.cpu, got, c.want)
		}
	}
	for len(s) > 1 {
		s.take(1)
	}
	if got := len(s.take(1)); got != 1 || len(s) != 0 {
		t.Errorf("the last one is number %d, %d are left", got, len(s))
	}
}

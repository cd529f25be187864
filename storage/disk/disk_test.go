package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/cache"
	"github.com/headrace/headrace/storage/frame"
)

const plenty = 1 << 30

func TestARestartFindsWhatWasLoaded(t *testing.T) {
	const blocks = 6
	c := columns("a", "c", "b")
	w := newWorld(t, t.TempDir(), plenty, 0)
	w.rows = 40_000 // so much is mapped
	p := w.cache.Open("p", true)
	w.fill(t, 0, blocks, c, p)
	s := w.tier.Stats()
	if w.loads.Load() != blocks || s.Blocks != blocks || s.Written != blocks || s.Bytes != s.Counts.Bytes || s.Dropped+s.Refused+s.Errors != 0 {
		t.Fatalf("%d loads, %+v", w.loads.Load(), s)
	}
	w.cache.ClosePlan(p)
	w.leave(t)

	w.enter(t, plenty, 0)
	p = w.cache.Open("p", true)
	for range 2 { // mapped blocks are not kept in memory: the disk has them again
		w.fill(t, 0, blocks, c, p)
	}
	again := w.tier.Stats()
	if w.loads.Load() != blocks || again.Hits != 2*blocks || again.Written != 0 || again.Bytes != s.Bytes || again.Blocks != blocks {
		t.Fatalf("%d loads, %+v", w.loads.Load(), again)
	}
	n := w.cache.Stats().Counts
	if len(n) != 1 || n[0].Hits[cache.Disk] != 2*blocks || n[0].Hits[cache.Memory] != 0 || n[0].Misses != 0 || n[0].Loaded != 0 {
		t.Fatalf("%+v", n)
	}
	w.cache.ClosePlan(p)
	w.leave(t)
	if got := len(files(t, w.dir)); got != blocks {
		t.Fatalf("%d files", got)
	}
}

// What memory still has is a hit there; what it has given up is one of the disk's.
func TestMemoryComesFirst(t *testing.T) {
	w := newWorld(t, inMemory(t), plenty, 5*8192)
	p := w.cache.Open("p", true)
	w.fill(t, 0, 20, onlyA, p)
	w.fill(t, 0, 20, onlyA, p)
	n := w.cache.Stats().Counts[0]
	if w.loads.Load() != 20 || n.Hits[cache.Memory] == 0 || n.Hits[cache.Disk] == 0 || n.Hits[cache.Memory]+n.Hits[cache.Disk] != 20 {
		t.Fatalf("%d loads, %+v, %+v", w.loads.Load(), n, w.tier.Stats())
	}
	w.cache.ClosePlan(p)
	w.leave(t)
}

// However many want a block, it is read once from the disk, and once from the store if the disk does not have it.
func TestSingleFlight(t *testing.T) {
	w := newWorld(t, t.TempDir(), plenty, 0)
	p := w.cache.Open("p", true)
	g, err := w.ledger.Admit(context.Background(), 1<<24)
	must(t, err)
	for round := range 2 {
		var wait sync.WaitGroup
		start := make(chan struct{})
		var leases [50]*cache.Lease
		for i := range leases {
			wait.Go(func() {
				<-start
				l, err := w.cache.Get(context.Background(), w.request(block(0), onlyA, p, g))
				if err == nil {
					err = w.same(l.Frames(), w.record(block(0), onlyA))
				}
				if err != nil {
					t.Error(err)
				}
				leases[i] = l
			})
		}
		close(start)
		wait.Wait()
		for _, l := range leases {
			l.Release()
		}
		w.settle(t)
		if s := w.tier.Stats(); w.loads.Load() != 1 || s.Hits != int64(round) {
			t.Fatalf("round %d: %d loads, %+v", round, w.loads.Load(), s)
		}
		w.cache.ClosePlan(p)
		g.Close()
		w.leave(t)
		w.enter(t, plenty, 0)
		p = w.cache.Open("p", true)
		g, err = w.ledger.Admit(context.Background(), 1<<24)
		must(t, err)
	}
	g.Close()
	w.cache.ClosePlan(p)
	w.leave(t)
}

// A block with more columns serves those who want fewer, in any order, and makes files with fewer needless.
func TestMoreColumnsServeFewer(t *testing.T) {
	w := newWorld(t, inMemory(t), plenty, 1) // memory keeps nothing
	p := w.cache.Open("p", true)
	w.fill(t, 0, 1, onlyA, p)
	w.fill(t, 0, 1, columns("text", "b", "a"), p)
	if got := len(files(t, w.dir)); got != 1 || w.loads.Load() != 2 {
		t.Fatalf("%d files after %d loads", got, w.loads.Load())
	}
	for _, c := range []*cache.Columns{onlyA, columns("b", "text"), columns("a", "text", "b")} {
		w.get(t, 0, c, p)
	}
	w.get(t, 0, columns("a", "c"), p) // which it lacks
	if w.loads.Load() != 3 {
		t.Fatalf("%d loads", w.loads.Load())
	}
	w.settle(t)
	w.cache.ClosePlan(p)
	w.leave(t)
}

// What is shown is charged while it is shown; if there is no memory for it, the file stays good.
func TestHitsAreCharged(t *testing.T) {
	w := newWorld(t, t.TempDir(), plenty, 1)
	w.rows = 200_000
	p := w.cache.Open("p", true)
	g, err := w.ledger.Admit(context.Background(), 8<<20)
	must(t, err)
	r := w.request(block(0), onlyA, p, g)
	l, err := w.cache.Get(context.Background(), r)
	must(t, err)
	w.settle(t)
	l.Release()
	all, err := w.ledger.Admit(context.Background(), w.ledger.Most()-8<<20)
	must(t, err)
	few, err := w.ledger.Admit(context.Background(), 0)
	must(t, err)
	r.Grant = few
	if frames := w.tier.Get(context.Background(), r); frames != nil {
		t.Fatal("a block without memory for it")
	}
	all.Close()
	r.Grant = g
	frames := w.tier.Get(context.Background(), r)
	must(t, w.same(frames, w.record(block(0), onlyA)))
	if used := w.ledger.Stats().Used; used[budget.Mapped] < 1<<20 || used[budget.Frames] != 0 || !frames[0].Mapped() {
		t.Errorf("%v", used) // where files cannot be mapped, this is no test machine
	}
	for _, f := range frames {
		f.Release()
	}
	if s := w.tier.Stats(); s.Damaged+s.Errors != 0 || s.Blocks != 1 {
		t.Errorf("%+v", s)
	}
	few.Close()
	g.Close()
	w.cache.ClosePlan(p)
	w.leave(t)
}

// Blocks that another program has decoded are not used: it may have decoded them wrongly.
func TestAnotherVersionBeginsAnew(t *testing.T) {
	w := newWorld(t, t.TempDir(), plenty, 0)
	p := w.cache.Open("p", true)
	w.fill(t, 0, 3, onlyA, p)
	w.cache.ClosePlan(p)
	w.leave(t)
	pool := frame.NewPool(frame.Options{})
	tier, err := Open(context.Background(), Options{Dir: w.dir, Limit: plenty, Version: "test 2", Pool: pool, Events: w.told()})
	must(t, err)
	<-tier.found
	if s := tier.Stats(); s.Blocks != 0 || s.Damaged != 0 || len(files(t, w.dir)) != 0 {
		t.Errorf("%+v, %v", s, files(t, w.dir))
	}
	tier.Close()
}

// The second gateway on a directory is told who has it, unless that one leaves in time.
func TestTwoOnOneDirectory(t *testing.T) {
	dir := t.TempDir()
	w := newWorld(t, dir, plenty, 0)
	_, err := Open(context.Background(), Options{Dir: dir, Limit: plenty, Pool: w.pool, Wait: 100 * time.Millisecond})
	if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Open(ctx, Options{Dir: dir, Limit: plenty, Pool: w.pool, Wait: time.Hour}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	second := make(chan error)
	var tier *Tier
	go func() {
		var err error
		tier, err = Open(context.Background(), Options{Dir: dir, Limit: plenty, Pool: w.pool, Wait: time.Minute})
		second <- err
	}()
	w.leave(t)
	must(t, <-second)
	tier.Close()
}

func TestAFileInThePlaceOfTheDirectory(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("mine"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, folder), []byte("mine"), 0o600))
	for _, path := range []string{filepath.Join(dir, "file"), dir} {
		_, err := Open(context.Background(), Options{Dir: path, Limit: plenty})
		if !errors.Is(err, ErrNoDirectory) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// Files of others stay, whatever their names; ours that were begun, or hold nothing, go.
func TestForeignFilesStay(t *testing.T) {
	dir := t.TempDir()
	w := newWorld(t, dir, plenty, 0)
	p := w.cache.Open("p", true)
	w.fill(t, 0, 2, onlyA, p)
	w.cache.ClosePlan(p)
	w.leave(t)
	at := func(name string) string { return filepath.Join(dir, folder, name) }
	ofOurs := files(t, dir)
	content, err := os.ReadFile(at(ofOurs[0]))
	must(t, err)
	ourName := func(n int) string { return idOf(block(n), onlyA.Names()).file() }
	foreign := map[string]string{
		"notes.txt": "mine", "model.block": string(content), "a.block.part": string(content), ofOurs[0] + ".bak": string(content),
		ourName(90): "a file of somebody else's, with a name like ours", ourName(91) + temporary: "and one more",
		strings.ToUpper(ourName(92)): string(content),
	}
	for name, text := range foreign {
		must(t, os.WriteFile(at(name), []byte(text), 0o600))
	}
	must(t, os.Mkdir(at(ourName(93)), 0o700))
	must(t, os.Symlink(at("notes.txt"), at(ourName(94))))
	must(t, syscall.Mkfifo(at(ourName(95)), 0o600))
	for name, bytes := range map[string][]byte{
		ourName(80) + temporary: nil, ourName(81) + temporary: content[:7], ourName(82) + temporary: content[:len(content)-1],
		ourName(83): nil, ourName(84): make([]byte, 5000), ourName(85): content[:100],
	} {
		must(t, os.WriteFile(at(name), bytes, 0o600))
	}

	w.enter(t, plenty, 0)
	p = w.cache.Open("p", true)
	w.fill(t, 0, 2, onlyA, p)
	if w.loads.Load() != 2 {
		t.Errorf("%d loads", w.loads.Load())
	}
	w.fill(t, 90, 96, onlyA, p) // whose places some of them have
	s := w.tier.Stats()
	w.cache.ClosePlan(p)
	w.leave(t)
	for name, text := range foreign {
		if got, err := os.ReadFile(at(name)); err != nil || string(got) != text {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, n := range []int{93, 94, 95} {
		if _, err := os.Lstat(at(ourName(n))); err != nil {
			t.Error(err)
		}
	}
	if got, want := len(files(t, dir)), 2+len(foreign)+3+s.Blocks-2; got != want {
		t.Errorf("%d files, want %d: %v", got, want, files(t, dir))
	}
}

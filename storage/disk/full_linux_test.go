package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// mounted makes a small file system.
func mounted(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, options); err != nil {
		t.Skip("file systems cannot be mounted here: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// A full disk stops nobody: what is there is served, the rest comes from the store, it is told once, nothing half-written
// stays, and once there is room again, blocks are written again.
func TestAFullDisk(t *testing.T) {
	dir := mounted(t, "size=512k")
	w := newWorld(t, dir, plenty, 1)
	w.rows = 5000 // 40 KB
	w.tier.pause = 0
	p := w.cache.Open("p", true)
	w.fill(t, 0, 20, onlyA, p)
	s := w.tier.Stats()
	if w.heard("failed: ") != 1 || !strings.Contains(s.Failed, syscall.ENOSPC.Error()) || s.Blocks < 3 || s.Blocks > 13 || s.Errors < 5 {
		t.Errorf("%+v, %v", s, w.events)
	}
	if got := len(files(t, dir)); got != s.Blocks {
		t.Errorf("%d files of %d blocks", got, s.Blocks)
	}
	for n := range s.Blocks {
		w.get(t, n, onlyA, p)
	}
	if got := w.tier.Stats(); got.Hits != int64(s.Blocks) || w.loads.Load() != 20 {
		t.Errorf("%d loads, %+v", w.loads.Load(), got)
	}
	must(t, unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT, "size=8m"))
	w.fill(t, 0, 20, onlyA, p)
	if s := w.tier.Stats(); s.Blocks != 20 || s.Failed != "" || w.heard("works") != 1 || w.heard("failed: ") != 1 {
		t.Errorf("%+v, %v", s, w.events)
	}
	w.cache.ClosePlan(p)
	w.leave(t)

	// While it has failed just now, blocks are left out and nothing is tried.
	w.enter(t, plenty, 1)
	p = w.cache.Open("p", true)
	w.tier.fail(writing, errors.New("of the test"))
	w.fill(t, 30, 40, onlyA, p)
	if s := w.tier.Stats(); s.Dropped != 10 || s.Errors != 1 || s.Blocks != 20 {
		t.Errorf("%+v", s)
	}
	w.cache.ClosePlan(p)
	w.leave(t)
}

// A disk that cannot be written to, from the start or from some time on, is told once; what it has is served.
func TestAReadOnlyDisk(t *testing.T) {
	dir := mounted(t, "size=8m")
	w := newWorld(t, dir, plenty, 1)
	w.tier.pause = 0
	p := w.cache.Open("p", true)
	w.fill(t, 0, 3, onlyA, p)
	must(t, w.tier.dir.Load().held.Close()) // it is open for writing, which a file system has to be without
	must(t, unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	w.fill(t, 0, 6, onlyA, p)
	if s := w.tier.Stats(); w.heard("failed: ") != 1 || !strings.Contains(s.Failed, syscall.EROFS.Error()) || s.Hits != 3 || s.Blocks != 3 {
		t.Errorf("%+v, %v", s, w.events)
	}
	w.cache.ClosePlan(p)
	w.leave(t)

	w.events = nil
	w.enter(t, plenty, 1)
	p = w.cache.Open("p", true)
	w.fill(t, 0, 3, onlyA, p)
	if s := w.tier.Stats(); w.heard("failed: ") != 1 || s.Failed == "" || s.Blocks != 0 || s.Dropped != 0 {
		t.Errorf("%+v, %v", s, w.events)
	}
	w.cache.ClosePlan(p)
	w.leave(t)
	must(t, unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT, ""))

	w.enter(t, plenty, 1) // clean as ever
	<-w.tier.found
	if s := w.tier.Stats(); s.Blocks != 3 || s.Failed != "" || len(files(t, dir)) != 3 {
		t.Errorf("%+v", s)
	}
	w.leave(t)
}

// A directory that cannot be made is the disk's fault, not a mistake: the gateway goes on.
func TestADirectoryThatCannotBeMade(t *testing.T) {
	var told []error
	tier, err := Open(context.Background(), Options{Dir: "/proc/none/cache", Limit: plenty, Events: Events{Failed: func(err error) { told = append(told, err) }}})
	must(t, err)
	defer tier.Close()
	if s := tier.Stats(); len(told) != 1 || s.Failed == "" || s.Errors != 1 {
		t.Errorf("%v, %+v", told, s)
	}
}

// What memory gives up before the disk comes to it is left out, and counted; it comes again with the next load.
func TestWhatMemoryGivesUpFirst(t *testing.T) {
	w := newWorld(t, inMemory(t), plenty, 1)
	<-w.tier.found
	p := w.cache.Open("p", true)
	g, err := w.ledger.Admit(t.Context(), 1<<20)
	must(t, err)
	r := w.request(block(0), onlyA, p, g)
	w.tier.Loaded(w.cache, r) // nobody has loaded it
	w.settle(t)
	if s := w.tier.Stats(); s.Dropped != 1 || s.Blocks != 0 {
		t.Errorf("%+v", s)
	}
	g.Close()
	w.get(t, 0, onlyA, p)
	if s := w.tier.Stats(); s.Dropped != 1 || s.Blocks != 1 {
		t.Errorf("%+v", s)
	}
	w.cache.ClosePlan(p)
	w.leave(t)
}

// Files that are cut short, overwritten or deleted while they are shown: what was shown stays as it was.
func TestFilesThatChangeUnderway(t *testing.T) {
	w := newWounded(t, 80_000, "a", "b")
	frames := w.tier.Get(t.Context(), w.request(block(0), onlyA, w.plan, w.grant))
	if frames == nil || !frames[0].Mapped() {
		t.Fatal("not mapped")
	}
	must(t, os.Truncate(w.path(0), 100)) // the kernel has it wait
	must(t, os.WriteFile(w.path(0), []byte("other"), 0o600))
	must(t, w.same(frames, w.record(block(0), onlyA)))
	must(t, os.Remove(w.path(0)))
	must(t, w.same(frames, w.record(block(0), onlyA)))
	for _, f := range frames {
		f.Release()
	}
	if w.there(0, onlyA) {
		t.Error("served")
	}
	if got := filepath.Base(w.path(0)); w.heard("damaged: "+got) != 0 {
		t.Error(w.events)
	}
}

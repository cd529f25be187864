package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

func TestRestartReadsNoFooterAgain(t *testing.T) {
	for _, ext := range []string{"parquet", "arrow"} {
		dir, cache := folder(t, fourShards(ext)), t.TempDir()
		first := restart(t, dir, Archive{Dir: cache})
		s := first.planned("")
		if n := first.looks.Load(); n != 4 {
			t.Fatalf("%d looks at 4 objects", n)
		}
		second := restart(t, dir, Archive{Dir: cache})
		again := second.planned("")
		if n := second.looks.Load(); n != 0 || again.ID != s.ID || string(schema.Message(again.Schema)) != string(schema.Message(s.Schema)) {
			t.Errorf("%d looks after a restart, snapshot %s of %s", n, again.ID, s.ID)
		}
		x, err := second.read(again, again.Blocks(nil))
		must(t, errors.Join(err, counts(x, 0, 400)))
		add(t, dir, "4."+ext, ext[:1]+"0."+ext)
		third := restart(t, dir, Archive{Dir: cache})
		grown := third.planned("")
		if n := third.looks.Load(); n != 1 || len(grown.Shards) != 5 {
			t.Errorf("%d looks for one new object, %d shards", n, len(grown.Shards))
		}
		// A cursor of before is good for what was there then.
		old := third.planned(s.ID)
		x, err = third.read(old, old.Blocks(nil))
		must(t, errors.Join(err, counts(x, 0, 400)))
		if n := third.looks.Load(); n != 1 {
			t.Errorf("%d looks for an old snapshot", n-1)
		}
		first.quiet()
		second.quiet()
		third.quiet()
	}
}

// Two replicas, each with a cache of its own and its own view of the files,
// share what they have planned.
func TestReplicasHonourEachOthersSnapshots(t *testing.T) {
	dir, other, shared := folder(t, fourShards("parquet")), folder(t, fourShards("parquet")), "file://"+t.TempDir()
	a := restart(t, dir, Archive{Dir: t.TempDir(), URL: shared})
	s := a.planned("")
	add(t, other, "4.parquet", "p0.parquet") // the other one has seen a new file already
	b := restart(t, other, Archive{Dir: t.TempDir(), URL: shared})
	if newest := b.planned(""); newest.ID == s.ID {
		t.Fatal("the new file is not seen")
	}
	old := b.planned(s.ID)
	x, err := b.read(old, old.Blocks(nil))
	must(t, errors.Join(err, counts(x, 0, 400)))
	if n := b.looks.Load(); n != 5 {
		t.Errorf("%d looks at 5 objects: pins of a folder are each gateway's own", n)
	}
	a.quiet()
	b.quiet()
	if _, err := a.Snapshot(t.Context(), "d", strings.Repeat("0", 64)); !errors.Is(err, ErrSnapshotGone) {
		t.Errorf("%v, want ErrSnapshotGone", err)
	}
}

// An object that is other data now fails those who read it, by name, and nobody else.
func TestChangedObjectIsNamed(t *testing.T) {
	for name, archive := range map[string]func() Archive{
		"own cache": func() Archive { return Archive{Dir: t.TempDir()} },
		"shared":    func() Archive { return Archive{URL: t.TempDir()} },
	} {
		a := archive()
		dir := folder(t, fourShards("parquet"))
		s := restart(t, dir, a).planned("")
		add(t, dir, "2.parquet", "p0.parquet")
		must(t, os.Remove(filepath.Join(dir, "3.parquet")))
		r := restart(t, dir, a)
		old := r.planned(s.ID)
		if x, err := r.read(old, old.Blocks([]int{0, 1})); err != nil || counts(x, 0, 200) != nil {
			t.Errorf("%s: what did not change: %v", name, err)
		}
		if _, err := r.read(old, old.Blocks([]int{2})); !errors.Is(err, bucket.ErrChanged) || !strings.Contains(err.Error(), "2.parquet") {
			t.Errorf("%s: %v, want ErrChanged naming it", name, err)
		}
		if _, err := r.read(old, old.Blocks([]int{3})); !errors.Is(err, bucket.ErrNotFound) || !strings.Contains(err.Error(), "3.parquet") {
			t.Errorf("%s: %v, want ErrNotFound naming it", name, err)
		}
	}
}

// The same bytes, copied back or touched, are the same data.
func TestSameDataElsewhereIsFoundAgain(t *testing.T) {
	a := Archive{Dir: t.TempDir()}
	dir := folder(t, fourShards("parquet"))
	s := restart(t, dir, a).planned("")
	for i := range 4 {
		path := filepath.Join(dir, fmt.Sprintf("%d.parquet", i))
		content, err := os.ReadFile(path)
		must(t, errors.Join(err, os.Remove(path), os.WriteFile(path, content, 0o600)))
	}
	add(t, dir, "4.parquet", "p0.parquet")
	r := restart(t, dir, a)
	old := r.planned(s.ID)
	x, err := r.read(old, old.Blocks(nil))
	must(t, errors.Join(err, counts(x, 0, 400)))
}

// files lists what an archive has, by the ends of the names.
func archiveFiles(t *testing.T, dir, end string) (paths []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "d", "*"+end))
	must(t, err)
	return all
}

// Whatever is damaged is refused, told, and made anew from the objects.
func TestDamagedArchivesAreRebuilt(t *testing.T) {
	for _, end := range []string{".manifest", ".facts", ".pins", ".newest"} {
		for name, damage := range map[string]func(path string) error{
			"cut":     func(path string) error { return os.Truncate(path, 40) },
			"empty":   func(path string) error { return os.Truncate(path, 0) },
			"flipped": func(path string) error { return flip(path) },
			"gone":    os.Remove,
		} {
			cache, dir := t.TempDir(), folder(t, fourShards("parquet"))
			s := restart(t, dir, Archive{Dir: cache}).planned("")
			for _, path := range archiveFiles(t, cache, end) {
				must(t, damage(path))
			}
			r := restart(t, dir, Archive{Dir: cache})
			if again := r.planned(""); again.ID != s.ID {
				t.Errorf("%s %s: another snapshot", end, name)
			}
			if n := r.looks.Load(); n != 4 {
				t.Errorf("%s %s: %d looks, want 4", end, name, n)
			}
			if said := r.said.Load(); (end == ".manifest" || end == ".facts") && name != "gone" && (said == nil || !errors.Is(*said, snapshot.ErrManifest)) {
				t.Errorf("%s %s: nothing was said", end, name)
			}
			healed := restart(t, dir, Archive{Dir: cache})
			if healed.planned(""); healed.looks.Load() != 0 {
				t.Errorf("%s %s: it was not made anew", end, name)
			}
			healed.quiet()
		}
	}
}

func flip(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	b[len(b)/2] ^= 1
	return os.WriteFile(path, b, 0o600)
}

// A disk that is full or fails takes nothing but the memory of restarts.
func TestArchiveThatFailsIsToldAndDoneWithout(t *testing.T) {
	dir := folder(t, fourShards("parquet"))
	locked := t.TempDir()
	must(t, os.WriteFile(filepath.Join(locked, "d"), nil, 0o600)) // where the dataset's folder has to be
	for name, a := range map[string]Archive{
		"no folder there": {Dir: locked},
		"no folder":       {Dir: filepath.Join(dir, "0.parquet", "x")},
		"no bucket":       {URL: "file://" + filepath.Join(locked, "gone")},
	} {
		r := restart(t, dir, a)
		s := r.planned("")
		x, err := r.read(s, s.Blocks(nil))
		must(t, errors.Join(err, counts(x, 0, 400)))
		if r.said.Load() == nil {
			t.Errorf("%s: nothing was said", name)
		}
	}
	// Once it failed, plans do not wait for it, until it is time to try again.
	mended := t.TempDir()
	must(t, os.WriteFile(filepath.Join(mended, "d"), nil, 0o600))
	patient := restart(t, dir, Archive{Dir: mended})
	patient.planned("")
	must(t, os.Remove(filepath.Join(mended, "d")))
	patient.planned("")
	if n := len(archiveFiles(t, mended, "")); n != 0 {
		t.Errorf("%d files right after a failure", n)
	}
	for _, w := range patient.registry.known("d").keeper.shelves {
		w.now = func() time.Time { return time.Now().Add(2 * pause) }
	}
	patient.planned("")
	if n := len(archiveFiles(t, mended, ".manifest")); n != 1 {
		t.Errorf("%d manifests once it works again", n)
	}
	// What cannot be looked up is not the same as what is not there.
	r := restart(t, dir, Archive{URL: "file://" + filepath.Join(locked, "gone")})
	if _, err := r.Snapshot(t.Context(), "d", strings.Repeat("0", 64)); !errors.Is(err, bucket.ErrUnreachable) || errors.Is(err, ErrSnapshotGone) {
		t.Errorf("%v, want ErrUnreachable", err)
	}
	if _, err := New(t.Context(), Options{Archive: Archive{URL: "ftp://x"}}); err == nil {
		t.Error("ftp was taken")
	}
}

// Facts are written once, however many objects and snapshots have them.
func TestFactsAreStoredOnce(t *testing.T) {
	cache, dir := t.TempDir(), folder(t, map[string]string{"0.parquet": "p0.parquet"})
	r := restart(t, dir, Archive{Dir: cache})
	ids := []string{r.planned("").ID}
	for i := range 10 {
		add(t, dir, fmt.Sprintf("n%d.parquet", i), fmt.Sprintf("p%d.parquet", i%2))
		ids = append(ids, r.planned("").ID)
	}
	if n := len(archiveFiles(t, cache, ".facts")); n != 2 {
		t.Errorf("%d packs for two different objects", n)
	}
	again := restart(t, dir, Archive{Dir: cache})
	for _, id := range ids {
		again.planned(id)
	}
	r.quiet()
	again.quiet()
}

// Before facts lie in too many places they are merged.
func TestPacksAreMerged(t *testing.T) {
	cache, dir := t.TempDir(), t.TempDir()
	r := restart(t, dir, Archive{Dir: cache})
	for i := range maxPacks + 5 {
		content := fmt.Sprintf("=no Parquet, %d", i)
		add(t, dir, "0.parquet", "p0.parquet")
		add(t, dir, fmt.Sprintf("bad%02d.parquet", i), content)
		r.planned("")
	}
	s := r.planned("")
	again := restart(t, dir, Archive{Dir: cache})
	got := again.planned(s.ID)
	if again.looks.Load() != 0 || len(got.Shards) != maxPacks+6 {
		t.Errorf("%d shards", len(got.Shards))
	}
	text, err := os.ReadFile(filepath.Join(cache, "d", s.ID+".manifest"))
	must(t, err)
	m, err := snapshot.ParseManifest(s.ID, text)
	must(t, err)
	if len(m.Packs) >= maxPacks {
		t.Errorf("%d packs of one snapshot", len(m.Packs))
	}
	if want, have := s.Corrupt([]int{1}), got.Corrupt([]int{1}); have == nil || have.Error() != want.Error() || !errors.Is(have, snapshot.ErrCorrupt) {
		t.Errorf("%v became %v", want, have)
	}
}

// Snapshots that nobody plans for long go, with what only they need; others, and what others wrote, stay.
func TestUnusedSnapshotsAreDeleted(t *testing.T) {
	cache, dir := t.TempDir(), folder(t, fourShards("parquet"))
	a := Archive{Dir: cache, Keep: 10 * 24 * time.Hour}
	r := restart(t, dir, a)
	day := func(n int) {
		for _, w := range r.registry.known("d").keeper.shelves {
			w.now = func() time.Time { return time.Date(2026, 1, 1+n, 12, 0, 0, 0, time.UTC) }
		}
	}
	r.newest("d")
	day(0)
	old := r.planned("")
	must(t, os.WriteFile(filepath.Join(cache, "d", "somebody's.txt"), nil, 0o600))
	must(t, os.MkdirAll(filepath.Join(cache, "d", "sub", strings.Repeat("a", 64)+".manifest"), 0o700))
	add(t, dir, "4.parquet", "required.parquet")
	must(t, os.Remove(filepath.Join(dir, "4.parquet")))
	must(t, os.Remove(filepath.Join(dir, "3.parquet")))
	used := r.planned("")
	must(t, os.Remove(filepath.Join(dir, "2.parquet")))
	for n := range 13 {
		day(1 + n)
		r.planned("")
		r.planned(used.ID)
	}
	all := archiveFiles(t, cache, "")
	for id, want := range map[string]int{old.ID: 0, used.ID: 4, r.planned("").ID: 3} { // manifest, pins, the day and perhaps the one before
		if count(all, id) != want {
			t.Errorf("%d files of %s, want %d", count(all, id), id, want)
		}
	}
	if n := count(archiveFiles(t, cache, ""), "somebody"); n != 1 {
		t.Error("a file that is not the archive's was deleted")
	}
	if n := len(archiveFiles(t, cache, ".facts")); n != 1 {
		t.Errorf("%d packs", n)
	}
	again := restart(t, dir, a)
	again.planned(used.ID)
	if _, err := again.Snapshot(t.Context(), "d", old.ID); !errors.Is(err, ErrSnapshotGone) {
		t.Errorf("%v, want ErrSnapshotGone", err)
	}
	r.quiet()
}

func count(all []string, part string) (n int) {
	for _, s := range all {
		if strings.Contains(s, part) {
			n++
		}
	}
	return n
}

func TestRestartWith10000Shards(t *testing.T) {
	dir, cache := manyShards(t, 10_000), t.TempDir()
	first := restart(t, dir, Archive{Dir: cache})
	s := first.planned("")
	second := restart(t, dir, Archive{Dir: cache})
	if again := second.planned(""); second.looks.Load() != 0 || again.ID != s.ID || len(again.Shards) != 10_000 {
		t.Errorf("%d looks, %d shards", second.looks.Load(), len(again.Shards))
	}
}

// manyShards makes a folder of so many files of three rows.
func manyShards(t testing.TB, n int) string {
	dir := folder(t, map[string]string{"source": "required.parquet"})
	for i := range n {
		must(t, os.Link(filepath.Join(dir, "source"), filepath.Join(dir, fmt.Sprintf("part-%05d.parquet", i))))
	}
	return dir
}

// BenchmarkRestartWith10000Shards is a first plan after a restart.
func BenchmarkRestartWith10000Shards(b *testing.B) {
	dir, cache := manyShards(b, 10_000), b.TempDir()
	plan := func() {
		s, err := New(b.Context(), Options{Mounts: []Mount{{Name: "d", URL: dir}}, Pool: frame.NewPool(frame.Options{}), Archive: Archive{Dir: cache}})
		must(b, err)
		snap, err := s.Snapshot(b.Context(), "d", "")
		must(b, err)
		s.Keep(b.Context(), snap)
		must(b, s.Close())
	}
	plan()
	for b.Loop() {
		plan()
	}
}

package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/cache"
)

// wounded is a world with some blocks on disk, and memory to read them with.
type wounded struct {
	*world
	t       *testing.T
	columns *cache.Columns
	plan    *cache.Plan
	grant   *budget.Grant
}

func newWounded(t *testing.T, rows int, names ...string) *wounded {
	w := &wounded{world: newWorld(t, inMemory(t), plenty, 1), t: t, columns: columns(names...)}
	w.rows = rows
	w.plan = w.cache.Open("p", true)
	w.fill(t, 0, 2, w.columns, w.plan)
	var err error
	w.grant, err = w.ledger.Admit(t.Context(), 64<<20)
	must(t, err)
	t.Cleanup(func() {
		w.grant.Close()
		w.cache.ClosePlan(w.plan)
		w.leave(t)
	})
	return w
}

func (w *wounded) path(n int) string {
	return filepath.Join(w.dir, folder, idOf(block(n), w.columns.Names()).file())
}

// there tells whether the tier has a block. What it shows is right.
func (w *wounded) there(n int, c *cache.Columns) bool {
	w.t.Helper()
	frames := w.tier.Get(w.t.Context(), w.request(block(n), c, w.plan, w.grant))
	if frames == nil {
		return false
	}
	defer func() {
		for _, f := range frames {
			f.Release()
		}
	}()
	must(w.t, w.same(frames, w.record(block(n), c)))
	return true
}

// Whatever is done to a file, it is found out, told, deleted and counted, and the block comes from the store; the others stay.
func TestB81_DamagedFiles(t *testing.T) {
	for name, wound := range map[string]func(w *wounded, content []byte) []byte{
		"a flipped byte of the rows": func(_ *wounded, b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"a flipped byte of the key": func(_ *wounded, b []byte) []byte {
			b[bytes.Index(b, []byte("object"))] ^= 1
			return b
		},
		"a flipped byte of the mark": func(_ *wounded, b []byte) []byte { b[markAt] ^= 1; return b },
		"a flipped byte of the end":  func(_ *wounded, b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"cut short":                  func(_ *wounded, b []byte) []byte { return b[:len(b)-64] },
		"cut short in its head":      func(_ *wounded, b []byte) []byte { return b[:100] },
		"nothing in it":              func(*wounded, []byte) []byte { return nil },
		"zeros":                      func(_ *wounded, b []byte) []byte { clear(b); return b },
		"zeros behind its head":      func(_ *wounded, b []byte) []byte { clear(b[4096:]); return b },
		"longer":                     func(_ *wounded, b []byte) []byte { return append(b, 0) },
		"another block": func(w *wounded, _ []byte) []byte {
			b, err := os.ReadFile(w.path(1))
			must(w.t, err)
			return b
		},
	} {
		for rows, second := range map[int]string{500: "text", 40_000: "b"} { // copied, and mapped
			for _, restart := range []bool{false, true} {
				w := newWounded(t, rows, "a", second)
				content, err := os.ReadFile(w.path(0))
				must(t, err)
				must(t, os.WriteFile(w.path(0), wound(w, content), 0o600))
				if restart {
					w.again()
				}
				if w.there(0, w.columns) {
					t.Errorf("%s: it is served", name)
				}
				s := w.tier.Stats()
				if s.Damaged != 1 || w.heard("damaged: "+filepath.Base(w.path(0))) != 1 || s.Blocks != 1 || s.Errors != 0 {
					t.Errorf("%s, restart %v: %+v, %v", name, restart, s, w.events)
				}
				if _, err := os.Stat(w.path(0)); err == nil {
					t.Errorf("%s, restart %v: it is still there", name, restart)
				}
				before := w.loads.Load()
				w.get(t, 0, w.columns, w.plan)
				w.get(t, 1, w.columns, w.plan)
				if got := w.loads.Load() - before; got != 1 || !w.there(0, w.columns) {
					t.Errorf("%s: %d loads", name, got)
				}
			}
		}
	}
}

// again restarts the tier alone.
func (w *wounded) again() {
	w.grant.Close()
	w.cache.ClosePlan(w.plan)
	w.leave(w.t)
	w.enter(w.t, plenty, 1)
	w.plan = w.cache.Open("p", true)
	var err error
	w.grant, err = w.ledger.Admit(w.t.Context(), 64<<20)
	must(w.t, err)
	<-w.tier.found
}

// No byte of a file can be another one: of a small file each is tried.
func TestEveryByteCounts(t *testing.T) {
	w := newWounded(t, 20, "a", "text")
	content, err := os.ReadFile(w.path(0))
	must(t, err)
	e := w.tier.index.find(block(0), w.columns)
	r := w.request(block(0), w.columns, w.plan, w.grant)
	f, err := os.OpenFile(w.path(0), os.O_WRONLY, 0)
	must(t, err)
	defer f.Close()
	for i, b := range content {
		_, err := f.WriteAt([]byte{b ^ byte(1<<(i%8))}, int64(i))
		must(t, err)
		if frames, err := w.tier.read(e, r); err == nil {
			t.Errorf("byte %d: served", i)
			for _, l := range frames {
				l.Release()
			}
		}
		_, err = f.WriteAt([]byte{b}, int64(i))
		must(t, err)
	}
	if !w.there(0, w.columns) {
		t.Error("the file as it was is not served")
	}
}

// Files that were swapped are found out by the keys in their heads, with and without a restart.
func TestSwappedFiles(t *testing.T) {
	for _, restart := range []bool{false, true} {
		w := newWounded(t, 500, "a", "text")
		must(t, os.Rename(w.path(0), w.path(0)+".aside"))
		must(t, os.Rename(w.path(1), w.path(0)))
		must(t, os.Rename(w.path(0)+".aside", w.path(1)))
		if restart {
			w.again()
		}
		if w.there(0, onlyA) || w.there(1, onlyA) {
			t.Error("a swapped file is served")
		}
		if s := w.tier.Stats(); s.Damaged != 2 || s.Blocks != 0 || s.Bytes != 0 || len(files(t, w.dir)) != 0 {
			t.Errorf("%+v", s)
		}
	}
}

// A column that is not asked for may be damaged in a piece of its own: what is shown is what is checked.
func TestWhatIsShownIsChecked(t *testing.T) {
	w := newWounded(t, 400_000, "a", "b")
	content, err := os.ReadFile(w.path(0))
	must(t, err)
	h, err := readHeader(bytes.NewReader(content), int64(len(content)))
	must(t, err)
	second := h.frames[0].columns[1][0].buffers[1]
	content[h.size+second.off+second.len/2] ^= 4
	must(t, os.WriteFile(w.path(0), content, 0o600))
	if !w.there(0, onlyA) {
		t.Error("a whole column is not served")
	}
	if w.there(0, columns("b")) {
		t.Error("a damaged column is served")
	}
}

// A disk that dies has damaged files by the thousands: the first one is told at once, the rest together.
func TestManyDamagedFiles(t *testing.T) {
	for _, restart := range []bool{false, true} {
		w := newWounded(t, 500, "a")
		const many = 40
		w.fill(t, 0, many, w.columns, w.plan)
		for n := range many {
			must(t, os.Truncate(w.path(n), 5000))
		}
		if restart {
			w.again()
		}
		for n := range many {
			if w.there(n, w.columns) {
				t.Fatal("served")
			}
		}
		w.tier.Close()
		if s := w.tier.Stats(); s.Damaged != many || len(w.events) != 2 || !strings.Contains(w.events[0], ", 1 in all") || !strings.Contains(w.events[1], ", 39 in all") {
			t.Errorf("restart %v: %+v, %q", restart, s, w.events)
		}
	}
}

// What is found damaged a minute later is told then, and a first one again at once.
func TestDamagedFilesAreToldEveryMinute(t *testing.T) {
	w := newWounded(t, 500, "a")
	w.tier.pause = time.Millisecond
	for n := range 3 {
		w.tier.damaged("file", errDamaged)
		w.tier.damaged("file", errDamaged)
		for deadline := time.Now().Add(20 * time.Second); w.heard("damaged: file") < 2*n+2; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%q", w.events)
			}
		}
		for telling := true; telling; time.Sleep(time.Millisecond) { // it ends by itself
			w.tier.mu.Lock()
			telling = w.tier.untold.telling
			w.tier.mu.Unlock()
		}
	}
}

// A directory that is deleted under a running gateway is told once, as what it is, and made again after a while.
func TestADirectoryThatIsDeleted(t *testing.T) {
	w := newWounded(t, 500, "a")
	w.tier.pause = time.Hour
	must(t, os.RemoveAll(filepath.Join(w.dir, folder)))
	w.fill(t, 0, 4, w.columns, w.plan)
	if s := w.tier.Stats(); w.heard("failed: ") != 1 || !strings.Contains(s.Failed, filepath.Join(w.dir, folder)+": "+errGone.Error()) || s.Errors != 1 || s.Damaged != 0 {
		t.Fatalf("%+v, %q", s, w.events)
	}
	w.tier.mu.Lock()
	w.tier.pause = 0
	w.tier.trouble[writing].rest = time.Now()
	w.tier.mu.Unlock()
	w.fill(t, 0, 4, w.columns, w.plan)
	s := w.tier.Stats()
	if s.Blocks != 4 || s.Failed != "" || w.heard("works") != 1 || w.heard("failed: ") != 1 || len(files(t, w.dir)) != 4 {
		t.Errorf("%+v, %q, %q", s, w.events, files(t, w.dir))
	}
	for n := range 4 {
		if !w.there(n, w.columns) {
			t.Errorf("block %d is not there", n)
		}
	}
	// It is this gateway's own again.
	if _, err := Open(t.Context(), Options{Dir: w.dir, Limit: plenty}); !errors.Is(err, ErrBusy) {
		t.Error(err)
	}
}

// Should another gateway have made the directory anew meanwhile, it is that one's, and the first goes on without.
func TestADirectoryThatIsAnothersNow(t *testing.T) {
	w := newWounded(t, 500, "a")
	w.tier.pause = 0
	must(t, os.RemoveAll(filepath.Join(w.dir, folder)))
	second, err := Open(t.Context(), Options{Dir: w.dir, Limit: plenty, Pool: w.pool})
	must(t, err)
	defer second.Close()
	w.fill(t, 0, 4, w.columns, w.plan)
	if s := w.tier.Stats(); s.Blocks != 0 || !strings.Contains(s.Failed, ErrBusy.Error()) || w.heard("failed: ") != 1 || len(files(t, w.dir)) != 0 {
		t.Errorf("%+v, %q", s, w.events)
	}
}

// A file that is deleted by somebody is loaded again, and nobody is told: it is no damage.
func TestDeletedFiles(t *testing.T) {
	w := newWounded(t, 500, "a", "text")
	must(t, os.Remove(w.path(0)))
	if w.there(0, onlyA) {
		t.Error("served")
	}
	if s := w.tier.Stats(); s.Damaged+s.Errors != 0 || s.Blocks != 1 || len(w.events) != 0 {
		t.Errorf("%+v, %v", s, w.events)
	}
}

// FuzzHeader has the parser read heads of all kinds: with the checksum as it is, and with the right one, so that what
// lies behind it is reached.
func FuzzHeader(f *testing.F) {
	w := &world{rows: 20}
	for _, c := range []*cache.Columns{onlyA, columns("a", "text", "b")} {
		f.Add(w.file(f, c))
	}
	f.Add([]byte(begin + strings.Repeat("\x00", 100)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := readHeader(bytes.NewReader(b), int64(len(b))); err == nil {
			checkHeader(t, h, b)
		}
		if len(b) < fieldsAt {
			return
		}
		b = bytes.Clone(b)
		copy(b, begin)
		copy(b[markAt:], mark)
		end := min(int64(rootAt)+int64(binary.LittleEndian.Uint32(b[lengthAt:])), int64(len(b)))
		if end < int64(fieldsAt) {
			return
		}
		binary.LittleEndian.PutUint32(b[lengthAt:], uint32(end)-uint32(rootAt))
		clear(b[sumAt:countAt])
		binary.LittleEndian.PutUint32(b[sumAt:], crc32.Checksum(b[:end], castagnoli))
		if h, err := parse(b[:end]); err == nil {
			checkHeader(t, h, b)
		}
	})
}

// checkHeader checks what readers of a header rely on.
func checkHeader(t *testing.T, h *header, b []byte) {
	if h.size > int64(len(b)) || h.rest < 0 || int64(len(h.sums)) != pieces(h.rest) {
		t.Fatalf("%d of %d bytes, %d behind, %d sums", h.size, len(b), h.rest, len(h.sums))
	}
	for _, f := range h.frames {
		if len(f.columns) != len(h.columns) || f.rows < 0 {
			t.Fatalf("%d columns of %d, %d rows", len(f.columns), len(h.columns), f.rows)
		}
		for _, nodes := range f.columns {
			for _, n := range nodes {
				for _, s := range n.buffers {
					if s.off < 0 || s.len < 0 || s.off+s.len > h.rest {
						t.Fatalf("%+v of %d", s, h.rest)
					}
				}
			}
		}
	}
}

// file is a block's file.
func (w *world) file(t testing.TB, c *cache.Columns) []byte {
	dir := t.TempDir()
	o := newWorld(t, dir, plenty, 0)
	o.rows = w.rows
	p := o.cache.Open("p", true)
	o.get(t, 0, c, p)
	o.cache.ClosePlan(p)
	o.leave(t)
	b, err := os.ReadFile(filepath.Join(dir, folder, files(t, dir)[0]))
	must(t, err)
	return b
}

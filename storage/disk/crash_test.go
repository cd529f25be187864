package disk

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headrace/headrace/storage/cache"
)

// writeForEver loads blocks over a directory until it is killed: more than fit, so that some go.
func writeForEver(dir string) {
	w := newWorld(alone{}, dir, killedLimit, 1) // memory keeps nothing: there is always something to write
	w.rows = 20_000
	for round := 0; ; round++ {
		p := w.cache.Open(fmt.Sprint("plan ", round), true)
		for n := range 10 {
			w.get(alone{}, (10*round+n)%killedBlocks, onlyA, p)
		}
		w.cache.ClosePlan(p)
		if round == 2 {
			fmt.Println("writing")
		}
	}
}

const (
	killedBlocks = 40
	killedLimit  = 20 * 165_000
)

// alone is a test that is a process of its own.
type alone struct{}

func (alone) Helper()                           {}
func (alone) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (alone) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// A process that is killed at any time leaves whole blocks, and no litter once the next one has begun.
func TestKilledWhileWriting(t *testing.T) {
	dir := t.TempDir()
	for round := range 4 {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "DISK_TEST_WRITES_TO="+dir)
		out, err := child.StdoutPipe()
		must(t, err)
		child.Stderr = os.Stderr
		must(t, child.Start())
		_, err = out.Read(make([]byte, 8))
		must(t, err)
		deadline := time.Now().Add(time.Minute)
		for begunFiles(t, dir) == 0 && time.Now().Before(deadline) { // until it is in the middle of one
			time.Sleep(100 * time.Microsecond)
		}
		must(t, child.Process.Kill())
		_ = child.Wait()
		begun := begunFiles(t, dir)
		w := newWorld(t, dir, killedLimit, 0)
		w.rows = 20_000
		p := w.cache.Open("another", true)
		<-w.tier.found
		found := w.tier.Stats()
		for _, name := range files(t, dir) {
			if _, ok := idIn(name, suffix); !ok {
				t.Errorf("litter: %s", name)
			}
		}
		if got := len(files(t, dir)); got != found.Blocks || found.Bytes > killedLimit || found.Blocks == 0 || found.Damaged+found.Errors != 0 {
			t.Errorf("%d files, %+v", got, found)
		}
		g, err := w.ledger.Admit(t.Context(), 1<<20)
		must(t, err)
		for n := range killedBlocks {
			if frames := w.tier.Get(t.Context(), w.request(block(n), onlyA, p, g)); frames != nil {
				must(t, w.same(frames, w.record(block(n), onlyA)))
				for _, f := range frames {
					f.Release()
				}
			}
		}
		g.Close()
		if s := w.tier.Stats(); s.Hits != int64(found.Blocks) || s.Damaged != 0 {
			t.Errorf("%+v", s)
		}
		t.Logf("round %d: %d blocks, %d begun", round, found.Blocks, begun)
		w.cache.ClosePlan(p)
		w.leave(t)
	}
}

func begunFiles(t *testing.T, dir string) (n int) {
	for _, name := range files(t, dir) {
		if strings.HasSuffix(name, temporary) {
			n++
		}
	}
	return n
}

// crashing is a tier whose every use is compared with what may be: rows are always right, the limit holds, and after each
// restart the directory holds the blocks that are counted, and what is somebody else's.
type crashing struct {
	*world
	limit   int64
	plans   [3]*cache.Plan // nil: closed
	foreign map[string]bool
	hurt    map[string]bool // files that had their share: one fault each
}

func (c *crashing) begin(t fataler) {
	c.enter(t, c.limit, 1) // memory keeps nothing
	c.plans = [3]*cache.Plan{}
}

func (c *crashing) end(t fataler) {
	for _, p := range c.plans {
		if p != nil {
			c.cache.ClosePlan(p)
		}
	}
	c.leave(t)
}

func (c *crashing) path(name string) string { return filepath.Join(c.dir, folder, name) }

// any is the name of a block's file that is there, "" if there is none.
func (c *crashing) any(t *rapid.T) string {
	var names []string
	c.settle(t)
	for _, name := range files(t, c.dir) {
		if !c.foreign[name] {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return rapid.SampledFrom(names).Draw(t, "file")
}

// crash leaves what a crash may leave: files that were begun, and after a power failure, files cut short.
func (c *crashing) crash(t *rapid.T) {
	name := c.any(t)
	if name == "" || c.hurt[name] || strings.HasSuffix(name, temporary) {
		return
	}
	content, err := os.ReadFile(c.path(name))
	must(t, err)
	c.hurt[name] = true
	switch n := rapid.IntRange(0, len(content)-1).Draw(t, "bytes"); rapid.IntRange(0, 2).Draw(t, "how") {
	case 0:
		must(t, os.WriteFile(c.path(name+temporary), content[:n], 0o600))
	case 1:
		must(t, os.Truncate(c.path(name), int64(n)))
	case 2:
		clear(content[n&^511:]) // disks write whole sectors
		must(t, os.WriteFile(c.path(name), content, 0o600))
	}
}

func (c *crashing) litter(t *rapid.T) {
	name := idOf(block(rapid.IntRange(40, 60).Draw(t, "name")), onlyA.Names()).file()
	if rapid.Bool().Draw(t, "begun") {
		name += temporary
	}
	must(t, os.WriteFile(c.path(name), []byte("somebody else's"), 0o600))
	c.foreign[name] = true
}

// check compares the directory with what is counted.
func (c *crashing) check(t fataler) {
	t.Helper()
	c.settle(t)
	s := c.tier.Stats()
	var bytes int64
	blocks := 0
	for _, name := range files(t, c.dir) {
		if c.foreign[name] {
			delete(c.foreign, name)
			defer func() { c.foreign[name] = true }()
			continue
		}
		info, err := os.Stat(c.path(name))
		must(t, err)
		bytes += info.Size()
		blocks++
	}
	if len(c.foreign) > 0 {
		t.Fatalf("foreign files are gone: %v", c.foreign)
	}
	if s.Blocks != blocks || s.Bytes != bytes || s.Bytes > c.limit || s.Errors != 0 {
		t.Fatalf("%d files of %d bytes, limit %d: %+v", blocks, bytes, c.limit, s)
	}
	if l := c.ledger.Stats(); l.Reserved > l.Limit {
		t.Fatalf("%+v", l)
	}
}

func TestRandomUseWithCrashes(t *testing.T) {
	sets := []*cache.Columns{onlyA, columns("a", "text"), columns("text"), columns("text", "b", "a")}
	rapid.Check(t, func(t *rapid.T) {
		dir, remove := folderOf(t)
		defer remove()
		c := &crashing{world: &world{dir: dir, rows: 500}, limit: rapid.Int64Range(1, 200_000).Draw(t, "limit"), foreign: map[string]bool{}, hurt: map[string]bool{}}
		c.begin(t)
		t.Repeat(map[string]func(*rapid.T){
			"get": func(t *rapid.T) {
				i := rapid.IntRange(0, len(c.plans)-1).Draw(t, "plan")
				if c.plans[i] == nil {
					c.plans[i] = c.cache.Open(fmt.Sprint("plan ", i), true)
				}
				c.get(t, rapid.IntRange(0, 30).Draw(t, "block"), rapid.SampledFrom(sets).Draw(t, "columns"), c.plans[i])
			},
			"end a plan": func(t *rapid.T) {
				if i := rapid.IntRange(0, len(c.plans)-1).Draw(t, "plan"); c.plans[i] != nil {
					c.cache.ClosePlan(c.plans[i])
					c.plans[i] = nil
				}
			},
			"restart": func(t *rapid.T) {
				c.settle(t)
				c.end(t)
				c.begin(t)
				c.check(t)
			},
			"crash": func(t *rapid.T) {
				c.settle(t)
				c.end(t)
				for range rapid.IntRange(1, 4).Draw(t, "faults") {
					c.crash(t)
				}
				if rapid.Bool().Draw(t, "litter") {
					c.litter(t)
				}
				c.limit = rapid.Int64Range(1, 200_000).Draw(t, "limit")
				c.begin(t)
				<-c.tier.found
			},
			"delete": func(t *rapid.T) {
				if name := c.any(t); name != "" {
					must(t, os.Remove(c.path(name)))
				}
				c.settle(t)
				c.end(t)
				c.begin(t)
			},
			"damage": func(t *rapid.T) {
				name := c.any(t)
				if name == "" || c.hurt[name] {
					return
				}
				c.hurt[name] = true
				content, err := os.ReadFile(c.path(name))
				must(t, err)
				content[rapid.IntRange(0, len(content)-1).Draw(t, "byte")] ^= byte(1 << rapid.IntRange(0, 7).Draw(t, "bit"))
				must(t, os.WriteFile(c.path(name), content, 0o600))
			},
		})
		c.settle(t)
		c.end(t)
	})
}

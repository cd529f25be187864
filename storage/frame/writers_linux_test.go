package frame

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/storage/budget"
)

// TestB78_WritersOfMappedFiles lets other processes do to a mapped file what people do to files, while its bytes are
// read: the reader sees the old bytes only, the writer does not wait long, and the process lives.
func TestB78_WritersOfMappedFiles(t *testing.T) {
	const n = 1 << 18 // 2 MiB
	for _, c := range []struct {
		what, script string
		writes       bool // to the file itself, so that the lease must go
	}{
		{"truncate to zero", again(`truncate -s 0 "$F"`), true},
		{"truncate to half", again(`truncate -s 1000003 "$F"`), true},
		{"redirect", `: > "$F"`, true},
		{"rewrite", `head -c 3000000 /dev/urandom > "$F"`, true},
		{"overwrite in place", `dd if=/dev/zero of="$F" bs=64k count=32 conv=notrunc 2>/dev/null`, true},
		{"append", `echo more >> "$F"`, true},
		{"grow", again(`truncate -s 100M "$F"`), true},
		{"open for writing only", `: <> "$F"`, true},
		{"rename over", `head -c 1000 /dev/urandom > "$F.new" && mv "$F.new" "$F"`, false},
		{"rename away", `mv "$F" "$F.old" && echo new > "$F"`, false},
		{"unlink", `rm "$F"`, false},
		{"a second reader", `cat "$F" > /dev/null && cmp "$F" "$F"`, false},
		{"permissions", `chmod 0 "$F" && touch -d 2001-01-01 "$F.x"`, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			l, g, p := world(t, 1<<24)
			path := filepath.Join(t.TempDir(), "file")
			content := noise(t, path, n)
			f, r := mapPath(t, p, path)
			all, err := int64s(f, r, g, 0, n)
			if err != nil {
				t.Fatal(err)
			}
			part, err := int64s(f, r, g, 100_000, 101_000)
			if err != nil {
				t.Fatal(err)
			}
			defer part.Release()
			var stop atomic.Bool
			var reader errgroup.Group
			reader.Go(func() error {
				for rounds := 0; !stop.Load() || rounds < 2; rounds++ {
					if !bytes.Equal(shown(all), content) || !bytes.Equal(shown(part), content[800_000:808_000]) {
						return errors.New("other bytes than at first")
					}
				}
				return nil
			})
			write(t, c.script, path)
			if c.writes { // which the kernel allows a moment before the pool has counted it
				until(t, "the end of the mapping", func() bool { return p.Stats().Files == 0 })
			}
			s := p.Stats()
			if c.writes && (s.Files != 0 || s.Mapped != 0 || s.Copied != all.Bytes()+part.Bytes()) {
				t.Errorf("after the write: %+v", s)
			}
			if !c.writes && (s.Files != 1 || s.Copied != 0) {
				t.Errorf("without a write: %+v", s)
			}
			if used := l.Stats().Used; used[budget.Mapped] != s.Mapped || used[budget.Copies] != s.Copied {
				t.Errorf("the ledger has %v, the pool %+v", used, s)
			}
			stop.Store(true)
			if err := reader.Wait(); err != nil {
				t.Error(err)
			}
			all.Release() // which takes nothing from the part
			if !bytes.Equal(shown(part), content[800_000:808_000]) {
				t.Error("other bytes after the end of another frame")
			}
			late, err := int64s(f, r, g, 0, n)
			if c.writes != errors.Is(err, ErrNotInPlace) {
				t.Errorf("a new frame after that: %v", err)
			}
			if err == nil {
				late.Release()
			}
		})
	}
}

// Frames may show the same pages: what has become memory goes with the last of them.
func TestCopiesGoWithTheirLastFrame(t *testing.T) {
	_, g, p := world(t, 1<<26)
	path := filepath.Join(t.TempDir(), "file")
	const n, half = 1 << 20, 1 << 19
	content := noise(t, path, n)
	f, r := mapPath(t, p, path)
	var leases [3]*Lease
	for i, rows := range [3][2]int64{{0, half}, {half / 2, n}, {n - 1, n}} {
		var err error
		if leases[i], err = int64s(f, r, g, rows[0], rows[1]); err != nil {
			t.Fatal(err)
		}
	}
	write(t, `: > "$F"`, path)
	resident := func() (pages int) {
		t.Helper()
		state := make([]byte, len(f.mem)/os.Getpagesize())
		if _, _, errno := syscall.Syscall(syscall.SYS_MINCORE, uintptr(unsafe.Pointer(&f.mem[0])), uintptr(len(f.mem)), uintptr(unsafe.Pointer(&state[0]))); errno != 0 {
			t.Fatal(errno)
		}
		for _, s := range state {
			pages += int(s & 1)
		}
		return pages
	}
	for i, pages := range []int{2048, 1536, 1} {
		if got := resident(); got != pages {
			t.Errorf("%d pages with %d frames, want %d", got, 3-i, pages)
		}
		if l := leases[2]; !bytes.Equal(shown(l), content[8*(n-1):]) {
			t.Error("other bytes than at first")
		}
		leases[i].Release()
	}
}

// TestMapManyFiles has 500 files cut short at once by other processes.
func TestMapManyFiles(t *testing.T) {
	_, g, p := world(t, 1<<28)
	dir := t.TempDir()
	const files, n = 500, 4096
	want := map[*Lease][]byte{}
	for i := range files {
		path := filepath.Join(dir, fmt.Sprint(i))
		content := noise(t, path, n+i)
		f, r := mapPath(t, p, path)
		l, err := int64s(f, r, g, 0, int64(n+i))
		if err != nil {
			t.Fatal(err)
		}
		want[l] = content
	}
	if s := p.Stats(); s.Files != files || s.Frames != files {
		t.Fatalf("%+v", s)
	}
	began := time.Now()
	var writers errgroup.Group
	for i := range files {
		writers.Go(func() error { return os.Truncate(filepath.Join(dir, fmt.Sprint(i)), int64(i)) })
	}
	if err := writers.Wait(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > patience() {
		t.Errorf("500 writers took %v", took)
	}
	until(t, "the end of all mappings", func() bool { return p.Stats().Files == 0 })
	if s := p.Stats(); s.Mapped != 0 {
		t.Errorf("%+v", s)
	}
	for l, content := range want {
		if !bytes.Equal(shown(l), content) {
			t.Error("other bytes than at first")
		}
		l.Release()
	}
	if maps, err := os.ReadFile("/proc/self/maps"); err != nil || strings.Contains(string(maps), dir) {
		t.Errorf("files are still mapped: %v", err)
	}
}

// What becomes memory has been paid for before, so that a full ledger makes no writer wait.
func TestCopiesOfMappedFilesStayUnderTheLimit(t *testing.T) {
	const n = 64 << 10
	l := budget.New(budget.Options{Limit: 8 * n})
	g, err := l.Admit(context.Background(), 8*n)
	if err != nil {
		t.Fatal(err)
	}
	p := NewPool(Options{})
	path := filepath.Join(t.TempDir(), "file")
	content := noise(t, path, n)
	f, r := mapPath(t, p, path)
	lease, err := int64s(f, r, g, 0, n)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := int64s(f, r, g, 0, 1000); !errors.Is(err, budget.ErrExhausted) {
		t.Errorf("more than the limit: %v", err)
	}
	g.Close()
	write(t, `: > "$F"`, path)
	if s := l.Stats(); s.Reserved != 8*n || s.Used[budget.Copies] != 8*n || len(s.Used) != 1 {
		t.Errorf("%+v", s)
	}
	if !bytes.Equal(shown(lease), content) {
		t.Error("other bytes than at first")
	}
	lease.Release()
	if s := l.Stats(); s.Reserved != 0 || len(s.Used) != 0 {
		t.Errorf("%+v", s)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// Frames come and go in many goroutines while another process writes to the files again and again.
func TestMappedFilesUnderFire(t *testing.T) {
	_, g, p := world(t, 1<<28)
	dir := t.TempDir()
	const files, n = 4, 1 << 15
	var content [files][]byte
	for i := range files {
		content[i] = noise(t, filepath.Join(dir, fmt.Sprint(i)), n)
	}
	cmd := exec.Command("sh", "-c", `while :; do for f in "$D"/*; do : >> "$f"; done; sleep 0.02; done`)
	cmd.Env = append(os.Environ(), "D="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var mapped, copied, refused atomic.Int64
	var group errgroup.Group
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for i := range 8 {
		group.Go(func() error {
			random := rand.New(rand.NewSource(int64(i)))
			for ctx.Err() == nil {
				k := random.Intn(files)
				if err := useOnce(p, g, filepath.Join(dir, fmt.Sprint(k)), content[k], random); errors.Is(err, ErrNoLease) || errors.Is(err, ErrNotInPlace) {
					refused.Add(1)
				} else if err != nil {
					return err
				}
				mapped.Add(1)
				copied.Store(max(copied.Load(), p.Stats().Copied))
			}
			return nil
		})
	}
	err := group.Wait()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d tries, %d refused, at most %d bytes copied out", mapped.Load(), refused.Load(), copied.Load())
	if mapped.Load() == refused.Load() || copied.Load() == 0 {
		t.Error("nothing was mapped, or no writer came in between")
	}
}

// useOnce maps a file, makes frames of it and gives them back in several goroutines.
func useOnce(p *Pool, g *budget.Grant, path string, content []byte, random *rand.Rand) error {
	r, err := os.Open(path)
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := p.Map(r.Fd())
	if err != nil {
		return err
	}
	defer f.Close()
	var group sync.WaitGroup
	defer group.Wait()
	var wrong atomic.Bool
	for range 1 + random.Intn(4) {
		from := random.Intn(len(content) / 8)
		to := from + 1 + random.Intn(len(content)/8-from)
		l, err := int64s(f, r, g, int64(from), int64(to))
		if err != nil {
			return err
		}
		hold := time.Duration(random.Intn(5)*random.Intn(60)) * time.Millisecond
		group.Go(func() {
			defer l.Release()
			time.Sleep(hold)
			if !bytes.Equal(shown(l), content[8*from:8*to]) {
				wrong.Store(true)
			}
		})
	}
	group.Wait()
	if wrong.Load() {
		return errors.New("other bytes than at first")
	}
	return nil
}

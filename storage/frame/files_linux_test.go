package frame

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/storage/budget"
)

// patience is how long a writer may have to wait: the promise is one second. A machine that is busy with much else
// keeps no promises.
func patience() time.Duration {
	b, _ := os.ReadFile("/proc/loadavg")
	var load float64
	if _, _ = fmt.Sscan(string(b), &load); load > 2*float64(runtime.NumCPU()) {
		return 10 * time.Second
	}
	return time.Second
}

func init() {
	parts["map"] = func(path string) error {
		r, err := os.Open(path)
		if err != nil {
			return err
		}
		p := NewPool(Options{})
		f, err := p.Map(r.Fd())
		if err == nil {
			f.Close()
		}
		return errors.Join(err, p.Close())
	}
	// The signal that tells of writers would end a process that does not expect it.
	parts["signal"] = func(path string) error {
		for range 100 {
			if err := syscall.Kill(os.Getpid(), syscall.SIGIO); err != nil {
				return err
			}
		}
		time.Sleep(10 * time.Millisecond)
		return nil
	}
}

// as runs this test binary as another process that plays a part.
func as(t *testing.T, part, path string, change func(*exec.Cmd)) (string, error) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "HEADRACE_TEST_PART="+part, "HEADRACE_TEST_FILE="+path)
	if change != nil {
		change(cmd)
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// write has another process run a script on a file, which must not take longer than it would on a file that nobody
// has mapped, but for the patience that it is asked for.
func write(t testing.TB, script, path string) {
	t.Helper()
	free := filepath.Join(t.TempDir(), "free")
	if err := os.WriteFile(free, make([]byte, 3000000), 0o644); err != nil {
		t.Fatal(err)
	}
	if took := shell(t, script, path); took > patience() && took-shell(t, script, free) > patience() {
		t.Errorf("%s took %v", script, took)
	}
}

// shell runs a script on a file and tells how long it took.
func shell(t testing.TB, script, path string) time.Duration {
	t.Helper()
	began := time.Now()
	cmd := exec.Command("sh", "-c", script)
	cmd.Env = append(os.Environ(), "F="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", script, err, out)
	}
	return time.Since(began)
}

// again repeats a command that opens the file without being ready to wait (O_NONBLOCK): the kernel tells it to come
// back later, and asks for the lease.
func again(command string) string { return "until " + command + " 2>/dev/null; do sleep 0.02; done" }

// until waits for what another goroutine will do.
func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 10 s", what)
		}
	}
}

// noise is a file of n random numbers at path.
func noise(t testing.TB, path string, n int) []byte {
	t.Helper()
	content := make([]byte, 8*n)
	rand.New(rand.NewSource(int64(n))).Read(content)
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return content
}

// int64s is a frame over the numbers [from, to) of a file.
func int64s(f *File, r *os.File, g *budget.Grant, from, to int64) (*Lease, error) {
	c := Column{Type: arrow.PrimitiveTypes.Int64, Len: to, Buffers: []Buffer{{}, {R: r, Len: 8 * to}}}
	return f.frame(g, schemaOf(c.Type), Piece{Columns: []Column{c}, From: from, To: to}, always)
}

// shown are the bytes that a frame of numbers shows, where they lie.
func shown(l *Lease) []byte {
	d := l.Batch().Column(0).Data()
	return d.Buffers()[1].Bytes()[8*d.Offset():][:8*d.Len()]
}

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

// A file is under one lease however many hold it, and under none when nobody does.
func TestMapSharesOneLease(t *testing.T) {
	_, g, p := world(t, 1<<24)
	path := filepath.Join(t.TempDir(), "file")
	content := noise(t, path, 1000)
	first, r := mapPath(t, p, path)
	second, _ := mapPath(t, p, path)
	if first != second || p.Stats().Files != 1 {
		t.Errorf("two leases: %+v", p.Stats())
	}
	l, err := int64s(first, r, g, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if r.Close(); !bytes.Equal(shown(l), content) {
		t.Error("the frame does not live on by itself")
	}
	if write(t, `: > "$F"`, path); !bytes.Equal(shown(l), content) {
		t.Error("the frame does not live on without its file")
	}
	l.Release()
	until(t, "the end of the lease", func() bool { return p.Stats().Files == 0 })
	if s := p.Stats(); s.Copied != 0 || s.Frames != 0 {
		t.Errorf("%+v", s)
	}
}

// A lease that nobody needs any more goes soon, also if nobody asks for it, and with the pool.
func TestMapEndsWithItsLastUse(t *testing.T) {
	_, g, p := world(t, 1<<24)
	path := filepath.Join(t.TempDir(), "file")
	noise(t, path, 1000)
	r, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	use := func() *File {
		t.Helper()
		f, err := p.Map(r.Fd())
		if err != nil {
			t.Fatal(err)
		}
		l, err := int64s(f, r, g, 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		l.Release()
		return f
	}
	writable := func() {
		t.Helper()
		w, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			t.Fatalf("there still is a lease: %v", err)
		}
		w.Close()
	}
	first := use()
	if use() != first {
		t.Error("the second use did not find the first one's lease")
	}
	until(t, "the end of an idle lease", func() bool { return p.Stats().Files == 0 })
	writable()
	use()
	if err := p.Close(); err != nil || p.Stats().Files != 0 {
		t.Errorf("%v, %+v", err, p.Stats())
	}
	writable()
}

func TestWithout(t *testing.T) {
	for _, c := range []struct{ a, b, want []extent }{
		{[]extent{{0, 4}, {8, 12}}, nil, []extent{{0, 4}, {8, 12}}},
		{[]extent{{0, 4}, {8, 12}}, []extent{{4, 8}, {12, 99}}, []extent{{0, 4}, {8, 12}}},
		{[]extent{{0, 4}, {8, 12}}, []extent{{0, 12}}, nil},
		{[]extent{{0, 12}}, []extent{{2, 3}, {5, 7}}, []extent{{0, 2}, {3, 5}, {7, 12}}},
		{[]extent{{2, 12}}, []extent{{0, 3}, {11, 20}}, []extent{{3, 11}}},
	} {
		if got := without(c.a, c.b); !slices.Equal(got, c.want) {
			t.Errorf("%v without %v: %v, want %v", c.a, c.b, got, c.want)
		}
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

// The thread that asked for a lease may end.
func TestMapOutlivesItsThread(t *testing.T) {
	_, g, p := world(t, 1<<24)
	path := filepath.Join(t.TempDir(), "file")
	content := noise(t, path, 1000)
	r, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var f *File
	var tid int
	var thread errgroup.Group
	thread.Go(func() (err error) {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		tid = syscall.Gettid()
		f, err = p.Map(r.Fd())
		return err
	})
	if err := thread.Wait(); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if tid != os.Getpid() {
		until(t, "the end of the thread", func() bool {
			_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid))
			return err != nil
		})
	}
	l, err := int64s(f, r, g, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	if write(t, `: > "$F"`, path); !bytes.Equal(shown(l), content) {
		t.Error("other bytes than at first")
	}
}

func TestMapWithoutALease(t *testing.T) {
	_, _, p := world(t, 1<<24)
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	noise(t, path, 1000)
	refused := func(what string, file *os.File) {
		t.Helper()
		if f, err := p.Map(file.Fd()); !errors.Is(err, ErrNoLease) || f != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	open := func(name string, flags int) *os.File {
		t.Helper()
		f, err := os.OpenFile(name, flags, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	r := open(path, os.O_RDONLY)
	w := open(path, os.O_WRONLY)
	refused("a file that is being written", r)
	mem, err := syscall.Mmap(int(open(path, os.O_RDWR).Fd()), 0, 4096, syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	refused("a file that is mapped for writing", r)
	if err := syscall.Munmap(mem); err != nil {
		t.Fatal(err)
	}
	refused("a folder", open(dir, os.O_RDONLY))
	refused("a device", open("/dev/null", os.O_RDONLY))
	refused("a file that the kernel makes up", open("/proc/self/maps", os.O_RDONLY))
	if s := p.Stats(); s.Files != 0 {
		t.Errorf("%+v", s)
	}
}

// Only the owner of a file gets a lease on it, unless he may ask for any.
func TestMapOfSomebodyElsesFile(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can become somebody else")
	}
	dir, err := os.MkdirTemp("", "frame") // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	program, path := filepath.Join(dir, "program"), filepath.Join(dir, "file")
	if err := os.WriteFile(program, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	noise(t, path, 1000)
	nobody := func(cmd *exec.Cmd) {
		cmd.Path, cmd.Dir = program, dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	if out, err := as(t, "map", path, nobody); err == nil || !strings.Contains(out, ErrNoLease.Error()) {
		t.Errorf("somebody else got a lease: %v %s", err, out)
	}
	if err := os.Chown(path, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if out, err := as(t, "map", path, nobody); err != nil {
		t.Errorf("the owner got no lease: %v %s", err, out)
	}
}

// Nobody is told of writers by a signal, and one that came would do no harm.
func TestMapSendsNoSignals(t *testing.T) {
	got := make(chan os.Signal, 8)
	signal.Notify(got, syscall.SIGIO)
	defer signal.Stop(got)
	_, _, p := world(t, 1<<24)
	path := filepath.Join(t.TempDir(), "file")
	noise(t, path, 10)
	mapPath(t, p, path)
	write(t, `: > "$F"`, path)
	select {
	case <-got:
		t.Error("a signal came")
	default:
	}
	if out, err := as(t, "signal", path, nil); err != nil {
		t.Errorf("the signal ended the process: %v %s", err, out)
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

func TestCloseTellsOfMappedFiles(t *testing.T) {
	p := NewPool(Options{})
	path := filepath.Join(t.TempDir(), "file")
	noise(t, path, 10)
	r, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := p.Map(r.Fd())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); !errors.Is(err, ErrLive) || !strings.Contains(err.Error(), "1 mapped files") {
		t.Error(err)
	}
	f.Close()
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

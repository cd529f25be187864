package frame

import (
	"bytes"
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
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"go.uber.org/goleak"
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

// TestMain runs the tests, or plays a part in one of them as a process of its own.
func TestMain(m *testing.M) {
	if part := parts[os.Getenv("HEADRACE_TEST_PART")]; part != nil {
		if err := part(os.Getenv("HEADRACE_TEST_FILE")); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// parts are what a process can be told to do with a file.
var parts = map[string]func(path string) error{
	"map": func(path string) error {
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
	},
	// The signal that tells of writers would end a process that does not expect it.
	"signal": func(string) error {
		for range 100 {
			if err := syscall.Kill(os.Getpid(), syscall.SIGIO); err != nil {
				return err
			}
		}
		time.Sleep(10 * time.Millisecond)
		return nil
	},
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
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	refused("a FIFO", open(fifo, os.O_RDWR))
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

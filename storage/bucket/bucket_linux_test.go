package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// world is a folder with a neighbour that nothing may reach: dir/data and
// dir/data-secret.
func world(t *testing.T) (*Bucket, string) {
	t.Helper()
	dir := t.TempDir()
	root := filepath.Join(dir, "data")
	put(t, filepath.Join(dir, "data-secret", "s.parquet"), "secret")
	put(t, filepath.Join(root, "a.parquet"), "0123456789")
	b, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, b.Close()) })
	return b, root
}

// put writes a file as if long ago, so that any later change shows in its times.
func put(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(content), 0o644))
	old := time.Now().Add(-time.Hour)
	must(t, os.Chtimes(path, old, old))
}

func list(t *testing.T, b *Bucket, prefix string) (keys []string, all map[string]Attrs) {
	t.Helper()
	all = map[string]Attrs{}
	must(t, b.List(t.Context(), prefix, func(a Attrs) error {
		keys = append(keys, a.Key)
		all[a.Key] = a
		return nil
	}))
	return keys, all
}

func open(t *testing.T, b *Bucket, key string, pin Pin) *Object {
	t.Helper()
	o, err := b.Open(t.Context(), key, pin)
	must(t, err)
	t.Cleanup(func() { _ = o.Close() })
	return o
}

func TestListIsSortedByKeyAtEveryDepth(t *testing.T) {
	b, root := world(t)
	for _, key := range []string{"a/x", "a/b/y", "a-z", "a.b", "a0", "ä", "B/z"} {
		put(t, filepath.Join(root, key), key)
	}
	keys, all := list(t, b, "")
	want := []string{"B/", "B/z", "a-z", "a.b", "a.parquet", "a/", "a/b/", "a/b/y", "a/x", "a0", "ä"}
	if !slices.Equal(keys, want) || !slices.IsSorted(keys) {
		t.Errorf("listed %q, want %q", keys, want)
	}
	if a := all["a/b/y"]; a.Size != 5 || a.Pin == "" || a.Err != nil {
		t.Errorf("attributes %+v", a)
	}
}

func TestListPrefix(t *testing.T) {
	b, root := world(t)
	for _, key := range []string{"x/one", "x/two", "x/sub/three", "xy", "y/x/four"} {
		put(t, filepath.Join(root, key), key)
	}
	for prefix, want := range map[string][]string{
		"x":     {"x/", "x/one", "x/sub/", "x/sub/three", "x/two", "xy"},
		"x/":    {"x/one", "x/sub/", "x/sub/three", "x/two"},
		"x/t":   {"x/two"},
		"none/": nil,
		"a.par": {"a.parquet"},
	} {
		if keys, _ := list(t, b, prefix); !slices.Equal(keys, want) {
			t.Errorf("%q lists %q, want %q", prefix, keys, want)
		}
	}
	for _, prefix := range []string{"../", "x/../../", "/", "a\x00/"} {
		err := b.List(t.Context(), prefix, func(Attrs) error { t.Errorf("%q lists something", prefix); return nil })
		if !errors.Is(err, ErrOutside) {
			t.Errorf("%q: %v, want ErrOutside", prefix, err)
		}
	}
}

func TestListStopsAndSkips(t *testing.T) {
	b, root := world(t)
	put(t, filepath.Join(root, "b/one"), "1")
	put(t, filepath.Join(root, "c"), "1")
	var keys []string
	must(t, b.List(t.Context(), "", func(a Attrs) error {
		keys = append(keys, a.Key)
		if a.Key == "b/" {
			return fs.SkipDir
		}
		return nil
	}))
	if want := []string{"a.parquet", "b/", "c"}; !slices.Equal(keys, want) {
		t.Errorf("listed %q, want %q", keys, want)
	}
	enough := errors.New("enough")
	if err := b.List(t.Context(), "", func(Attrs) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("%v, want the error of yield", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.List(ctx, "", func(Attrs) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
}

// Everything odd is listed with its reason, and nothing odd is ever waited for.
func TestOddFilesAreListedAndRefused(t *testing.T) {
	b, root := world(t)
	must(t, syscall.Mkfifo(filepath.Join(root, "fifo.parquet"), 0o644))
	l, err := net.Listen("unix", filepath.Join(root, "s.arrow"))
	must(t, err)
	defer func() { must(t, l.Close()) }()
	link := func(to, name string) { must(t, os.Symlink(to, filepath.Join(root, name))) }
	link("../data-secret/s.parquet", "out.parquet")
	link(root+"/a.parquet", "absolute.parquet")
	link("/dev/null", "null.parquet")
	link("nowhere", "dangling.parquet")
	link("loop.parquet", "loop.parquet")
	link("a.parquet", "inside.parquet")
	must(t, os.Mkdir(filepath.Join(root, "sub.parquet"), 0o755))
	link("../a.parquet", "sub.parquet/up.parquet")
	link("sub.parquet", "folder.parquet")

	keys, all := list(t, b, "")
	if i := slices.Index(keys, "folder.parquet"); i < 0 || strings.HasPrefix(keys[i+1], "folder.parquet/") {
		t.Errorf("the folder link was followed or left out: %q", keys)
	}
	for key, want := range map[string]error{
		"fifo.parquet": ErrNotRegular, "s.arrow": ErrNotRegular, "folder.parquet": ErrNotRegular,
		"out.parquet": ErrOutside, "absolute.parquet": ErrOutside, "null.parquet": ErrOutside,
		"dangling.parquet": ErrNotFound, "loop.parquet": syscall.ELOOP, "sub.parquet": ErrNotRegular,
	} {
		if a, ok := all[key]; ok && a.Err == nil && key != "sub.parquet" {
			t.Errorf("%s is listed without a reason", key)
		}
		start := time.Now()
		if _, err := b.Open(t.Context(), key, ""); !errors.Is(err, want) {
			t.Errorf("opening %s: %v, want %v", key, err, want)
		}
		if time.Since(start) > 5*time.Second {
			t.Errorf("opening %s took %v", key, time.Since(start))
		}
	}
	for _, key := range []string{"inside.parquet", "sub.parquet/up.parquet"} {
		if a := all[key]; a.Err != nil || a.Size != 10 || a.Pin != all["a.parquet"].Pin {
			t.Errorf("%s: %+v", key, a)
		}
		open(t, b, key, all[key].Pin)
	}
}

func TestUnreadableFolderAndFileAreListed(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("permissions do not bind root")
	}
	b, root := world(t)
	put(t, filepath.Join(root, "locked/x.parquet"), "x")
	put(t, filepath.Join(root, "mine.parquet"), "x")
	must(t, os.Chmod(filepath.Join(root, "locked"), 0))
	must(t, os.Chmod(filepath.Join(root, "mine.parquet"), 0))
	defer func() { must(t, os.Chmod(filepath.Join(root, "locked"), 0o755)) }()
	if _, all := list(t, b, ""); !errors.Is(all["locked/"].Err, fs.ErrPermission) {
		t.Errorf("locked/: %v, want a permission error", all["locked/"].Err)
	}
	if _, err := b.Open(t.Context(), "mine.parquet", ""); !errors.Is(err, fs.ErrPermission) || strings.Contains(err.Error(), root) {
		t.Errorf("%v, want a permission error without the folder's place", err)
	}
}

func TestB62NamesThatLeadOutAreAnsweredAlike(t *testing.T) {
	b, root := world(t)
	must(t, os.Symlink("../data-secret", filepath.Join(root, "link")))
	answer := func(key string) string {
		o, err := b.Open(t.Context(), key, "")
		if err == nil {
			_ = o.Close()
			t.Fatalf("%q was opened", key)
		}
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v, want ErrNotFound", key, err)
		}
		return strings.ReplaceAll(err.Error(), fmt.Sprintf("%q", key), "KEY")
	}
	missing := answer("no-such.parquet")
	abs := filepath.Join(filepath.Dir(root), "data-secret", "s.parquet")
	for _, key := range []string{
		"", ".", "..", "../", "../data-secret/s.parquet", "../data-secret", "../nothing", "data-secret/s.parquet",
		"a/../../data-secret/s.parquet", "./a.parquet", "a.parquet/", "a.parquet/x", "/a.parquet", abs, "//" + abs, "/etc/passwd",
		"link", "link/", "link/s.parquet", "link/nothing", "link/../a.parquet",
		"..%2fdata-secret%2fs.parquet", "%2e%2e/data-secret/s.parquet", "..%5cdata-secret", `..\data-secret\s.parquet`, "%2fetc%2fpasswd",
		"a.parquet\x00", "\x00", "../data-secret/s.parquet\x00.parquet", "a\xff.parquet",
	} {
		if got := answer(key); got != missing {
			t.Errorf("%q is answered %q, but a missing object %q", key, got, missing)
		}
	}
}

func TestOpenRoot(t *testing.T) {
	_, root := world(t)
	b, err := Open("file://" + root)
	must(t, err)
	if keys, _ := list(t, b, ""); len(keys) != 1 {
		t.Errorf("listed %q", keys)
	}
	must(t, b.Close())
	for _, bad := range []string{root + "/a.parquet", root + "/none"} {
		if _, err := Open(bad); !errors.Is(err, ErrUnreachable) || strings.Contains(err.Error(), root) {
			t.Errorf("%q: %v, want ErrUnreachable without the place", bad, err)
		}
	}
	for _, bad := range []string{"ftp://bucket/x", "s3://bucket/x?regoin=y", "file://elsewhere/x", "file://" + root + "?a=b"} {
		if _, err := Open(bad); err == nil {
			t.Errorf("%q was opened", bad)
		}
	}
}

func TestUnder(t *testing.T) {
	b, root := world(t)
	put(t, filepath.Join(root, "x/y/one"), "1")
	must(t, os.Symlink("../../a.parquet", filepath.Join(root, "x/y/up")))
	must(t, os.Symlink("../../../data-secret/s.parquet", filepath.Join(root, "x/y/out")))
	for _, v := range []*Bucket{b.Under("x/y"), b.Under("x/").Under("y/")} {
		keys, all := list(t, v, "")
		if !slices.Equal(keys, []string{"one", "out", "up"}) || all["up"].Err != nil || !errors.Is(all["out"].Err, ErrOutside) {
			t.Errorf("listed %+v", all)
		}
		if o := open(t, v, "up", all["up"].Pin); o.Key() != "up" || o.Size() != 10 {
			t.Errorf("opened %s of %d bytes", o.Key(), o.Size())
		}
		if _, err := v.Open(t.Context(), "../../a.parquet", ""); !errors.Is(err, ErrNotFound) {
			t.Errorf("%v, want ErrNotFound", err)
		}
	}
	if name, err := Base("file://" + root + "/x/../x/"); err != nil || name != "x" {
		t.Errorf("base is %q, %v", name, err)
	}
}

func TestReadAt(t *testing.T) {
	b, _ := world(t)
	o := open(t, b, "a.parquet", "")
	if o.Size() != 10 || o.Key() != "a.parquet" {
		t.Errorf("size %d, key %q", o.Size(), o.Key())
	}
	p := make([]byte, 4)
	must(t, o.ReadAt(t.Context(), p, 6))
	if string(p) != "6789" {
		t.Errorf("read %q", p)
	}
	must(t, o.ReadAt(t.Context(), nil, 10))
	for _, off := range []int64{7, 10, 11, -1, 1 << 62} {
		if err := o.ReadAt(t.Context(), p, off); !errors.Is(err, ErrTruncated) {
			t.Errorf("4 bytes at %d: %v, want ErrTruncated", off, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := o.ReaderAt(ctx)
	if all, err := io.ReadAll(io.NewSectionReader(r, 0, 100)); err != nil || string(all) != "0123456789" {
		t.Errorf("read %q, %v", all, err)
	}
	if n, err := r.ReadAt(p, 8); n != 2 || err != io.EOF || string(p[:n]) != "89" {
		t.Errorf("read %d %q, %v", n, p[:n], err)
	}
	if n, err := r.ReadAt(p, 99); n != 0 || err != io.EOF {
		t.Errorf("read %d, %v", n, err)
	}
	cancel()
	if _, err := r.ReadAt(p, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
}

// What happens to a file while it is open, and what its reader and the next
// one with the same pin must see.
func TestChangesWhileOpen(t *testing.T) {
	write := func(flags int, content string) func(string) error {
		return func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY|flags, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString(content)
			return errors.Join(err, f.Close())
		}
	}
	for name, tt := range map[string]struct {
		change func(path string) error
		reads  error // nil: the old bytes
		reopen error
	}{
		"unlink": {os.Remove, nil, ErrNotFound},
		"rename over": {func(path string) error {
			put(t, path+".new", "abcdefghij")
			return os.Rename(path+".new", path)
		}, nil, ErrChanged},
		"unlink and write anew": {func(path string) error {
			return errors.Join(os.Remove(path), os.WriteFile(path, []byte("0123456789"), 0o644))
		}, nil, ErrChanged},
		"another name":   {func(path string) error { return os.Link(path, path+".link") }, nil, ErrChanged},
		"rewrite":        {write(0, "abcdefghij"), ErrChanged, ErrChanged},
		"rewrite a part": {write(0, "a"), ErrChanged, ErrChanged},
		"append":         {write(os.O_APPEND, "a"), ErrChanged, ErrChanged},
		"truncate":       {func(path string) error { return os.Truncate(path, 3) }, ErrChanged, ErrChanged},
		"truncate to 0":  {func(path string) error { return os.Truncate(path, 0) }, ErrChanged, ErrChanged},
		"rewrite, old time": {func(path string) error {
			info, err := os.Stat(path)
			return errors.Join(err, write(0, "abcdefghij")(path), os.Chtimes(path, info.ModTime(), info.ModTime()))
		}, ErrChanged, ErrChanged},
	} {
		t.Run(name, func(t *testing.T) {
			b, root := world(t)
			path := filepath.Join(root, "a.parquet")
			_, all := list(t, b, "")
			pin := all["a.parquet"].Pin
			o := open(t, b, "a.parquet", pin)
			if o.Pin() != pin {
				t.Fatalf("listed as %s, opened as %s", pin, o.Pin())
			}
			must(t, tt.change(path))
			for range 2 {
				p := make([]byte, 10)
				err := o.ReadAt(t.Context(), p, 0)
				if !errors.Is(err, tt.reads) || err == nil && string(p) != "0123456789" {
					t.Errorf("read %q, %v, want %v", p, err, tt.reads)
				}
			}
			if _, err := b.Open(t.Context(), "a.parquet", pin); !errors.Is(err, tt.reopen) {
				t.Errorf("opened again: %v, want %v", err, tt.reopen)
			}
		})
	}
}

func TestUnlinkedThenWrittenIsChanged(t *testing.T) {
	b, root := world(t)
	path := filepath.Join(root, "a.parquet")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer func() { must(t, f.Close()) }()
	o := open(t, b, "a.parquet", "")
	must(t, os.Remove(path))
	p := make([]byte, 10)
	must(t, o.ReadAt(t.Context(), p, 0))
	_, err = f.WriteAt([]byte("x"), 5)
	must(t, err)
	if err := o.ReadAt(t.Context(), p, 0); !errors.Is(err, ErrChanged) {
		t.Errorf("%v, want ErrChanged", err)
	}
}

func TestConcurrentReads(t *testing.T) {
	b, root := world(t)
	o := open(t, b, "a.parquet", "")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 200 {
				p := make([]byte, 3)
				if err := o.ReadAt(t.Context(), p, int64(i%8)); err != nil || string(p) != "0123456789"[i%8:i%8+3] {
					t.Errorf("read %q, %v", p, err)
				}
			}
		})
	}
	must(t, os.Remove(filepath.Join(root, "a.parquet")))
	wg.Wait()
}

// The system's own name for an open object leads to its bytes, whatever became of its name in the bucket.
func TestDescriptor(t *testing.T) {
	root := t.TempDir()
	must(t, os.WriteFile(filepath.Join(root, "a"), []byte("old"), 0o600))
	b, err := Open(root)
	must(t, err)
	o, err := b.Open(context.Background(), "a", "")
	must(t, err)
	must(t, os.Remove(filepath.Join(root, "a")))
	var got [3]byte
	must(t, o.Descriptor(func(fd uintptr) {
		_, err := syscall.Pread(int(fd), got[:], 0)
		must(t, err)
	}))
	if string(got[:]) != "old" {
		t.Errorf("read %q", got)
	}
	must(t, errors.Join(o.Close(), b.Close()))
	if o.Descriptor(func(uintptr) { t.Error("a closed object has a descriptor") }) == nil {
		t.Error("no error")
	}
}

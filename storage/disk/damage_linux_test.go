package disk

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// What has the name of a block and is no file will not become one: it is told once and left alone, and no trouble with the disk.
func TestWhatIsNoFile(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"a folder":                 func(path string) error { return os.Mkdir(path, 0o700) },
		"a link to nothing":        func(path string) error { return os.Symlink("nothing", path) },
		"a link to itself":         func(path string) error { return os.Symlink(filepath.Base(path), path) },
		"a link out of the folder": func(path string) error { return os.Symlink("/", path) },
		"a pipe":                   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a socket": func(path string) error {
			fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			defer syscall.Close(fd)
			t.Chdir(filepath.Dir(path)) // the whole path may be too long
			return syscall.Bind(fd, &syscall.SockaddrUnix{Name: filepath.Base(path)})
		},
	} {
		w := newWounded(t, 500, "a", "text")
		must(t, os.Remove(w.path(0)))
		must(t, put(w.path(0)))
		for range 2 {
			w.get(t, 0, w.columns, w.plan)
			w.get(t, 1, w.columns, w.plan)
		}
		s := w.tier.Stats()
		if s.Failed != "" || s.Errors != 0 || s.Damaged != 1 || s.Blocks != 1 || s.Refused != 2 || len(w.events) != 1 {
			t.Errorf("%s: %+v, %v", name, s, w.events)
		}
		if info, err := os.Lstat(w.path(0)); err != nil || info.Mode().IsRegular() {
			t.Errorf("%s: it is gone: %v", name, err)
		}
		w.again()
		if s := w.tier.Stats(); s.Errors != 0 || s.Blocks != 1 {
			t.Errorf("%s: after a restart: %+v, %v", name, s, w.events)
		}
	}
}

// What cannot be opened now may be opened later: it is told once, the block is loaded, and its file stays. That it works
// again is told once nothing has failed for a while, though other files could be opened meanwhile.
func TestFilesThatCannotBeOpenedNow(t *testing.T) {
	w := newWounded(t, 500, "a", "text")
	fewer := func(most uint64) (before uint64) {
		var r syscall.Rlimit
		must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r))
		before, r.Cur = r.Cur, most
		must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &r))
		return before
	}
	for range 3 {
		usual := fewer(3)
		served := w.there(0, onlyA)
		fewer(usual)
		if served || !w.there(1, onlyA) {
			t.Error("not as many files as may be open")
		}
	}
	if s := w.tier.Stats(); s.Failed == "" || s.Errors != 3 || s.Damaged != 0 || s.Blocks != 2 || w.heard("failed: ") != 1 || w.heard("works") != 0 {
		t.Errorf("%+v, %v", s, w.events)
	}
	w.tier.pause = 0
	w.tier.fail(reading, errors.New("of the test"))
	if !w.there(0, onlyA) || w.tier.Stats().Failed != "" || w.heard("works") != 1 || w.heard("failed: ") != 1 {
		t.Errorf("%+v, %v", w.tier.Stats(), w.events)
	}
}

// Something of somebody else's that has the name of the lock is left as it is, and so is what a link of that name leads to.
func TestB80_AnotherLockIsLeftAlone(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"a file":           func(path string) error { return os.WriteFile(path, []byte("notes\n"), 0o600) },
		"a longer file":    func(path string) error { return os.WriteFile(path, []byte("0123456789012345678901234567890"), 0o600) },
		"a link to a file": func(path string) error { return os.Symlink("other", path) },
		"a link to none":   func(path string) error { return os.Symlink("none", path) },
		"a link out of it": func(path string) error { return os.Symlink("../other", path) },
		"a pipe":           func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a folder":         func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		dir := inMemory(t)
		blocks := filepath.Join(dir, folder)
		must(t, os.Mkdir(blocks, 0o700))
		for _, path := range []string{filepath.Join(dir, "other"), filepath.Join(blocks, "other")} {
			must(t, os.WriteFile(path, nil, 0o600))
		}
		lock := filepath.Join(blocks, lockName)
		must(t, put(lock))
		before, err := os.Lstat(lock)
		must(t, err)
		w := newWorld(t, dir, plenty, 1)
		p := w.cache.Open("p", true)
		w.get(t, 0, onlyA, p)
		if s := w.tier.Stats(); w.heard("failed: "+lock+": ") != 1 || s.Failed == "" || s.Blocks != 0 {
			t.Errorf("%s: %+v, %v", name, s, w.events)
		}
		w.cache.ClosePlan(p)
		w.leave(t)
		after, err := os.Lstat(lock)
		if err != nil || after.Mode() != before.Mode() || after.Size() != before.Size() || !os.SameFile(before, after) {
			t.Errorf("%s: %v became %v, %v", name, before, after, err)
		}
		for _, path := range []string{filepath.Join(dir, "other"), filepath.Join(blocks, "other")} {
			if info, err := os.Stat(path); err != nil || info.Size() != 0 {
				t.Errorf("%s: %s: %v, %v", name, path, info, err)
			}
		}
		if _, err := os.Lstat(filepath.Join(blocks, "none")); err == nil {
			t.Errorf("%s: what a link leads to was made", name)
		}
	}
	// One that was killed leaves its own behind.
	dir := inMemory(t)
	must(t, os.Mkdir(filepath.Join(dir, folder), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, folder, lockName), []byte("4194304\n"), 0o600))
	w := newWorld(t, dir, plenty, 1)
	if s := w.tier.Stats(); s.Failed != "" {
		t.Errorf("%+v", s)
	}
	w.leave(t)
}

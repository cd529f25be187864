package e2e

import (
	"strings"
	"syscall"
	"testing"
)

// A cache directory on a file system that is full: streams go on as if there were none, and it is said once.
func TestAFullCacheDirectory(t *testing.T) {
	cache := t.TempDir()
	if err := syscall.Mount("none", cache, "tmpfs", 0, "size=8m"); err != nil {
		t.Skip("file systems cannot be mounted here: ", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(cache, syscall.MNT_DETACH) })
	data, want := expected(t)
	for range 2 { // the second begins with what the first could write
		s := cached(t, data, cache)
		python(t, same, s.uri, want, "0", "1")
		s.written()
		if n := strings.Count(s.log.String(), "blocks are not kept on disk as they should be"); n != 1 || !strings.Contains(s.log.String(), "no space left on device") || s.metric("headrace_disk_failing") != 1 {
			t.Errorf("said %d times\n%s", n, s.log)
		}
		out, stderr, err := run(t, "ls", "--cache", "--server", s.uri)
		if err != nil || !strings.Contains(out, "the disk fails") {
			t.Errorf("ls: %v\n%s%s", err, out, stderr)
		}
		s.stop()
	}
	if litter := blockFiles(t, cache, ".part"); len(litter) > 0 {
		t.Errorf("litter: %v", litter)
	}
}

//go:build !race

package arrowfile

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"

	"github.com/headrace/headrace/storage/frame"
)

// The race detector has memory of its own for all that is read, so this is measured without it.

// resident is the resident memory of this process in bytes: RssAnon, that which no file stands behind, or RssFile.
func resident(t testing.TB, kind string) int64 {
	t.Helper()
	runtime.GC()
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(kind + `:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		t.Fatalf("no %s in /proc/self/status", kind)
	}
	n, err := strconv.ParseInt(string(found[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}

// A shard of 4 GiB is shown whole, all blocks at once, and takes next to no memory of this process.
func TestMappedShardTakesNoMemory(t *testing.T) {
	dir := t.TempDir()
	const batches, rows, step = 128, 32 << 10, 3840
	size := sparse(t, filepath.Join(dir, "large.arrows"), batches, rows)
	h := newHouseOf(t, dir, 8<<30)
	obj, sh := h.describe(t, "large.arrows")
	if len(sh.Segments) != batches || size < 4<<30 {
		t.Fatalf("%d batches in %d bytes", len(sh.Segments), size)
	}
	before, files := resident(t, "RssAnon"), resident(t, "RssFile")
	var leases []*frame.Lease
	var frames int64
	for i := range sh.Segments {
		if err := h.each(obj, sh, i, step, func(l *frame.Lease) {
			leases = append(leases, l)
			frames += l.Batch().NumRows()
		}); err != nil {
			t.Fatal(err)
		}
	}
	after := resident(t, "RssAnon")
	s := h.pool.Stats()
	if frames != batches*rows || s.Mapped < 4<<30 || s.Regions != 0 || s.Files != 1 {
		t.Errorf("%d rows, %+v", frames, s)
	}
	t.Logf("%d frames of %d bytes in place: %d KiB more of anonymous memory", len(leases), s.Mapped, (after-before)>>10)
	if after-before >= 5<<20 {
		t.Errorf("%d bytes more of anonymous memory", after-before)
	}
	for _, l := range leases {
		l.Release()
	}
	if n := resident(t, "RssFile") - files; n > 16<<20 {
		t.Errorf("%d bytes of the file are still in the process", n)
	}
}

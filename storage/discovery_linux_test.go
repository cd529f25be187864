package storage

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/snapshot"
)

func (r *rig) names() string {
	r.t.Helper()
	names, err := r.Datasets(r.t.(*testing.T).Context())
	must(r.t, err)
	return strings.Join(names, " ")
}

func keys(s *snapshot.Snapshot) string {
	var list []string
	for _, sh := range s.Shards {
		list = append(list, sh.Key)
	}
	return strings.Join(list, " ")
}

func TestTreeNamesDatasets(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "base")
	for key, source := range map[string]string{
		"top.parquet":                  "p0.parquet",
		"year=2024/month=1/x.parquet":  "p1.parquet",
		"year=2024/deeper/y.parquet":   "p2.parquet",
		"vision/train/a.parquet":       "p0.parquet",
		"vision/train/k=1/b.parquet":   "p1.parquet",
		"vision/train/more/c.parquet":  "p2.parquet",
		"vision/README.md":             "=words",
		"docs/README.md":               "=words",
		".cache/hidden.parquet":        "p0.parquet",
		"_temporary/x/hidden.parquet":  "p0.parquet",
		"vision/train/notes.txt":       "=words",
		"vision/train/k=1/.part.crc":   "=words",
		"arrows/stream.arrow":          "stream.arrow",
		"arrows/" + "file.arrow":       "a0.arrow",
		"arrows/sub/.parquet":          "=words",
		"arrows/sub/feather/f.feather": "f.feather",
	} {
		add(t, dir, key, source)
	}
	r := tree(t, dir)
	if got, want := r.names(), "arrows arrows/sub/feather base vision/train vision/train/more"; got != want {
		t.Fatalf("datasets %q, want %q", got, want)
	}
	for name, want := range map[string]string{
		"base":              "top.parquet year=2024/deeper/y.parquet year=2024/month=1/x.parquet",
		"vision/train":      "a.parquet k=1/b.parquet",
		"vision/train/more": "c.parquet",
		"arrows":            "file.arrow stream.arrow",
	} {
		s := r.newest(name)
		if got := keys(s); got != want || s.Dataset != name {
			t.Errorf("%s holds %q as %q, want %q", name, got, s.Dataset, want)
		}
	}
	if st := r.Status(t.Context(), "vision/train"); st.Skipped != 2 || st.Err != nil || len(st.Corrupt) != 0 {
		t.Errorf("status %+v, want 2 skipped", st)
	}
	for _, name := range []string{"vision", "docs", "", ".cache", "base/top.parquet", "../base", "arrows/", "year=2024"} {
		if _, err := r.Snapshot(t.Context(), name, ""); !errors.Is(err, ErrNoDataset) {
			t.Errorf("%q: %v, want ErrNoDataset", name, err)
		}
	}
}

// The name of a dataset comes from the folder, its identity from the data.
func TestIdentityIsTheSameAnywhere(t *testing.T) {
	files := map[string]string{"a.parquet": "p0.parquet", "k=1/b.parquet": "p1.parquet"}
	a, b := folder(t, files), t.TempDir()
	for key, source := range files {
		add(t, filepath.Join(b, "some", "where"), key, source)
	}
	mounted, inTree := one(t, a).newest("d"), tree(t, b).newest("some/where")
	if mounted.ID != inTree.ID || keys(mounted) != keys(inTree) {
		t.Errorf("%s of %s, %s of %s", mounted.ID, keys(mounted), inTree.ID, keys(inTree))
	}
}

func TestCollisionIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "same")
	add(t, dir, "a.parquet", "p0.parquet")
	add(t, dir, "same/b.parquet", "p1.parquet")
	add(t, dir, "other/c.parquet", "p2.parquet")
	r := tree(t, dir)
	if got := r.names(); got != "other same" {
		t.Errorf("datasets %q", got)
	}
	if _, err := r.Snapshot(t.Context(), "same", ""); !errors.Is(err, snapshot.ErrUnsupported) || !strings.Contains(err.Error(), "rename") {
		t.Errorf("%v, want a refusal that says what to do", err)
	}
	r.newest("other")
	must(t, os.Remove(filepath.Join(dir, "a.parquet")))
	if got := keys(r.newest("same")); got != "b.parquet" {
		t.Errorf("after the collision is gone it holds %q", got)
	}
}

func TestTablesAreRefusedByName(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "base")
	for _, key := range []string{
		"delta/_delta_log/0.json", "ice/metadata/v1.metadata.json", "hudi/.hoodie/hoodie.properties", "l.lance/_versions/1.manifest", "l.lance/data/x.lance",
	} {
		add(t, dir, key, "={}")
	}
	for _, key := range []string{"delta/a.parquet", "delta/k=1/b.parquet", "delta/sub/c.parquet", "ice/data/a.parquet", "hudi/a.parquet", "plain/a.parquet"} {
		add(t, dir, key, "p0.parquet")
	}
	r := tree(t, dir)
	if got, want := r.names(), "delta hudi ice l.lance plain"; got != want {
		t.Errorf("datasets %q, want %q", got, want)
	}
	for name, kind := range map[string]string{"delta": "Delta Lake", "ice": "Iceberg", "hudi": "Hudi", "l.lance": "Lance"} {
		if _, err := r.Snapshot(t.Context(), name, ""); !errors.Is(err, snapshot.ErrUnsupported) || !strings.Contains(err.Error(), kind) {
			t.Errorf("%s: %v, want a refusal that says %s", name, err, kind)
		}
		if _, err := one(t, filepath.Join(dir, name)).Snapshot(t.Context(), "d", ""); !errors.Is(err, snapshot.ErrUnsupported) {
			t.Errorf("%s mounted: %v, want a refusal", name, err)
		}
	}
	r.newest("plain")
	if _, err := one(t, dir).Snapshot(t.Context(), "d", ""); !errors.Is(err, snapshot.ErrUnsupported) {
		t.Errorf("a mount that contains tables: %v, want a refusal", err)
	}
	r = newRig(t, Options{Mounts: []Mount{{Name: "d", URL: dir, Files: []string{"plain/**", "ice/*"}}}})
	if got := keys(r.newest("d")); got != "plain/a.parquet" {
		t.Errorf("a mount that selects no file of a table holds %q", got)
	}
}

func TestMountSelectsByGlobs(t *testing.T) {
	dir := folder(t, map[string]string{
		"a.parquet": "p0.parquet", "x/y/b.data": "p1.parquet", "x/c.data": "p2.parquet", "old/d.data": "p3.parquet", "x/.e.data": "p3.parquet",
	})
	r := newRig(t, Options{Mounts: []Mount{{Name: "d", URL: "file://" + dir, Files: []string{"**/*.data"}, Exclude: []string{"old/**"}}}})
	if got := keys(r.newest("d")); got != "x/c.data x/y/b.data" {
		t.Errorf("holds %q", got)
	}
	if st := r.Status(t.Context(), "d"); st.Skipped != 3 {
		t.Errorf("%d skipped, want 3", st.Skipped)
	}
}

func TestMixedFormatsAreRefused(t *testing.T) {
	r := one(t, folder(t, map[string]string{"a.parquet": "p0.parquet", "b.arrow": "a1.arrow"}))
	if _, err := r.Snapshot(t.Context(), "d", ""); !errors.Is(err, snapshot.ErrUnsupported) || !strings.Contains(err.Error(), "a.parquet") || !strings.Contains(err.Error(), "b.arrow") {
		t.Errorf("%v, want a refusal that names both", err)
	}
}

func TestEmptyFolders(t *testing.T) {
	dir := t.TempDir()
	if r := tree(t, dir); r.names() != "" {
		t.Errorf("an empty tree has %q", r.names())
	}
	r := one(t, dir)
	if _, err := r.Snapshot(t.Context(), "d", ""); r.names() != "d" || !errors.Is(err, snapshot.ErrEmpty) {
		t.Errorf("an empty mount: %q, %v, want ErrEmpty", r.names(), err)
	}
	if _, err := New(t.Context(), Options{Mounts: []Mount{{URL: filepath.Join(dir, "none"), Tree: true}}}); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a tree over nothing: %v, want an error that names it", err)
	}
	r = one(t, filepath.Join(dir, "none"))
	if _, err := r.Snapshot(t.Context(), "d", ""); !errors.Is(err, bucket.ErrUnreachable) || strings.Contains(err.Error(), dir) {
		t.Errorf("a mount of nothing: %v", err)
	}
	must(t, os.Mkdir(filepath.Join(dir, "none"), 0o755))
	add(t, dir, "none/a.parquet", "p0.parquet")
	r.newest("d")
}

func TestMountsAreChecked(t *testing.T) {
	dir := t.TempDir()
	for name, mounts := range map[string][]Mount{
		"no name":      {{URL: dir}},
		"twice":        {{Name: "a", URL: dir}, {Name: "a", URL: dir}},
		"tree and one": {{Name: "a", URL: dir}, {URL: dir, Tree: true}},
		"scheme":       {{Name: "a", URL: "ftp://bucket"}},
	} {
		if _, err := New(t.Context(), Options{Mounts: mounts}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestB60MarksAreSkippedAndEmptyFilesAreErrors(t *testing.T) {
	dir := folder(t, map[string]string{
		"a.parquet": "p0.parquet", "_SUCCESS": "=", ".a.parquet.crc": "=x", "_metadata": "=x", "_common_metadata": "=x",
		".hidden.parquet": "p1.parquet", "README.md": "=words", "x.parquet": "=",
	})
	r := one(t, dir)
	s := r.newest("d")
	if keys(s) != "a.parquet x.parquet" || s.Rows() != 100 {
		t.Errorf("%d rows in %q", s.Rows(), keys(s))
	}
	if err := s.Corrupt(nil); !errors.Is(err, snapshot.ErrCorrupt) || !strings.Contains(err.Error(), "x.parquet") || !strings.Contains(err.Error(), "empty") {
		t.Errorf("%v, want the empty file named", err)
	}
	if err := s.Corrupt([]int{0}); err != nil {
		t.Errorf("without the empty file: %v", err)
	}
	if st := r.Status(t.Context(), "d"); st.Skipped != 6 || len(st.Corrupt) != 1 || st.Corrupt[0].Key != "x.parquet" {
		t.Errorf("status %+v", st)
	}
}

// Data files that cannot be read are corrupt shards, not missing ones, and
// cost nobody else anything.
func TestOddFilesAreCorruptShards(t *testing.T) {
	outside := folder(t, map[string]string{"secret.parquet": "p3.parquet"})
	dir := folder(t, map[string]string{"a.parquet": "p0.parquet", "half.parquet": "p1.parquet", "words.parquet": "=not Parquet at all", "sub/x.parquet": "p2.parquet"})
	must(t, os.Truncate(filepath.Join(dir, "half.parquet"), 700))
	must(t, syscall.Mkfifo(filepath.Join(dir, "fifo.parquet"), 0o644))
	l, err := net.Listen("unix", filepath.Join(dir, "sock.parquet"))
	must(t, err)
	defer l.Close()
	must(t, os.Symlink(filepath.Join(outside, "secret.parquet"), filepath.Join(dir, "link.parquet")))
	must(t, os.Symlink("sub", filepath.Join(dir, "folder.parquet")))
	must(t, os.Symlink("a.parquet", filepath.Join(dir, "inside.parquet")))

	r := one(t, dir)
	s := r.newest("d")
	if got, want := keys(s), "a.parquet fifo.parquet folder.parquet half.parquet inside.parquet link.parquet sock.parquet sub/x.parquet words.parquet"; got != want {
		t.Fatalf("holds %q, want %q", got, want)
	}
	var sound []int
	for i, sh := range s.Shards {
		want := map[string]error{
			"fifo.parquet": bucket.ErrNotRegular, "sock.parquet": bucket.ErrNotRegular, "folder.parquet": bucket.ErrNotRegular,
			"link.parquet": bucket.ErrOutside, "half.parquet": snapshot.ErrCorrupt, "words.parquet": snapshot.ErrCorrupt,
		}[sh.Key]
		if !errors.Is(sh.Err, want) || (want == nil) != (sh.Err == nil) {
			t.Errorf("%s: %v, want %v", sh.Key, sh.Err, want)
		}
		if sh.Err == nil {
			sound = append(sound, i)
		}
	}
	if x, err := r.read(s, s.Blocks(sound)); err != nil || len(x) != 300 {
		t.Errorf("the sound ones: %d rows, %v", len(x), err)
	}
	if st := r.Status(t.Context(), "d"); len(st.Corrupt) != 6 || !slices.IsSortedFunc(st.Corrupt, func(a, b Corrupt) int { return strings.Compare(a.Key, b.Key) }) {
		t.Errorf("status %+v", st)
	}
	if again := r.newest("d"); again.ID != s.ID {
		t.Error("looking again changed the identity")
	}
}

func TestLockedFolderIsItsDatasetsError(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("permissions do not bind root")
	}
	dir := folder(t, map[string]string{"open/a.parquet": "=not Parquet", "locked/a.parquet": "=not Parquet"})
	must(t, os.Chmod(filepath.Join(dir, "locked"), 0))
	defer func() { must(t, os.Chmod(filepath.Join(dir, "locked"), 0o755)) }()
	r := tree(t, dir)
	if _, err := r.Snapshot(t.Context(), "locked", ""); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("locked: %v, want a permission error", err)
	}
	if _, err := r.Snapshot(t.Context(), "open", ""); !errors.Is(err, snapshot.ErrCorrupt) {
		t.Errorf("open: %v, want its own error", err)
	}
}

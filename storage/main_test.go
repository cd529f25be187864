package storage

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"go.uber.org/goleak"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

// corpus is the folder of files that pyarrow wrote, or why there is none.
var corpus, noCorpus string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "storage")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	python := os.Getenv("HEADRACE_PYTHON")
	if python == "" {
		python = filepath.Join("..", ".venv", "bin", "python")
		if _, err := os.Stat(python); err != nil {
			noCorpus = "no Python with pyarrow: set HEADRACE_PYTHON"
		}
	}
	if noCorpus == "" {
		if out, err := exec.Command(python, "testdata/make.py", dir).CombinedOutput(); err != nil {
			panic(fmt.Sprintf("%v\n%s", err, out))
		}
		corpus = dir
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// folder makes a folder of files: names with the corpus file each is a copy
// of; a name with "=" before the content is taken as it stands.
func folder(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, source := range files {
		add(t, dir, name, source)
	}
	return dir
}

func add(t testing.TB, dir, name, source string) {
	t.Helper()
	var content []byte
	if literal, ok := strings.CutPrefix(source, "="); ok {
		content = []byte(literal)
	} else {
		if noCorpus != "" {
			t.Skip(noCorpus)
		}
		var err error
		content, err = os.ReadFile(filepath.Join(corpus, source))
		must(t, err)
	}
	path := filepath.Join(dir, name)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, content, 0o644))
	old := time.Now().Add(-time.Hour) // so that any later change shows in its times
	must(t, os.Chtimes(path, old, old))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rig is a store with memory of its own; its end checks that all came back.
type rig struct {
	*Store
	pool   *frame.Pool
	ledger *budget.Ledger
	t      testing.TB
}

func newRig(t testing.TB, o Options) *rig {
	t.Helper()
	r := &rig{pool: frame.NewPool(frame.Options{Poison: true}), ledger: budget.New(budget.Options{Limit: 1 << 30}), t: t}
	o.Pool, o.Ledger = r.pool, r.ledger
	var err error
	r.Store, err = New(context.Background(), o)
	must(t, err)
	t.Cleanup(func() {
		must(t, r.Close())
		must(t, r.pool.Close())
		if st := r.ledger.Stats(); st.Reserved != 0 || len(st.Used) != 0 {
			t.Errorf("memory left: %+v", st)
		}
	})
	return r
}

// one serves a folder as the dataset d, looking again at every request.
func one(t testing.TB, dir string) *rig {
	t.Helper()
	return newRig(t, Options{Mounts: []Mount{{Name: "d", URL: dir}}})
}

func tree(t testing.TB, dir string) *rig {
	t.Helper()
	return newRig(t, Options{Mounts: []Mount{{URL: dir, Tree: true}}})
}

// held is how many blocks readers of the tests hold at once.
const held = 4

// Need is the memory of a reader that holds a few blocks.
func (r *rig) Need(snap *snapshot.Snapshot, p *schema.Projection, blocks *snapshot.Blocks) int64 {
	need := r.Sizes(snap, p).Need(blocks)
	return held*need.Block + need.Scratch
}

func (r *rig) newest(name string) *snapshot.Snapshot {
	r.t.Helper()
	s, err := r.Snapshot(context.Background(), name, "")
	must(r.t, err)
	return s
}

// read returns column x of the given blocks' rows, in order.
func (r *rig) read(snap *snapshot.Snapshot, blocks *snapshot.Blocks) ([]int64, error) {
	p, err := schema.Project(snap.Schema, [][]string{{"x"}})
	if err != nil {
		return nil, err
	}
	g, err := r.ledger.Admit(context.Background(), r.Need(snap, p, blocks))
	if err != nil {
		return nil, err
	}
	defer g.Close()
	reader := r.Open(snap, p, g)
	defer reader.Close()
	var got []int64
	for i := range blocks.Len() {
		x, err := column(reader, blocks.At(i))
		if err != nil {
			return got, err
		}
		got = append(got, x...)
	}
	return got, nil
}

// column reads one block and returns its column x.
func column(reader *Reader, b snapshot.Block) ([]int64, error) {
	leases, err := reader.Block(context.Background(), b)
	if err != nil {
		return nil, err
	}
	var got []int64
	for _, l := range leases {
		got = append(got, l.Batch().Column(0).(*array.Int64).Int64Values()...)
		l.Release()
	}
	return got, nil
}

// counts tells whether x is from, from+1 and so on, n values.
func counts(x []int64, from, n int64) error {
	if int64(len(x)) != n {
		return fmt.Errorf("%d rows, want %d", len(x), n)
	}
	for i, v := range x {
		if v != from+int64(i) {
			return fmt.Errorf("row %d is %d, want %d", i, v, from+int64(i))
		}
	}
	return nil
}

func fourShards(ext string) map[string]string {
	files := map[string]string{}
	for i := range 4 {
		files[fmt.Sprintf("%d.%s", i, ext)] = fmt.Sprintf("%c%d.%s", ext[0], i, ext)
	}
	return files
}

// archived is a rig whose looks at objects are counted, and what it said of its archive.
type archived struct {
	*rig
	looks atomic.Int64
	said  atomic.Pointer[error]
}

// restart is a new process over a folder or a bucket, and an archive.
func restart(t testing.TB, url string, a Archive) *archived {
	t.Helper()
	out := &archived{}
	out.rig = newRig(t, Options{
		Mounts: []Mount{{Name: "d", URL: url}}, Archive: a, Buckets: bucket.Options{Env: os.Getenv},
		Events: Events{
			Describe: func(string, string) { out.looks.Add(1) },
			Archive:  func(_ context.Context, _ string, err error) { out.said.Store(&err) },
		},
	})
	return out
}

// planned returns a snapshot as a plan does.
func (a *archived) planned(id string) *snapshot.Snapshot {
	a.t.Helper()
	s, err := a.Snapshot(context.Background(), "d", id)
	must(a.t, err)
	a.Keep(context.Background(), s)
	return s
}

// quiet fails the test if the archive had anything to say.
func (a *archived) quiet() {
	a.t.Helper()
	if err := a.said.Load(); err != nil {
		a.t.Errorf("the archive said: %v", *err)
	}
}

package e2e

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headrace/headrace/storage/buckettest"
)

// metric sums up the lines of the metrics page that begin with a name and have all of some labels.
func (s *server) metric(name string, labels ...string) (sum float64) {
	s.t.Helper()
	_, page := s.get("/metrics")
lines:
	for line := range strings.Lines(page) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(rest, label) {
				continue lines
			}
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' '):]), 64)
		if err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
		sum += value
	}
	return sum
}

// written waits until no block is to be written any more, and returns how many were.
func (s *server) written() float64 {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); s.metric("headrace_disk_waiting") > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("still writing\n%s", s.log)
		}
	}
	return s.metric("headrace_disk_outcomes_total", `outcome="written"`)
}

// gets is how many objects, or ranges of them, were read from stores.
func (s *server) gets() float64 { return s.metric("headrace_store_requests_total", `verb="get"`) }

// epochs are two epochs of one job, each written to a file by one gateway, and compared by others.
const epochs = `
def epoch(uri, n, dataset="d"):
    return read(fl.connect(uri), dataset=dataset, shuffle="window", window_blocks=3, seed=7, epoch=n, batch_size=300, tail="keep", row_id=True)
`

// vectors makes Parquet files of about 10 MB each when they are decoded.
func vectors(t *testing.T, dir string, files int) {
	t.Helper()
	python(t, `
for shard in range(int(sys.argv[2])):
    ids = np.arange(4_500) + 10_000 * shard
    vector = np.random.default_rng(shard).random((len(ids), 512), "float32").reshape(-1)
    pq.write_table(pa.table({
        "id": ids,
        "text": [None if i % 11 == 0 else f"row {i} " * (i % 5) for i in ids],
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(vector), 512),
    }), f"{sys.argv[1]}/{shard}.parquet", row_group_size=1_500)
`, dir, fmt.Sprint(files))
}

// read are two files, and epochs of them as a gateway without a cache on disk reads them. They are made once for all tests.
var read struct {
	once       sync.Once
	data, want string
}

func expected(t *testing.T) (data, want string) {
	t.Helper()
	read.once.Do(func() {
		dir := filepath.Dir(binary)
		read.data, read.want = filepath.Join(dir, "vectors"), filepath.Join(dir, "epochs")
		for _, dir := range []string{read.data, read.want} {
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		vectors(t, read.data, 2)
		plain := serveDataset(t, read.data)
		python(t, epochs+`
for n in range(3):
    table = epoch(sys.argv[1], n)
    with pa.ipc.new_file(f"{sys.argv[2]}/{n}.arrow", table.schema) as w:
        w.write_table(table)
`, plain.uri, read.want)
	})
	return read.data, read.want
}

const same = epochs + `
for n in sys.argv[3:]:
    table = epoch(sys.argv[1], int(n))
    table.validate(full=True)
    assert table.equals(pa.ipc.open_file(f"{sys.argv[2]}/{n}.arrow").read_all()), n
`

// cached serves a store with a cache on disk.
func cached(t *testing.T, url, cache string, more ...string) *server {
	t.Helper()
	return serveDataset(t, url, append(more, "cache: {disk: {dir: "+cache+", limit: 1GiB}}")...)
}

func blockFiles(t *testing.T, cache, suffix string) (paths []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(cache, "blocks", "*"+suffix))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// What a gateway loaded in one epoch, the next one serves from disk, though the first was killed: without one request to
// the store, and the same bytes.
func TestARestartedGatewayServesFromDisk(t *testing.T) {
	data, want := expected(t)
	cache, store := t.TempDir(), buckettest.S3(t)
	store.Upload(t, "d", data)
	first := cached(t, store.URL("d"), cache)
	python(t, same, first.uri, want, "0")
	blocks := first.written()
	if blocks < 6 || first.gets() == 0 {
		t.Errorf("%v blocks after %v requests", blocks, first.gets())
	}
	first.kill()

	s := cached(t, store.URL("d"), cache)
	python(t, same, s.uri, want, "1", "2")
	if got := s.gets(); got != 0 {
		t.Errorf("%v requests to the store", got)
	}
	hits := s.metric("headrace_cache_hits_total", `tier="disk"`)
	if hits != 2*blocks || s.metric("headrace_cache_misses_total") != 0 || s.metric("headrace_disk_blocks") != blocks {
		t.Errorf("%v hits of %v blocks, %v are there", hits, blocks, s.metric("headrace_disk_blocks"))
	}
	if kept := s.metric("headrace_cache_kept_bytes", `tier="disk"`); kept < 15e6 || kept > 25e6 {
		t.Errorf("%v bytes", kept)
	}
	// Four ranks and another job with fewer columns find it there, too.
	python(t, `
from concurrent.futures import ThreadPoolExecutor
def rank(r):
    table = read(fl.connect(sys.argv[1]), dataset="d", shuffle="window", window_blocks=3, seed=7, epoch=1, batch_size=100, world_size=4, rank=r, tail="keep", columns=["id", "text"])
    return table.column("id").to_pylist()
with ThreadPoolExecutor(4) as pool:
    ids = sum(pool.map(rank, range(4)), [])
assert sorted(ids) == sorted(pa.ipc.open_file(f"{sys.argv[2]}/1.arrow").read_all()["id"].to_pylist())
`, s.uri, want)
	if got := s.gets(); got != 0 || s.metric("headrace_disk_outcomes_total", `outcome="written"`) != 0 {
		t.Errorf("%v requests to the store", got)
	}
	out, stderr, err := run(t, "ls", "--cache", "--server", s.uri)
	if err != nil || !strings.Contains(out, "disk for 1.0 GiB of all tenants' blocks\n") || !strings.Contains(out, " disk ") {
		t.Errorf("ls: %v\n%s%s", err, out, stderr)
	}
	python(t, `
[stats] = fl.connect(sys.argv[1]).do_action("headrace.stats")
disk = json.loads(stats.body.to_pybytes())["cache"]["disk"]
assert disk == {"limit": 1 << 30, "failing": False}, disk
`, s.uri)
	// A command that reads in its own process leaves the directory to the gateway.
	config := writeConfig(t, "datasets: [{name: d, url: \""+store.URL("d")+"\"}]", "cache: {disk: {dir: "+cache+", limit: 1GiB}}")
	if out, stderr, err := run(t, "plan", "d", "--config", config); err != nil || !strings.Contains(out, "9,000") {
		t.Errorf("plan: %v\n%s%s", err, out, stderr)
	}
}

// A gateway that is killed again and again while it writes serves right rows, and leaves no litter behind.
func TestKilledWhileItWritesBlocks(t *testing.T) {
	data, want := expected(t)
	cache := t.TempDir()
	for round := range 2 {
		s := cached(t, data, cache)
		reading := exec.Command(interpreter(t), "-c", prelude+epochs+"epoch(sys.argv[1], 0)", s.uri)
		if err := reading.Start(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(20 * time.Second); len(blockFiles(t, cache, ".part")) == 0 && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		s.kill()
		_ = reading.Wait() // its stream was cut
		t.Logf("round %d: %d blocks, %d begun", round, len(blockFiles(t, cache, ".block")), len(blockFiles(t, cache, ".part")))
		for _, path := range blockFiles(t, cache, ".block") {
			if err := os.Remove(path); err != nil { // so that there is something to write
				t.Fatal(err)
			}
		}
	}
	s := cached(t, data, cache)
	python(t, same, s.uri, want, "0", "1")
	s.written()
	if litter := blockFiles(t, cache, ".part"); len(litter) > 0 {
		t.Errorf("litter: %v", litter)
	}
	if strings.Contains(s.log.String(), "damaged") {
		t.Error(s.log)
	}
}

// sums are the files below a directory, by what they hold.
func sums(t *testing.T, dir string) map[string][sha256.Size]byte {
	t.Helper()
	all := map[string][sha256.Size]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		all[path] = sha256.Sum256(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A cache far smaller than what is read, in the very folder of the data: nothing but what the cache itself wrote goes.
func TestB80_OnlyFilesOfTheCacheAreDeleted(t *testing.T) {
	data, far := t.TempDir(), t.TempDir()
	vectors(t, data, 3)
	vectors(t, far, 2)
	store := buckettest.S3(t)
	store.Upload(t, "far", far)
	if err := os.Mkdir(filepath.Join(data, "blocks"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"model.bin": "weights", "0123456789abcdef0123456789abcdef.block": "not a block", "0123456789abcdef0123456789abcdef.block.part": "nor this", "notes.block": "",
	} {
		if err := os.WriteFile(filepath.Join(data, "blocks", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := sums(t, data)
	const limit = 16 << 20
	for range 2 {
		s := serveOn(t, "", "--config", writeConfig(t, "listen: 127.0.0.1:0", "admin: 127.0.0.1:0", "memory: 256MiB", fmt.Sprintf("cache: {disk: {dir: %s, limit: %d}}", data, limit),
			fmt.Sprintf("datasets: [{name: d, url: %q, files: [\"*.parquet\"]}, {name: far, url: %q}]", data, store.URL("far"))))
		for _, dataset := range []string{"d", "far"} {
			python(t, epochs+`assert epoch(sys.argv[1], 0, sys.argv[2]).num_rows >= 9_000`, s.uri, dataset)
			s.written()
		}
		if kept := s.metric("headrace_cache_kept_bytes", `tier="disk"`); kept == 0 || kept > limit {
			t.Errorf("%v bytes", kept)
		}
		if gone := s.metric("headrace_disk_outcomes_total", `outcome="evicted"`); gone == 0 {
			t.Error("nothing had to go")
		}
		s.stop()
	}
	after := sums(t, data)
	for path, sum := range before {
		if after[path] != sum {
			t.Errorf("%s is gone, or another", path)
		}
	}
}

// Files of blocks that are flipped, cut short and zeroed under a running gateway, and while it is down: each is found out,
// deleted, told, and loaded again.
func TestB81_DamagedBlocksAreLoadedAgain(t *testing.T) {
	data, want := expected(t)
	cache := t.TempDir()
	s := cached(t, data, cache)
	python(t, same, s.uri, want, "0")
	blocks := s.written()
	s.stop() // what it has in memory would serve
	for _, running := range []bool{false, true} {
		if running {
			s = cached(t, data, cache)
		}
		files := blockFiles(t, cache, ".block")
		if len(files) != int(blocks) {
			t.Fatalf("%d files of %v blocks", len(files), blocks)
		}
		for i, wound := range []func([]byte) []byte{
			func(b []byte) []byte { b[len(b)/3] ^= 0x10; return b },
			func(b []byte) []byte { return b[:len(b)/2] },
			func(b []byte) []byte { clear(b); return b },
		} {
			content, err := os.ReadFile(files[i])
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(files[i], wound(bytes.Clone(content)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if !running {
			s = cached(t, data, cache)
		}
		python(t, same, s.uri, want, "1")
		if n := s.metric("headrace_disk_outcomes_total", `outcome="damaged"`); n != 3 || toldDamaged(s) != 1 {
			t.Errorf("%v damaged\n%s", n, s.log)
		}
		if misses := s.metric("headrace_cache_misses_total"); misses != 3 {
			t.Errorf("%v blocks were loaded", misses)
		}
		if n := s.written(); n != 3 {
			t.Errorf("%v blocks were written", n)
		}
		s.stop()
		if n := toldDamaged(s); n != 3 { // the first at once, the others together
			t.Errorf("%d damaged\n%s", n, s.log)
		}
	}
}

// toldDamaged is how many damaged blocks the log tells of.
func toldDamaged(s *server) (sum int) {
	for _, m := range regexp.MustCompile(`blocks on disk were damaged.*"blocks":(\d+)`).FindAllStringSubmatch(s.log.String(), -1) {
		n, _ := strconv.Atoi(m[1]) // digits
		sum += n
	}
	return sum
}

// Two gateways do not share a directory: the second waits for a moment, takes over from one that ends, and else says who has it.
func TestTwoGatewaysOnOneDirectory(t *testing.T) {
	data, _ := expected(t)
	cache := t.TempDir()
	first := cached(t, data, cache)
	python(t, epochs+`epoch(sys.argv[1], 0)`, first.uri)
	blocks := first.written()
	config := writeConfig(t, "listen: 127.0.0.1:0", "admin: 127.0.0.1:0", fmt.Sprintf("datasets: [{name: d, url: %q}]", data), "cache: {disk: {dir: "+cache+", limit: 1GiB}}")
	var out bytes.Buffer
	refused := exec.Command(binary, "serve", "--config", config)
	refused.Stderr = &out
	if err := refused.Start(); err != nil {
		t.Fatal(err)
	}
	if err := refused.Wait(); err == nil || !strings.Contains(out.String(), cache) || !strings.Contains(out.String(), fmt.Sprintf("process %d", first.cmd.Process.Pid)) {
		t.Errorf("%v\n%s", err, out.String())
	}
	first.drain()
	second := cached(t, data, cache)
	first.stop()
	python(t, epochs+`epoch(sys.argv[1], 1)`, second.uri)
	if hits := second.metric("headrace_cache_hits_total", `tier="disk"`); hits != blocks {
		t.Errorf("%v hits of %v blocks", hits, blocks)
	}
	// Something else in the directory's place is a mistake.
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	config = writeConfig(t, "cache: {disk: {dir: "+file+", limit: 1GiB}}", fmt.Sprintf("datasets: [{name: d, url: %q}]", data))
	for _, args := range [][]string{{"serve", "--config", config}, {"config", "check", config}} {
		if _, stderr, err := run(t, args...); err == nil || !strings.Contains(stderr, "cache.disk.dir: "+file) {
			t.Errorf("%v: %v\n%s", args, err, stderr)
		}
	}
}

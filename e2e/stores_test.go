package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headrace/headrace/storage/buckettest"
)

// stores are those that run on this machine.
var stores = map[string]func(testing.TB) *buckettest.Store{"S3": buckettest.S3, "GCS": buckettest.GCS, "Azure": buckettest.Azure}

// Every store, format and order: the same snapshots, and thus the same plans and cursors, and the same batches as from
// a local folder.
func TestStoresServeTheSameRows(t *testing.T) {
	dir := small(t)
	local := serve(t, dir+"/data")
	for name, start := range stores {
		t.Run(name, func(t *testing.T) {
			store := start(t)
			store.Upload(t, "team/data sets", dir+"/data")
			s := serve(t, store.URL("team/data sets"))
			python(t, killed+`
here, there = fl.connect(sys.argv[2]), fl.connect(sys.argv[3])
for order in orders + [dict(dataset="parquet"), dict(dataset="arrow", batch_size=100)]:
    fields = dict(batch_size=77, tail="keep", row_id=True) | order
    infos = [c.get_flight_info(request(**fields)) for c in (here, there)]
    metas = [json.loads(i.app_metadata) for i in infos]
    assert metas[0]["plan"] == metas[1]["plan"] and metas[0]["snapshot"] == metas[1]["snapshot"], (fields, metas)
    mine, theirs = ([(x.data, json.loads(x.app_metadata.to_pybytes())) for x in c.do_get(i.endpoints[0].ticket)] for c, i in zip((here, there), infos))
    assert len(mine) == len(theirs) > 1
    for (a, m), (b, n) in zip(mine, theirs):
        assert a.equals(b) and m["cursor"] == n["cursor"] and m["sum"] == n["sum"] and m.get("receipt") == n.get("receipt"), fields
    # on there from the middle of what was read here
    cursor = mine[len(mine) // 2][1]["cursor"]
    rest = read(there, snapshot=metas[0]["snapshot"], start=cursor, **fields)
    assert rest.equals(pa.Table.from_batches([a for a, _ in mine[len(mine) // 2 + 1:]])), fields
`, dir, local.uri, s.uri)
			_, page := s.get("/metrics")
			for _, metric := range []string{"headrace_store_requests_total{", "headrace_store_bytes_total{", `mount="data sets"`, `tenant="local"`, `verb="list"`} {
				if !strings.Contains(page, metric) {
					t.Errorf("the metrics have no %s", metric)
				}
			}
			// The commands read buckets in their own process, too.
			out, stderr, err := run(t, "ls", "--folder", store.URL("team/data sets"))
			if err != nil || !strings.Contains(out, "parquet") || !strings.Contains(out, "1,803") {
				t.Errorf("ls: %v\n%s%s", err, out, stderr)
			}
			config := writeConfig(t, "datasets: [{name: d, url: \""+store.URL("team/data sets/arrow")+"\", files: [\"[01].arrow\"]}]")
			out, stderr, err = run(t, "plan", "d", "--config", config, "--batch-size", "10")
			if err != nil || !strings.Contains(out, "1,201") {
				t.Errorf("plan: %v\n%s%s", err, out, stderr)
			}
		})
	}
}

// Objects of a store that tells no versions are not corrupt: they are not served, and the reason is told once.
func TestObjectsWithoutVersionsAreNotSupported(t *testing.T) {
	page := "<ListBucketResult>"
	for _, key := range []string{"a/x.parquet", "b/x.parquet", "b/y.parquet"} {
		page += "<Contents><Key>" + key + "</Key><Size>200</Size></Contents>"
	}
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		fmt.Fprint(w, page, "</ListBucketResult>")
	}))
	defer store.Close()
	url := "s3://data?region=us-east-1&anonymous=true&endpoint=" + store.URL
	out, stderr, err := run(t, "ls", "--folder", url)
	const why = "unsupported data: the store tells neither ETag nor generation"
	if err != nil || strings.Count(out, why) != 3 || strings.Contains(out, "corrupt") || strings.Contains(out, "a: shard x.parquet") || !strings.Contains(out, "b: shard y.parquet: "+why) {
		t.Errorf("%v\n%s%s", err, out, stderr)
	}
	s := serve(t, url)
	python(t, `
client = fl.connect(sys.argv[1])
for fields in dict(dataset="a"), dict(dataset="b"):
    try:
        client.get_flight_info(request(**fields))
    except pa.ArrowNotImplementedError as e:
        assert "neither ETag nor generation" in str(e), e
    else:
        raise AssertionError(fields)
`, s.uri)
}

// Operators see that a store is out of order while streams still wait for it, and that it works again: a line each.
func TestOutagesOfStoresAreLogged(t *testing.T) {
	var fails atomic.Int64
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if fails.Add(-1) >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/xml")
		fmt.Fprint(w, "<ListBucketResult></ListBucketResult>")
	}))
	defer store.Close()
	s := serveOn(t, "", "--config", writeConfig(t, "listen: 127.0.0.1:0", "admin: 127.0.0.1:0", "refresh: 1ms",
		"datasets: [{name: far, url: \"s3://data?region=us-east-1&anonymous=true&endpoint="+store.URL+"\"}]"))
	fails.Store(4)
	for range 2 {
		if out, errOut, err := run(t, "ls", "--server", s.uri); err != nil || !strings.Contains(out, "far") {
			t.Errorf("%v %s\n%s", err, errOut, out)
		}
	}
	log := s.log.String()
	for _, want := range []string{`"a store does not answer as it should; requests are tried again","mount":"far","store":"s3://data","attempt":3,"error":"503`, `"the store answers again","mount":"far","store":"s3://data","after":"`} {
		if strings.Count(log, want) != 1 {
			t.Errorf("not one line with %s:\n%s", want, log)
		}
	}
}

// An object that is overwritten again and again while many read it: whoever reads gets one version, or an error.
func TestB57OverwrittenWhileManyScan(t *testing.T) {
	store := buckettest.S3(t)
	dir := t.TempDir()
	python(t, `
for k in range(6):
    path = Path(sys.argv[1]) / str(k) / "x.parquet"
    path.parent.mkdir()
    n = 3_000 + 100 * k if k % 2 else 3_000
    pq.write_table(pa.table({"version": pa.array([k] * n), "pad": np.random.default_rng(k).random(n)}), path, row_group_size=500)
`, dir)
	version := func(k int) string { return filepath.Join(dir, string(rune('0'+k))) }
	store.Upload(t, "d", version(0))
	s := serveDataset(t, store.URL("d"), "refresh: 1ms")
	end := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for k := 1; ; k++ {
			select {
			case <-end:
				return
			case <-time.After(150 * time.Millisecond):
				store.Upload(t, "d", version(k%6))
			}
		}
	})
	out := python(t, `
from concurrent.futures import ThreadPoolExecutor

def scan(client):
    seen = []
    for _ in range(6):
        try:
            table = read(client, dataset="d")
        except (pa.ArrowInvalid, fl.FlightUnavailableError) as e:
            assert "x.parquet" in str(e), e
            seen.append("error")
            continue
        versions = set(table["version"].to_pylist())
        assert len(versions) == 1, versions
        k = versions.pop()
        assert table.num_rows == (3_000 + 100 * k if k % 2 else 3_000), (k, table.num_rows)
        assert np.array_equal(table["pad"], np.random.default_rng(k).random(table.num_rows)), k
        seen.append(k)
    return seen

with ThreadPoolExecutor(8) as pool:
    seen = sum(pool.map(scan, [fl.connect(sys.argv[1]) for _ in range(8)]), [])
print(len(set(seen) - {"error"}), seen.count("error"))
assert len(set(seen) - {"error"}) > 1, seen
`, s.uri)
	close(end)
	writing.Wait()
	t.Logf("versions seen, errors: %s", out)
}

// Three of ten requests fail in some way, over whole epochs: the rows are right, with a receipt that proves it, or the
// stream ends with an error.
func TestStoreFaultsOverWholeEpochs(t *testing.T) {
	dir := small(t)
	for name, start := range stores {
		t.Run(name, func(t *testing.T) { faultyEpochs(t, dir, start(t)) })
	}
}

// third answers three of ten requests with trouble of some kind.
func third(chance *rand.Rand) func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
	var mu sync.Mutex
	return func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		mu.Lock()
		dice, after := chance.IntN(100), chance.IntN(20_000)
		mu.Unlock()
		switch {
		case dice < 6:
			buckettest.Deny(w, http.StatusServiceUnavailable, "SlowDown")
		case dice < 9:
			buckettest.Deny(w, http.StatusInternalServerError, "InternalError")
		case dice < 12:
			buckettest.Deny(w, http.StatusBadGateway, "")
		case dice < 14:
			buckettest.Deny(w, http.StatusNotFound, "")
		case dice < 18:
			panic(http.ErrAbortHandler)
		case dice < 20:
			w.WriteHeader(http.StatusOK) // nothing, of nothing
		case dice < 30:
			buckettest.Cut(w, r, pass, after)
		default:
			pass.ServeHTTP(w, r)
		}
	}
}

func faultyEpochs(t *testing.T, dir string, store *buckettest.Store) {
	store.Upload(t, "", dir+"/data")
	behind, faults := buckettest.Before(t, store)
	s := serve(t, behind.URL(""))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	faults.Answer(third(rand.New(rand.NewPCG(seed, 1))))
	out := python(t, killed+`
client = fl.connect(sys.argv[2])
right = wrong = 0
for number, order in enumerate(orders):
    with pa.memory_map(str(root / f"{number}.arrow")) as file:
        whole = pa.ipc.open_file(file).read_all()
    try:
        info = client.get_flight_info(request(batch_size=100, tail="keep", row_id=True, **order))
        total, rows, receipt = 0, [], None
        for chunk in client.do_get(info.endpoints[0].ticket):
            meta = json.loads(chunk.app_metadata.to_pybytes())
            total = (total + int(meta["sum"], 16)) % 2**128
            rows.append(chunk.data)
            receipt = meta.get("receipt")
    except (fl.FlightUnavailableError, pa.ArrowInvalid) as e:
        wrong += 1
        continue
    got = pa.Table.from_batches(rows)
    assert receipt["rows"] == len(whole) == len(got) and int(receipt["sum"], 16) == total, receipt
    assert got.sort_by("__row_id").equals(whole.sort_by("__row_id")), order
    right += 1
print(right, wrong)
assert right > 0
`, dir, s.uri)
	t.Logf("epochs that were right, that ended with an error: %s%d requests", out, faults.Requests())
	if faults.Requests() < 30 {
		t.Errorf("%d requests are too few to prove anything", faults.Requests())
	}
}

func TestStoresThatCannotBeReached(t *testing.T) {
	store := buckettest.S3(t)
	store.Use(t)
	behind, faults := buckettest.Before(t, store)
	faults.Answer(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		buckettest.Deny(w, http.StatusForbidden, "AccessDenied")
	})
	_, stderr, err := run(t, "serve", behind.URL("x"), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	for _, say := range []string{"s3://data", "s3:ListBucket", "AWS_PROFILE"} {
		if err == nil || !strings.Contains(stderr, say) {
			t.Errorf("%v: %s\nwant %q", err, stderr, say)
		}
	}
	_, stderr, err = run(t, "serve", "s3://data?bucket=x")
	if err == nil || !strings.Contains(stderr, `"bucket" is not one of region, endpoint`) {
		t.Errorf("%v: %s", err, stderr)
	}
	// One mount without its store harms no other.
	good := t.TempDir()
	python(t, `pq.write_table(pa.table({"x": [1, 2]}), Path(sys.argv[1]) / "a.parquet")`, good)
	s := serveOn(t, "", "--config", writeConfig(t, "listen: 127.0.0.1:0", "admin: 127.0.0.1:0",
		"datasets: [{name: far, url: \""+behind.URL("x")+"\"}, {name: near, url: "+good+"}]"))
	python(t, `
client = fl.connect(sys.argv[1])
assert read(client, dataset="near")["x"].to_pylist() == [1, 2]
try:
    client.get_flight_info(request(dataset="far"))
    sys.exit("it was served")
except fl.FlightUnavailableError as e:
    assert "s3:ListBucket" in str(e), e
`, s.uri)
}

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// taken takes some batches of a shuffled epoch and prints what a job keeps of them.
const taken = `
client = fl.connect(sys.argv[1])
options = dict(dataset="d", shuffle="window", seed=3, batch_size=10, tail="keep")
info = client.get_flight_info(request(**options))
snapshot, rows, cursor = json.loads(info.app_metadata)["snapshot"], [], None
for i, chunk in enumerate(client.do_get(info.endpoints[0].ticket)):
    rows += chunk.data.column("x").to_pylist()
    cursor = json.loads(chunk.app_metadata.to_pybytes())["cursor"]
    if i == 4:
        break
print(json.dumps([snapshot, rows, cursor]))
`

// resumed goes on from there and proves that nothing is missing and nothing came twice.
const resumed = `
client = fl.connect(sys.argv[1])
snapshot, rows, cursor = json.loads(sys.argv[2])
options = dict(dataset="d", shuffle="window", seed=3, batch_size=10, tail="keep")
rest = read(client, **options, snapshot=snapshot, after=cursor).column("x").to_pylist()
assert sorted(rows + rest) == list(range(400)), (len(rows), len(rest))
`

// A cursor of one gateway is good on another that shares its snapshots, and after a restart, though files have come since.
func TestCursorsOutliveGateways(t *testing.T) {
	dir, shared, cache := t.TempDir(), t.TempDir(), t.TempDir()
	file := func(i int) {
		python(t, `
i = int(sys.argv[2])
pq.write_table(pa.table({"x": pa.array(range(100 * i, 100 * i + 100), pa.int64())}), Path(sys.argv[1]) / f"{i}.parquet", row_group_size=20)
`, dir, fmt.Sprint(i))
	}
	for i := range 4 {
		file(i)
	}
	first := serveDataset(t, dir, "snapshots: "+shared, "cache: {disk: {dir: "+cache+"}}")
	state := python(t, taken, first.uri)
	first.kill()
	file(4)
	for name, s := range map[string]*server{
		"restarted":         serveDataset(t, dir, "cache: {disk: {dir: "+cache+"}}"),
		"another replica":   serveDataset(t, dir, "snapshots: "+shared, "cache: {disk: {dir: "+t.TempDir()+"}}"),
		"without a cache":   serveDataset(t, dir, "snapshots: file://"+shared),
		"and once restored": serveDataset(t, dir, "snapshots: "+shared),
	} {
		python(t, resumed, s.uri, state)
		if strings.Contains(s.log.String(), "snapshots are not kept") {
			t.Errorf("%s: %s", name, s.log)
		}
	}
	// An object that is other data now is named, and nothing is made up.
	python(t, `pq.write_table(pa.table({"x": pa.array(range(100), pa.int64())}), sys.argv[1])`, filepath.Join(dir, "2.parquet"))
	s := serveDataset(t, dir, "snapshots: "+shared)
	python(t, strings.ReplaceAll(`
try:
@
    sys.exit("rows of a file that was replaced")
except pa.ArrowInvalid as e:
    assert "2.parquet" in str(e), e
`, "@", indent(resumed)), s.uri, state)
}

func indent(script string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(script), "\n", "\n    ")
}

// A gateway whose snapshots cannot be kept serves as ever, and says so.
func TestSnapshotsThatCannotBeKept(t *testing.T) {
	cache := t.TempDir()
	if err := os.WriteFile(filepath.Join(cache, "snapshots"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := small(t)
	s := serveDataset(t, filepath.Join(dir, "data", "parquet"), "cache: {disk: {dir: "+cache+"}}")
	python(t, `assert read(fl.connect(sys.argv[1]), dataset="d").num_rows > 0`, s.uri)
	if !strings.Contains(s.log.String(), "snapshots are not kept") {
		t.Errorf("the log does not say so:\n%s", s.log)
	}
}

// A name stands for a snapshot in requests; what it stood for stays when it moves on.
func TestTaggedSnapshots(t *testing.T) {
	dir, config := t.TempDir(), ""
	python(t, `pq.write_table(pa.table({"x": [1, 2]}), Path(sys.argv[1]) / "a.parquet")`, dir)
	config = writeConfig(t, "listen: 127.0.0.1:0", "admin: 127.0.0.1:0", "refresh: 1ms", "snapshots: "+t.TempDir(), fmt.Sprintf("datasets: [{name: d, url: %q}]", dir))
	tag := func(args ...string) string {
		t.Helper()
		out, stderr, err := run(t, append([]string{"tag", "d", "--config", config}, args...)...)
		if err != nil {
			t.Fatalf("tag %v: %v\n%s", args, err, stderr)
		}
		return out
	}
	tag("v1")
	s := serveOn(t, "", "--config", config)
	python(t, `
pq.write_table(pa.table({"x": [3]}), Path(sys.argv[2]) / "b.parquet")
client = fl.connect(sys.argv[1])
assert read(client, dataset="d").column("x").to_pylist() == [1, 2, 3]
info = client.get_flight_info(request(dataset="d", snapshot="v1"))
assert client.do_get(info.endpoints[0].ticket).read_all().column("x").to_pylist() == [1, 2]
identity = json.loads(info.app_metadata)["snapshot"]
assert len(identity) == 64 and identity.encode() not in info.endpoints[0].ticket.ticket  # it is inside, encoded
ranks = dict(dataset="d", snapshot="v1", world_size=2, rank=0, batch_size=1)
try:
    client.do_get(fl.Ticket(json.dumps(ranks))).read_all()
    sys.exit("ranks could plan on different snapshots while a name moves on")
except pa.ArrowInvalid as e:
    assert "snapshot" in str(e), e
ranks["snapshot"] = identity
assert client.do_get(fl.Ticket(json.dumps(ranks))).read_all().num_rows == 1
try:
    client.get_flight_info(request(dataset="d", snapshot="v2"))
    sys.exit("a name that nobody gave")
except pa.ArrowInvalid as e:
    assert "v2" in str(e), e
`, s.uri, dir)
	tag("v2", "--snapshot", "v1")
	tag("v1")
	if out := tag(); !strings.HasPrefix(out, "v1  ") || strings.Count(out, "\n") != 2 || strings.Fields(out)[1] == strings.Fields(out)[3] {
		t.Errorf("tags: %s", out)
	}
	tag("v2", "--delete")
	if out := tag(); strings.Contains(out, "v2") {
		t.Errorf("tags: %s", out)
	}
	if _, errOut, err := run(t, "tag", "d", "v3", "--delete", "--config", config); err == nil || !strings.Contains(errOut, `no tag "v3"`) {
		t.Errorf("a tag that is not there was taken away: %v %s", err, errOut)
	}
}

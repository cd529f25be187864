package e2e

import (
	"strings"
	"testing"
)

const driftingFiles = `
root = Path(sys.argv[1])
pq.write_table(pa.table({"x": pa.array([1, 2], pa.int8()), "note": pa.array([None, None], pa.null())}), root / "a.parquet")
pq.write_table(pa.table({"note": ["c", "d"], "x": pa.array([3, 4], pa.int64()), "y": [0.5, 0.25]}), root / "b.parquet")
`

// One schema for files that drifted: everywhere the same, and rows whatever columns are asked for.
func TestB90WidenedDataset(t *testing.T) {
	dir := t.TempDir()
	python(t, driftingFiles, dir)
	s := serveKeyed(t, dir, "schema: widen")
	python(t, `
client = fl.connect(sys.argv[1])
want = [{"x": 1, "note": None, "y": None}, {"x": 2, "note": None, "y": None}, {"x": 3, "note": "c", "y": 0.5}, {"x": 4, "note": "d", "y": 0.25}]
schema = pa.schema([("x", pa.int64()), ("note", pa.string()), ("y", pa.float64())])
info = client.get_flight_info(request(dataset="d"))
assert info.schema.remove_metadata() == schema, info.schema
assert client.get_schema(request(dataset="d")).schema == info.schema
assert [f.schema for f in client.list_flights()] == [info.schema]
assert read(client, dataset="d").to_pylist() == want
assert read(client, dataset="d", columns=["y"]).to_pylist() == [{"y": r["y"]} for r in want]
shuffled = read(client, dataset="d", shuffle="window", batch_size=3, seed=1, columns=["note", "x"]).to_pylist()
assert sorted(shuffled, key=lambda r: r["x"]) == [{"note": r["note"], "x": r["x"]} for r in want]
`, s.uri)
	out, _, err := run(t, "ls", "--server", s.uri, "d")
	for _, part := range []string{
		"columns that differ between files: 3", `d: column "x" differs: int8 (a.parquet), int64 (b.parquet)`,
		`d: column "y" differs: missing (a.parquet), float64 (b.parquet)`,
	} {
		if err != nil || !strings.Contains(out, part) {
			t.Errorf("%v: %s\nwant %q", err, out, part)
		}
	}
	const drift = `d: column "x" differs: int8 (a.parquet), int64 (b.parquet)`
	if out, _, err = run(t, "verify", "--server", s.uri, "d"); err != nil || !strings.Contains(out, "4 rows read") || !strings.Contains(out, drift) {
		t.Errorf("%v: %s\nwant %q", err, out, drift)
	}
	if out, _, err = run(t, "verify", "--server", s.uri, "d", "--json"); err != nil || !strings.Contains(out, `"drift":[{"column":"x","types":[{"type":"int8"`) {
		t.Errorf("%v: %s", err, out)
	}
}

// Strictly, the same files are refused before the first row, with what differs and what to do.
func TestStrictContractSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	python(t, driftingFiles, dir)
	s := serveDataset(t, dir)
	python(t, `
client = fl.connect(sys.argv[1])
for call in [lambda: client.get_flight_info(request(dataset="d")), lambda: read(client, dataset="d", columns=["x"], shards=["a.parquet"])]:
    try:
        call()
        sys.exit("the files were joined")
    except pa.ArrowInvalid as e:
        assert "b.parquet" in str(e) and "schema: widen" in str(e), e
`, s.uri)
	out, _, err := run(t, "ls", "--server", s.uri, "--json")
	if err != nil || !strings.Contains(out, `"drift":[{"column":"x","types":[{"type":"int8","shards":1,"first":"a.parquet"}`) {
		t.Errorf("%v: %s", err, out)
	}
	_, said, err := run(t, "verify", "--server", s.uri, "d")
	for _, want := range []string{"cannot be served", `d: column "x" differs: int8 (a.parquet), int64 (b.parquet)`} {
		if err == nil || !strings.Contains(said, want) {
			t.Errorf("%v: %s\nwant %q", err, said, want)
		}
	}
}

func TestGivenSchema(t *testing.T) {
	dir := t.TempDir()
	python(t, driftingFiles, dir)
	s := serveKeyed(t, dir, "schema: {y: double, x: int32}", "refresh: 1ms")
	python(t, `
client = fl.connect(sys.argv[1])
try:
    client.get_flight_info(request(dataset="d"))
    sys.exit("int64 was taken for int32")
except pa.ArrowInvalid as e:
    assert "b.parquet" in str(e) and "int64" in str(e) and "int32" in str(e), e
os.remove(Path(sys.argv[2]) / "b.parquet")
table = read(client, dataset="d")
assert table.schema.remove_metadata() == pa.schema([("y", pa.float64()), ("x", pa.int32())]), table.schema
assert table.to_pylist() == [{"y": None, "x": 1}, {"y": None, "x": 2}]
`, s.uri, dir)
	out, stderr, err := run(t, "config", "check", writeConfig(t, "datasets: [{name: d, url: /tmp, schema: {x: integer}}]"))
	if err == nil || !strings.Contains(stderr, `column "x"`) || !strings.Contains(stderr, "integer") {
		t.Errorf("%v: %s%s", err, out, stderr)
	}
}

package e2e

import (
	"path/filepath"
	"strings"
	"testing"
)

// folders makes a folder with one Parquet and one Arrow dataset of the same rows.
func folders(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	python(t, `
root = Path(sys.argv[1])
random = np.random.default_rng(1)
for name in ("words", "vectors"):
    (root / name).mkdir()
for shard in range(3):
    n = 20_000 + 7 * shard
    ids = np.arange(n) + shard * 100_000
    table = pa.table({
        "id": ids,
        "text": [None if i % 11 == 0 else f"row {i}" for i in ids],
        "tags": [[f"t{i % 7}"] * (i % 4) for i in ids],
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(random.random(n * 64, np.float32)), 64),
        "kind": pa.array([f"kind {i % 5}" for i in ids]).dictionary_encode(),
    })
    pq.write_table(table, root / "words" / f"part-{shard}.parquet", row_group_size=6_000)
    with pa.ipc.new_file(root / "vectors" / f"part-{shard}.arrow", table.schema) as w:
        w.write_table(table, max_chunksize=5_000)
`, dir)
	return dir
}

// whole checks that a dataset comes as pyarrow reads its files itself.
const whole = `
uri, root = sys.argv[1], Path(sys.argv[2])

def stored(name):
    tables = []
    for path in sorted((root / name).iterdir()):
        if path.suffix == ".parquet":
            tables.append(pq.read_table(path))
        else:
            with pa.ipc.open_file(path) as f:
                tables.append(f.read_all())
    return pa.concat_tables(tables, promote_options="none" if False else "default")

def plain(table):
    fields = []
    for f in table.schema:
        t = f.type.value_type if pa.types.is_dictionary(f.type) else f.type
        fields.append(pa.field(f.name, t, f.nullable))
    return table.cast(pa.schema(fields))
`

func TestWholeDatasets(t *testing.T) {
	dir := folders(t)
	s := serve(t, dir)
	python(t, whole+`
client = fl.connect(uri)
for name in ("words", "vectors"):
    want = plain(stored(name))
    info = client.get_flight_info(fl.FlightDescriptor.for_path(name))
    assert info.total_records == want.num_rows and info.ordered and len(info.endpoints) == 3, info
    got = pa.concat_tables([client.do_get(e.ticket).read_all() for e in info.endpoints])
    assert got.replace_schema_metadata(None).equals(want.replace_schema_metadata(None)), name
    again = read(client, dataset=name)
    assert again.equals(got), name
    few = read(client, dataset=name, columns=["kind", "id"], shards="1:3")
    assert few.column_names == ["kind", "id"] and few.equals(got.select(["kind", "id"]).slice(20_000)), name
    one = read(client, dataset=name, shards=[sorted(p.name for p in (root / name).iterdir())[1]], row_id=True)
    assert one["__row_id"].to_pylist() == list(range(20_000, 40_007)), name
`, s.uri, dir)
}

func TestBatches(t *testing.T) {
	dir := folders(t)
	s := serve(t, dir)
	python(t, whole+`
client = fl.connect(uri)
for name in ("words", "vectors"):
    want = plain(stored(name)).replace_schema_metadata(None)
    for size in (1, 7, 1_000, 6_001, 100_000):
        rows = None if size > 1 else "0:1"
        req = dict(dataset=name, batch_size=size, row_id=True)
        if size == 1:
            req |= dict(shards="0:1", columns=["id"])
        info = client.get_flight_info(request(**req))
        meta = json.loads(info.app_metadata)
        chunks = [(c.data, json.loads(c.app_metadata.to_pybytes())) for c in client.do_get(info.endpoints[0].ticket)]
        sizes = [c.num_rows for c, m in chunks if m.get("part", 0) <= 1]
        parts = {}
        for c, m in chunks:
            parts[m["step"]] = parts.get(m["step"], 0) + c.num_rows
        assert list(parts) == list(range(meta["steps"])), (name, size)
        assert all(n == size for n in list(parts.values())[:-1]), (name, size)
        got = pa.Table.from_batches([c for c, _ in chunks])
        assert got["__row_id"].to_pylist() == list(range(info.total_records)), (name, size)
        if size > 1:
            assert got.drop(["__row_id"]).replace_schema_metadata(None).equals(want), (name, size)
        last = chunks[-1][1]
        assert last["receipt"]["rows"] == info.total_records and last["receipt"]["steps"] == meta["steps"], last
        total = sum(int(m["sum"], 16) for _, m in chunks) % 2**128
        assert int(last["receipt"]["sum"], 16) == total, (name, size)
        assert last["cursor"].endswith(":1:0"), last
`, s.uri, dir)
}

func TestResume(t *testing.T) {
	dir := folders(t)
	first := serve(t, dir)
	out := python(t, `
client = fl.connect(sys.argv[1])
for name in ("words", "vectors"):
    for fields in ({}, {"batch_size": 999}):
        info = client.get_flight_info(request(dataset=name, row_id=True, **fields))
        for i, c in enumerate(client.do_get(info.endpoints[0].ticket)):
            meta = json.loads(c.app_metadata.to_pybytes())
            if i in (0, 3, 11):
                print(json.dumps([name, fields, json.loads(info.app_metadata)["snapshot"], meta["cursor"], int(c.data["__row_id"][-1].as_py()) + 1]))
        print(json.dumps([name, fields, json.loads(info.app_metadata)["snapshot"], meta["cursor"], info.total_records]))
`, first.uri)
	first.kill()
	s := serve(t, dir) // another process, which knows nothing of the first
	python(t, `
client = fl.connect(sys.argv[1])
for line in sys.argv[2].splitlines():
    name, fields, snapshot, cursor, rows = json.loads(line)
    info = client.get_flight_info(request(dataset=name, row_id=True, snapshot=snapshot, after=cursor, **fields))
    got = client.do_get(info.endpoints[0].ticket).read_all()
    assert got["__row_id"].to_pylist() == list(range(rows, rows + info.total_records)), line
    assert rows + info.total_records == 60_021, line
    if info.total_records:  # a place that is no border is refused
        plan, epoch, _ = cursor[4:].split(":")
        try:
            read(client, dataset=name, snapshot=snapshot, after=f"hr1:{plan}:{epoch}:{rows - 1}", **fields)
            raise SystemExit("a cursor within a step was taken: " + line)
        except pa.ArrowInvalid as e:
            assert "border" in str(e), e
try:
    read(client, dataset="words", snapshot=snapshot, after="hr1:" + "0" * 32 + ":0:0")
    raise SystemExit("another plan's cursor was taken")
except (pa.ArrowInvalid, KeyError) as e:
    pass
`, s.uri, out)
}

// The schema is the same bytes wherever it is told.
func TestOneSchema(t *testing.T) {
	dir := folders(t)
	s := serve(t, dir)
	python(t, `
client = fl.connect(sys.argv[1])
for name in ("words", "vectors"):
    path = fl.FlightDescriptor.for_path(name)
    listed = next(f for f in client.list_flights() if [p.decode() for p in f.descriptor.path] == [name])
    info, schema = client.get_flight_info(path), client.get_schema(path).schema
    stream = client.do_get(info.endpoints[0].ticket).schema
    for other in (info.schema, schema, stream):
        assert other.equals(listed.schema, check_metadata=True), name
        assert other.serialize().equals(listed.schema.serialize()), name
    print(json.loads(info.app_metadata)["schema"])
    read(client, dataset=name, expect_schema=json.loads(info.app_metadata)["schema"])
    try:
        read(client, dataset=name, columns=["id"], expect_schema=json.loads(info.app_metadata)["schema"])
        raise SystemExit("a schema that is not the expected one was served")
    except pa.ArrowInvalid as e:
        assert "expect_schema" in str(e), e
`, s.uri)
}

func TestB11TheEndIsNoError(t *testing.T) {
	dir := folders(t)
	s := serve(t, dir)
	python(t, `
client = fl.connect(sys.argv[1])
for i in range(100):
    assert read(client, dataset="words", columns=["id"]).num_rows == 60_021
`, s.uri)
}

func TestB26NoColumns(t *testing.T) {
	dir := t.TempDir()
	python(t, `
pq.write_table(pa.table({"a": list(range(7))}), sys.argv[1] + "/x.parquet")
`, dir)
	s := serve(t, dir)
	python(t, `
client = fl.connect(sys.argv[1])
info = client.get_flight_info(request(dataset=sys.argv[2], columns=[]))
assert info.total_records == 7 and len(info.schema) == 0
assert sum(c.data.num_rows for c in client.do_get(info.endpoints[0].ticket)) == 7
`, s.uri, filepath.Base(dir))
}

func TestB33ChangedDictionaries(t *testing.T) {
	dir := t.TempDir()
	python(t, `
for shard, words in enumerate((["a", "b"], ["b", "c", "a"], ["z"])):
    values = pa.array([words[i % len(words)] for i in range(100)]).dictionary_encode()
    pq.write_table(pa.table({"w": values}), f"{sys.argv[1]}/p{shard}.parquet")
`, dir)
	s := serve(t, dir)
	python(t, `
got = read(fl.connect(sys.argv[1]), dataset=sys.argv[2])["w"].to_pylist()
want = [w[i % len(w)] for w in (["a", "b"], ["b", "c", "a"], ["z"]) for i in range(100)]
assert got == want
`, s.uri, filepath.Base(dir))
}

func TestB34LargeBatchesAreSplit(t *testing.T) {
	dir := t.TempDir()
	python(t, `
random = np.random.default_rng(3)
root = Path(sys.argv[1])
for name in ("wide", "row"):
    (root / name).mkdir()
x = pa.FixedSizeListArray.from_arrays(pa.array(random.random(50_000 * 1000, np.float32)), 1000)
pq.write_table(pa.table({"x": x}), root / "wide" / "x.parquet", row_group_size=50_000)
blob = [random.bytes(5_000_000), b"small", random.bytes(1_000_000), random.bytes(3_000_000)]
pq.write_table(pa.table({"blob": blob}), root / "row" / "x.parquet")
`, dir)
	s := serve(t, dir)
	python(t, `
limited = [("grpc.max_receive_message_length", 4 << 20)]
client = fl.connect(sys.argv[1], generic_options=limited)
assert read(client, dataset="wide").num_rows == 50_000
assert read(client, dataset="wide", batch_size=1000, max_message_bytes=1_000_000).num_rows == 50_000
try:
    read(client, dataset="row")
    raise SystemExit("a row of 5 MB went through a limit of 4 MiB")
except (pa.ArrowException, KeyboardInterrupt):  # pyarrow takes the end of such a call for a Ctrl-C
    pass
got = read(fl.connect(sys.argv[1]), dataset="row", max_message_bytes=100_000)
assert [len(b) for b in got["blob"].to_pylist()] == [5_000_000, 5, 1_000_000, 3_000_000]
`, s.uri)
}

func TestCompression(t *testing.T) {
	dir := folders(t)
	s := serve(t, dir)
	python(t, `
client = fl.connect(sys.argv[1])
for name in ("words", "vectors"):
    want = read(client, dataset=name)
    for codec in ("lz4", "zstd"):
        assert read(client, dataset=name, compression=codec).equals(want), codec
        assert read(client, dataset=name, compression=codec, batch_size=777).equals(want.combine_chunks()), codec
`, s.uri)
}

func TestNewFilesAreSeen(t *testing.T) {
	dir := t.TempDir()
	write := `pq.write_table(pa.table({"a": list(range(int(sys.argv[2])))}), sys.argv[1])`
	python(t, write, filepath.Join(dir, "a.parquet"), "10")
	s := serveDataset(t, dir, "refresh: 1s")
	python(t, `
client = fl.connect(sys.argv[1])
old = client.get_flight_info(request(dataset="d"))
assert old.total_records == 10
pq.write_table(pa.table({"a": list(range(5))}), sys.argv[2] + "/b.parquet")
deadline = time.time() + 20
while client.get_flight_info(request(dataset="d")).total_records != 15:
    assert time.time() < deadline, "the new file was not seen"
    time.sleep(0.1)
assert client.do_get(old.endpoints[0].ticket).read_all().num_rows == 10, "an old ticket keeps its snapshot"
`, s.uri, dir)
}

func TestAdmin(t *testing.T) {
	s := serve(t, folders(t))
	for path, want := range map[string]string{"/healthz": "ok", "/readyz": "ready"} {
		if code, body := s.get(path); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	python(t, `read(fl.connect(sys.argv[1]), dataset="words")`, s.uri)
	_, metrics := s.get("/metrics")
	for _, want := range []string{
		`headrace_rows_total{dataset="words",tenant="local"} 60021`, "headrace_bytes_total", "headrace_data_wait_seconds_bucket",
		"headrace_client_wait_seconds_bucket", "headrace_decode_seconds_bucket", "headrace_columns_decoded_total", "headrace_memory_bytes", "headrace_leases",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics has no %s:\n%s", want, metrics)
		}
	}
}

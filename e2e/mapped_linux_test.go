package e2e

import "testing"

// table is the Python that makes a table with columns of every type that is served in place.
const table = `
def table(n):
    random = np.random.default_rng(7)
    ids = np.arange(n)
    odd = ids % 3 == 1  # null
    words = [f"row {i} " + "y" * (i % 70) for i in range(n)]
    pairs = pa.StructArray.from_arrays([pa.array(ids.astype("int16"), mask=odd), pa.array(words)], ["a", "b"], mask=pa.array(ids % 5 == 0))
    offsets = pa.array(np.concatenate([[0], np.cumsum(ids % 4)]).astype("int32"))
    items = int(offsets[-1].as_py())
    values = pa.array(random.random(items), mask=np.arange(items) % 7 == 0)
    return pa.table({
        "id": ids, "bool": pa.array(ids % 2 == 0, mask=odd), "float": pa.array(random.random(n, np.float32), mask=odd),
        "text": pa.array([None if o else w for w, o in zip(words, odd)]), "large": pa.array(words, pa.large_string()),
        "bytes": pa.array([w.encode() for w in words], pa.binary()), "fixed": pa.array([w[:5].encode() for w in words], pa.binary(5)),
        "decimal": pa.array(ids).cast(pa.decimal128(24, 2)), "time": pa.array(ids, pa.timestamp("us", "UTC")),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(random.random(n * 16, np.float32)), 16),
        "list": pa.ListArray.from_arrays(offsets, values), "struct": pairs,
        "lists": pa.ListArray.from_arrays(offsets, pa.array(["x" * (i % 9) for i in range(items)])),
        "map": pa.MapArray.from_arrays(offsets, pa.array(np.arange(items)), values), "null": pa.nulls(n),
    })
`

// Rows served from the mapped file are the rows of the file, whole and in any slices, and no bits of other rows.
func TestMappedTypes(t *testing.T) {
	dir := t.TempDir()
	python(t, table+`
t = table(60_000)
for name, rows in {"whole": 60_000, "blocks": 7_001}.items():
    with pa.ipc.new_file(f"{sys.argv[1]}/{name}.arrow", t.schema) as w:
        w.write_table(t, max_chunksize=rows)
`, dir)
	s := serveDataset(t, dir)
	python(t, table+`
import gc, urllib.request

def mapped():
    page = urllib.request.urlopen(sys.argv[2] + "/metrics").read().decode()
    return sum(float(l.split()[-1]) for l in page.splitlines() if l.startswith("headrace_memory_bytes{") and 'kind="mapped"' in l)

want = table(60_000)
client = fl.connect(sys.argv[1])
seen = 0
for fields in ({}, {"batch_size": 1000}, {"batch_size": 9_973}, {"columns": ["bool", "text", "list"], "batch_size": 4_093}, {"compression": "lz4"},
               {"columns": ["lists", "map", "struct"]}, {"row_id": True, "batch_size": 25_000}):
    for shard in ("whole", "blocks"):
        info = client.get_flight_info(request(dataset="d", shards=[f"{shard}.arrow"], **fields))
        batches = []
        for chunk in client.do_get(info.endpoints[0].ticket):
            batches.append(chunk.data)
            chunk.data.validate(full=True)
            seen = max(seen, mapped()) if len(batches) < 3 else seen
        got = pa.Table.from_batches(batches)
        rest = want.select([c for c in got.column_names if c != "__row_id"])
        assert got.drop_columns(["__row_id"] if fields.get("row_id") else []).equals(rest), (fields, shard)
        for batch in batches:  # bits behind the last row are nobody's
            for column in ("bool",) if "bool" in batch.schema.names else ():
                for b in batch.column(column).buffers():
                    tail = batch.num_rows % 8
                    assert not tail or b is None or b[batch.num_rows // 8] >> tail == 0, (fields, shard)
assert seen > 0, "nothing was mapped"
`, s.uri, s.admin)
}

// TestB78_WritersOfServedFiles changes files while slow clients read them: the change goes through within a second,
// streams end with the old rows or an error, and others do not notice.
func TestB78_WritersOfServedFiles(t *testing.T) {
	dir := large(t, "arrow")
	s := serveDataset(t, dir, "refresh: 100ms")
	python(t, `
import shutil, subprocess
uri, root = sys.argv[1], Path(sys.argv[2])
files = sorted(root.iterdir())
kept = root.parent / "kept"
shutil.copytree(root, kept)

def truncate(f): os.truncate(f, 0)
def append(f):
    with open(f, "ab") as h: h.write(b"more")
def redirect(f): subprocess.run(["sh", "-c", ': > "$0"', f], check=True)
def patch(f):
    with open(f, "r+b") as h:
        h.seek(f.stat().st_size // 2); h.write(os.urandom(1000))

slow = len(os.sched_getaffinity(0)) * 2 < os.getloadavg()[0]
for change in (truncate, append, redirect, patch):
    client = fl.connect(uri)
    info = client.get_flight_info(request(dataset="d"))
    readers = [client.do_get(info.endpoints[0].ticket) for _ in range(4)]
    got = [[r.read_chunk().data["id"].to_numpy() for _ in range(2)] for r in readers]  # and now they all stand still
    for f in files:
        began = time.monotonic()
        change(f)
        took = time.monotonic() - began
        assert took < (10 if slow else 1), f"{change.__name__} waited {took} s"
    ends = 0
    for ids, r in zip(got, readers):
        try:
            for chunk in r:
                ids.append(chunk.data["id"].to_numpy())
        except pa.ArrowException as e:
            assert "arrow" in str(e), e
            ends += 1
        ids = np.concatenate(ids)
        assert np.array_equal(ids, np.arange(len(ids))), f"{change.__name__}: other rows"
        assert len(ids) > 7000 and (ends or len(ids) == 200_000), len(ids)
    assert ends == 4, f"{change.__name__}: {ends} of 4 streams ended with an error"
    for f in files:
        f.unlink(); shutil.copy(kept / f.name, f)
    deadline = time.time() + 60
    while True:
        try:
            if read(fl.connect(uri), dataset="d", columns=["id"]).num_rows == 200_000: break
        except pa.ArrowException:
            pass
        assert time.time() < deadline
        time.sleep(0.5)
`, s.uri, dir)
}

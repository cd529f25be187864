package e2e

import (
	"os"
	"strings"
	"testing"
)

// ordered is what the tests of orders have in common: a reader that collects row ids and metadata, and the published
// rules of the order, by which Python derives every order on its own.
const ordered = `
sys.path.insert(0, "../sampler/testdata")

def take(client, info, endpoint=0):
    """All batches of an endpoint: a list of (row ids, metadata), parts joined, checked against each other."""
    out, parts = [], []
    for chunk in client.do_get(info.endpoints[endpoint].ticket):
        meta = json.loads(chunk.app_metadata.to_pybytes())
        parts.append(chunk.data["__row_id"].to_numpy())
        check(chunk.data)
        if meta.get("part", 0) == meta.get("parts", 0):
            out.append((np.concatenate(parts), meta))
            parts = []
    assert not parts, "a step without its last part"
    return out

def check(batch):
    """The columns are those of the rows that the ids name."""
    ids = batch["__row_id"].to_numpy()
    if "id" in batch.schema.names:
        assert np.array_equal(batch["id"].to_numpy(), stored[ids])
    if "text" in batch.schema.names:
        some = list(range(0, len(ids), 97))
        want = [None if stored[ids[i]] % 11 == 0 else f"row {stored[ids[i]]}" for i in some]
        assert batch["text"].take(pa.array(some, pa.int64())).to_pylist() == want

stored = np.concatenate([np.arange(20_000 + 7 * s) + s * 100_000 for s in range(3)])
N = len(stored)

def ids(steps):
    return np.concatenate([i for i, _ in steps]) if steps else np.array([], np.int64)
`

func TestShuffledEpochs(t *testing.T) {
	dir := folders(t)
	s := serve(t, dir)
	python(t, ordered+`
client = fl.connect(sys.argv[1])
for name in ("words", "vectors"):
    for shuffle in (dict(shuffle="window", window_blocks=3, seed=5), dict(shuffle="full", seed=5), dict(shuffle="window", groups=3, window_blocks=2)):
        fields = dict(dataset=name, row_id=True, batch_size=256, columns=["id", "text"], **shuffle)
        info = client.get_flight_info(request(**fields))
        meta = json.loads(info.app_metadata)
        steps = take(client, info)
        assert len(steps) == meta["steps"] and info.total_records == N, meta
        got = ids(steps)
        assert np.array_equal(np.sort(got), np.arange(N)), (name, shuffle)
        assert not np.array_equal(got, np.arange(N))
        assert np.array_equal(got, ids(take(client, info))), "the same request, another order"
        other = take(client, client.get_flight_info(request(**{**fields, "epoch": 1})))
        assert not np.array_equal(got, ids(other)), "two epochs, one order"
        both = take(client, client.get_flight_info(request(**{**fields, "num_epochs": 2})))
        assert np.array_equal(ids(both), np.concatenate([got, ids(other)])), "two epochs in one stream"
        receipts = [m["receipt"] for _, m in both if "receipt" in m]
        assert len(receipts) == 2 and receipts[0]["sum"] == receipts[1]["sum"] and receipts[0]["rows"] == N, receipts
        assert sum(int(m["sum"], 16) for _, m in steps) % 2**128 == int(receipts[0]["sum"], 16)
`, s.uri)
}

// Whatever the number of ranks and workers, the same global batches; a job may go on with any other number of them.
func TestRanksAndWorkers(t *testing.T) {
	dir := folders(t)
	s := serve(t, dir)
	python(t, ordered+`
client = fl.connect(sys.argv[1])

def globally(world, workers, batch, **fields):
    """The global batches, put together from all ranks and workers."""
    steps, receipts = {}, []
    for worker in range(workers):
        more = dict(num_workers=workers, worker_id=worker) if workers > 1 else {}
        info = client.get_flight_info(request(world_size=world, global_batch_size=batch, row_id=True, columns=["id"], **more, **fields))
        assert len(info.endpoints) == world
        shares = [json.loads(e.app_metadata) for e in info.endpoints]
        assert info.total_records == json.loads(info.app_metadata)["rows"] == sum(s["rows"] for s in shares)
        assert {s["steps"] for s in shares} == {json.loads(info.app_metadata)["steps"]}
        for rank in range(world):
            for got, meta in take(client, info, rank):
                steps.setdefault(meta["step"], [None] * world)[rank] = got
                if "receipt" in meta:
                    receipts.append(meta["receipt"])
    assert all(share is not None for shares in steps.values() for share in shares), "ranks took unequal steps"
    return [np.concatenate(steps[i]) for i in sorted(steps)], receipts

for name in ("words", "vectors"):
    for order in (dict(shuffle="window", window_blocks=3, seed=9), dict(shuffle="full", seed=9), dict(shuffle="window", window_blocks=2, groups=3), {}):
        fields = dict(dataset=name, **order)
        for tail in ("drop", "keep", "pad"):
            want, _ = globally(1, 1, 4096, tail=tail, **fields)
            rows = np.concatenate(want)
            assert len(set(rows[:N].tolist())) == N - (N % 4096 if tail == "drop" else 0), (name, order, tail)
            for world, workers in ((2, 1), (3, 2), (8, 1), (1, 3)):
                got, receipts = globally(world, workers, 4096, tail=tail, **fields)
                assert len(got) == len(want) and all(np.array_equal(a, b) for a, b in zip(got, want)), (name, order, tail, world, workers)
                rows = sum(r["rows"] - r["padded"] for r in receipts)
                assert rows + receipts[0]["dropped"] == N, (receipts, N)
                assert tail != "drop" or receipts[0]["dropped"] == N % 4096
                assert tail != "pad" or sum(r["padded"] for r in receipts) == -N % 4096
        if "groups" in order:
            continue  # a step of another size has its groups' rows elsewhere
        # on from the middle with another world and batch
        info = client.get_flight_info(request(batch_size=4096, tail="keep", row_id=True, columns=["id"], **fields))
        first = take(client, info)
        cursor, snapshot = first[4][1]["cursor"], json.loads(info.app_metadata)["snapshot"]
        rest = np.concatenate([i for i, _ in first[5:]])
        got, _ = globally(5, 2, 1000, tail="keep", start=cursor, snapshot=snapshot, **fields)
        assert np.array_equal(np.concatenate(got), rest), (name, order)
        # one row for two ranks: the first one's share is a batch without rows, of every type
        info = client.get_flight_info(request(global_batch_size=30_010, world_size=2, tail="keep", rank=0, **fields))
        reader = client.do_get(info.endpoints[0].ticket)
        batches = [chunk.data for chunk in reader]
        assert [b.num_rows for b in batches] == [15_005, 15_005, 0] and batches[2].num_columns == 5
        [b.validate(full=True) for b in batches]
`, s.uri)
}

func TestResumeShuffled(t *testing.T) {
	dir := folders(t)
	s := serve(t, dir)
	out := python(t, ordered+`
client = fl.connect(sys.argv[1])
random = np.random.default_rng(4)
for name in ("words", "vectors"):
    fields = dict(dataset=name, row_id=True, batch_size=500, shuffle="window", window_blocks=4, seed=3, num_epochs=2, columns=["id"])
    info = client.get_flight_info(request(**fields))
    steps = take(client, info)
    for i in sorted(random.integers(0, len(steps), 6)):
        print(json.dumps([fields, json.loads(info.app_metadata)["snapshot"], steps[i][1]["cursor"], int(i), ids(steps[i + 1:]).tolist()]))
`, s.uri)
	s.kill()
	again := serve(t, dir)
	file := t.TempDir() + "/want"
	if err := os.WriteFile(file, []byte(strings.TrimSpace(out)), 0o600); err != nil {
		t.Fatal(err)
	}
	python(t, ordered+`
client = fl.connect(sys.argv[1])
for line in Path(sys.argv[2]).read_text().splitlines():
    fields, snapshot, cursor, i, want = json.loads(line)
    steps = take(client, client.get_flight_info(request(**fields, snapshot=snapshot, after=cursor)))
    assert ids(steps).tolist() == want, (fields, i)
    assert not steps or steps[0][1]["step"] == i + 1
    steps = take(client, client.get_flight_info(request(**fields, snapshot=snapshot, start=cursor)))
    assert sorted(ids(steps).tolist()) == sorted(want)
    try:
        take(client, client.get_flight_info(request(**{**fields, "seed": 4}, snapshot=snapshot, after=cursor)))
        raise SystemExit("a cursor of another plan was taken")
    except pa.ArrowInvalid as e:
        assert "seed was 3 and is 4" in str(e), e
`, again.uri, file)
}

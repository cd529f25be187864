package e2e

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// What the headrace package promises, against a real gateway.

// streams is what these tests have in common: a reader of row ids, which checks what it is told at epochs' ends.
const streams = `
import headrace, warnings

def rows_of(stream):
    """The row ids of each step, and the receipts."""
    steps, receipts = [], []
    for batch in stream:
        steps.append(batch["__row_id"].to_numpy().copy())
        if stream.receipt not in receipts and stream.receipt is not None:
            receipts.append(stream.receipt)
    return steps, receipts

def joined(steps):
    return np.concatenate(steps).tolist() if steps else []
`

// few makes the datasets ten, 4 files of 10 rows, and thousand, one file whose blocks have 10 rows.
func few(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	python(t, `
for name in ("ten", "thousand"):
    (Path(sys.argv[1]) / name).mkdir()
for shard in range(4):
    pq.write_table(pa.table({"id": range(10 * shard, 10 * shard + 10)}), f"{sys.argv[1]}/ten/{shard}.parquet")
pq.write_table(pa.table({"id": range(1000)}), f"{sys.argv[1]}/thousand/0.parquet", row_group_size=10)
`, dir)
	return dir
}

// A shuffled stream over epochs does not show that its gateway was killed, wherever that happens.
func TestKilledGatewaysDoNotShow(t *testing.T) {
	dir := folders(t)
	s := serve(t, dir)
	kills := 8
	if testing.Short() {
		kills = 3
	}
	again := func() *server { return serveOn(t, strings.TrimPrefix(s.uri, "grpc://"), dir) }
	withKills(t, s, again, streams+`
import random
client = headrace.connect(sys.argv[1], retry_for=120)
options = dict(shuffle=True, seed=11, window_blocks=3, batch_size=500, num_epochs=3, row_id=True, columns=["id"])
whole = client.stream("words", **options)
want, receipts = rows_of(whole)
assert len(receipts) == 3 and len(want) == 3 * 121 and whole.stats().resumed == 0

broken = client.stream("words", **options)
cuts = set(random.Random(int(sys.argv[2])).sample(range(1, len(want)), int(sys.argv[3])))

def cut(stream):
    for number, batch in enumerate(stream, 1):
        yield batch
        if number in cuts:
            print("kill", flush=True)
            sys.stdin.readline()

class Cut:
    """The stream, which asks for a kill at the chosen places."""
    receipt = property(lambda self: broken.receipt)
    def __iter__(self):
        return cut(broken)

got, again = rows_of(Cut())
assert joined(got) == joined(want), "other rows, or another order"
assert again == receipts and broken.sum == whole.sum and broken.cursor == whole.cursor
assert 1 <= broken.stats().resumed, broken.stats()
print("resumed", broken.stats().resumed)
`, s.uri, strconv.Itoa(int(rand.Int32())), strconv.Itoa(kills))
}

func TestB83RanksTakeEqualSteps(t *testing.T) {
	s := serve(t, few(t))
	python(t, streams+`
client = headrace.connect(sys.argv[1])
for world in (2, 3):
    for tail in ("drop", "pad", "keep"):
        for part in (dict(), dict(split=(1, 0, 5500)), dict(shards="0:3"), dict(shuffle=True, seed=3)):
            options = dict(world_size=world, batch_size=3, tail=tail, **part)
            whole = client.plan("ten", **options)
            all_rows = client.plan("ten", **part | dict(batch_size=1)).rows
            ids, receipts, counts = [], [], []
            for rank in range(world):
                told = client.plan("ten", rank=rank, **options)
                steps, [receipt] = rows_of(client.stream("ten", rank=rank, row_id=True, **options))
                assert (told.rows, told.steps) == (receipt.rows, receipt.steps) == (len(joined(steps)), len(steps))
                ids += joined(steps)
                receipts.append(receipt)
                counts.append(len(steps))
            assert len(set(counts)) == 1 and counts[0] == whole.steps, (options, counts)
            padded = sum(r.padded for r in receipts)
            assert (padded, receipts[0].dropped, len(ids)) == (whole.padded, whole.dropped, whole.rows), options
            assert len(set(ids)) + receipts[0].dropped == all_rows, options
            assert len(ids) - len(set(ids)) == padded, options
            lengths = {"drop": padded == 0, "pad": receipts[0].dropped == 0, "keep": padded == receipts[0].dropped == 0}
            assert lengths[tail], options
`, s.uri)
}

func TestB84SkippedAndTakenRowsAreShared(t *testing.T) {
	s := serve(t, few(t))
	python(t, streams+`
client = headrace.connect(sys.argv[1])
order = dict(shuffle=True, seed=8, window_blocks=10, row_id=True)
alone = client.stream("thousand", **order, batch_size=10)
whole, _ = rows_of(alone)
whole, plan = joined(whole), client.plan("thousand", **order, batch_size=10).plan[:32]

def ranks(world, take=None, **options):
    """The rows of all ranks, put together step by step."""
    shares = []
    for rank in range(world):
        stream = client.stream("thousand", rank=rank, world_size=world, tail="keep", snapshot=alone.snapshot, **order, **options)
        steps = [batch["__row_id"].to_numpy().copy() for batch, _ in zip(stream, range(take or 10**6))]
        stream.close()
        shares.append(steps)
    return np.concatenate([np.concatenate(step) for step in zip(*shares, strict=True)]).tolist()

for world in (1, 2, 3):
    for skip in (0, 1, 137, 500, 999):  # before the ranks share: any row
        got = ranks(world, start=f"hr1:{plan}:0:{skip}", global_batch_size=12)
        assert got == whole[skip:], (world, skip)
    for steps in (1, 7, 83):  # after it: whole steps of each
        assert ranks(world, after=f"hr1:{plan}:0:{12 * steps}", global_batch_size=12) == whole[12 * steps:], (world, steps)
        assert ranks(world, take=steps, global_batch_size=12) == whole[: 12 * steps], (world, steps)
    # both: 30 rows skipped, then each rank takes 5 steps, the rest is for others
    assert ranks(world, start=f"hr1:{plan}:0:30", take=5, global_batch_size=12) == whole[30:90]
    halves = [ranks(world, split=(5, *part), global_batch_size=12) for part in ((0, 4000), (4000, 10_000))]
    assert sorted(halves[0] + halves[1]) == list(range(1000)), "a split is disjoint and complete"
`, s.uri)
}

func TestB85ShuffledStreamsResumeAtAnyRow(t *testing.T) {
	s := serve(t, few(t))
	python(t, streams+`
client = headrace.connect(sys.argv[1])
order = dict(shuffle=True, seed=2, window_blocks=10, row_id=True)  # windows of 100 rows
alone = client.stream("thousand", **order, batch_size=1)
whole = joined(rows_of(alone)[0])
assert sorted(whole) == list(range(1000)) and whole != sorted(whole)
for k in (1, 20, 99, 100, 101, 999):
    with client.stream("thousand", **order, batch_size=1, snapshot=alone.snapshot) as stream:
        begin = [next(stream)["__row_id"][0].as_py() for _ in range(k)]
        cursor, total = stream.cursor, int(stream.sum, 16)
    assert begin == whole[:k]
    rest = client.stream("thousand", **order, batch_size=1, snapshot=alone.snapshot, after=cursor)
    assert joined(rows_of(rest)[0]) == whole[k:], k
    assert f"{(total + int(rest.sum, 16)) % 2**128:032x}" == alone.sum
    other = client.stream("thousand", **order, batch_size=64, snapshot=alone.snapshot, start=cursor)
    assert joined(rows_of(other)[0]) == whole[k:], k
`, s.uri)
}

func TestB87RanksAndWorkersAreNamed(t *testing.T) {
	s := serve(t, few(t))
	python(t, streams+`
client = headrace.connect(sys.argv[1])
stock = fl.connect(sys.argv[1])

def refused(kind, words, ask):
    try:
        ask()
    except kind as error:
        assert words in str(error), error
        return
    raise SystemExit(f"not refused: {words}")

many = dict(world_size=2, batch_size=5)
refused(headrace.RequestError, "name a rank", lambda: client.stream("ten", **many))
refused(headrace.RequestError, "worker_id", lambda: client.stream("ten", **many, rank=0, num_workers=2))
refused(headrace.RequestError, "worker_id", lambda: client.stream("ten", num_workers=2))
refused(headrace.RequestError, "worker_id", lambda: client.stream("ten", worker_id=1))
snapshot = client.plan("ten").snapshot
by_hand = json.dumps(dict(dataset="ten", snapshot=snapshot, **many))
refused(pa.ArrowInvalid, "rank", lambda: stock.do_get(fl.Ticket(by_hand)).read_all())

os.environ.update(RANK="1", WORLD_SIZE="2")  # as torchrun sets them
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    client.stream("ten")
    assert len(said) == 1 and "rank 1 of 2" in str(said[0].message), said
    ids = []
    for rank in range(2):
        for worker in range(2):
            ids += joined(rows_of(client.stream("ten", **many, rank=rank, num_workers=2, worker_id=worker, row_id=True))[0])
    assert len(said) == 1, said
assert sorted(ids) == list(range(40)), "with options, each row once"
`, s.uri)
}

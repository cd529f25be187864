package e2e

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// killed is what the tests of kills have in common: orders of small data sets, each with its epoch as it has to come.
const killed = `
import itertools, random, signal, traceback

orders = [
    dict(dataset=name, epoch=epoch, seed=epoch + 1, **order)
    for epoch, order in enumerate([dict(shuffle="window", window_blocks=3), dict(shuffle="full"), dict(shuffle="window", window_blocks=2, groups=3)])
    for name in ("parquet", "arrow")
] + [dict(dataset=name, split={"seed": 5, "from": 2000, "to": 9000}) for name in ("parquet", "arrow")]
root = Path(sys.argv[1])
`

// small makes two data sets of many blocks, and reads each order's epoch from a gateway that nobody kills.
func small(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	python(t, killed+`
for name in ("parquet", "arrow"):
    (root / "data" / name).mkdir(parents=True)
for shard in range(3):
    ids = np.arange(600 + shard) + 10_000 * shard
    table = pa.table({
        "id": ids,
        "text": [None if i % 11 == 0 else f"row {i} " * (i % 5) for i in ids],
        "tags": [[f"t{i % 7}"] * (i % 4) for i in ids],
        "vector": pa.FixedSizeListArray.from_arrays(pa.array((ids.repeat(512) * 0.5).astype("float32")), 512),
    })
    pq.write_table(table, root / "data" / "parquet" / f"{shard}.parquet", row_group_size=120 + shard)
    with pa.ipc.new_file(root / "data" / "arrow" / f"{shard}.arrow", table.schema) as w:
        w.write_table(table, max_chunksize=100 + shard)
`, dir)
	s := serve(t, dir+"/data")
	python(t, killed+`
client = fl.connect(sys.argv[2])
for number, order in enumerate(orders):
    whole = read(client, batch_size=10_000, tail="keep", row_id=True, **order)
    assert len(whole) > 1200 and len(set(whole["__row_id"].to_pylist())) == len(whole)
    # a position's row: within this one step groups come one after the other
    places = np.argsort(np.arange(len(whole)) % order.get("groups", 1), kind="stable")
    whole = whole.take(np.argsort(places))
    with pa.ipc.new_file(root / f"{number}.arrow", whole.schema) as w:
        w.write_table(whole)
`, dir, s.uri)
	return dir
}

// Wherever a job or its gateway is killed: another one, of any other number of ranks and workers, with any other batch,
// reads the rest of the epoch, byte for byte.
func TestRandomKills(t *testing.T) {
	kills := 200
	if testing.Short() {
		kills = 20
	}
	seed := rand.Int32()
	t.Logf("seed %d", seed)
	dir := small(t)
	s := serve(t, dir+"/data")
	again := func() *server { return serve(t, dir+"/data") }
	done := withKills(t, s, again, killed+`
# This process never touches Arrow, so that every job can be a fork of it.
uri, seed, kills = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
chance = random.Random(seed)

def job(say, number, cursor, snapshot, world, workers, batch):
    """Reads from a cursor on, all ranks in lock step; says where it is after every step that is as it has to be."""
    order = orders[number]
    groups = order.get("groups", 1)
    with pa.memory_map(str(root / f"{number}.arrow")) as file:
        whole = pa.ipc.open_file(file).read_all()
    client = fl.connect(uri)
    place = 0
    if cursor:
        _, _, epoch, place = cursor.split(":")
        place = int(place) if int(epoch) == order.get("epoch", 0) else len(whole)
    readers = []
    for worker in range(workers):
        fields = order | dict(snapshot=snapshot, start=cursor, world_size=world, global_batch_size=batch, tail="keep", row_id=True)
        if workers > 1:
            fields |= dict(num_workers=workers, worker_id=worker)
        info = client.get_flight_info(request(**fields))
        snapshot = json.loads(info.app_metadata)["snapshot"]
        readers.append([client.do_get(endpoint.ticket) for endpoint in info.endpoints])
    for step in itertools.count():
        if place == len(whole):
            break
        shares = [reader.read_chunk() for reader in readers[step % workers]]
        got = pa.Table.from_batches([share.data for share in shares])
        at = np.arange(place, min(place + batch, len(whole)))
        want = whole.take(at[np.argsort(at % groups, kind="stable")])
        place += len(at)
        if not got.equals(want):
            raise AssertionError(f"step {step} of {fields}: rows {got['__row_id'].to_pylist()}, want {want['__row_id'].to_pylist()}")
        [cursor] = {json.loads(share.app_metadata.to_pybytes())["cursor"] for share in shares}
        say(f"{cursor} {snapshot}")
    for reader in itertools.chain(*readers):
        try:
            reader.read_chunk()
            raise AssertionError("there is more")
        except StopIteration:
            pass

def begin(*args):
    """Forks a job; its process, and what it says."""
    out, into = os.pipe()
    pid = os.fork()
    if pid:
        os.close(into)
        return pid, os.fdopen(out)
    say = lambda text: os.write(into, f"{text}\n".encode())
    try:
        job(say, *args)
        say("end")
    except fl.FlightUnavailableError:
        say("lost")
    except BaseException:
        traceback.print_exc()
    os._exit(0)

done = dict(job=0, gateway=0)
while sum(done.values()) < kills:
    number, cursor, snapshot, last = chance.randrange(len(orders)), "", "", ""
    while last != "end":
        world, workers, batch = chance.choice((1, 1, 2, 3)), chance.choice((1, 1, 1, 2)), chance.randint(1, 100)
        pid, lines = begin(number, cursor, snapshot, world, workers, batch)
        left, victim = chance.randint(0, 8), chance.choice(("job", "gateway", "gateway"))
        for last in lines:
            last = last.strip()
            if last in ("end", "lost"):
                break
            cursor, snapshot = last.split()
            if left == 0 and victim == "job":
                os.kill(pid, signal.SIGKILL)
            if left == 0 and victim == "gateway":
                print("kill", flush=True)
                uri = sys.stdin.readline().strip()
            left -= 1
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            done["job"] += 1
        elif last == "lost":
            done["gateway"] += 1
        else:
            assert last == "end", (last, "seed", seed)
print(json.dumps(done))
`, dir, s.uri, strconv.Itoa(int(seed)), strconv.Itoa(kills))
	t.Log("killed:", done)
}

// withKills runs a script. Whenever that prints "kill", the gateway is killed, and the script reads a line: the address of
// another one. The last other line that it prints is returned.
func withKills(t *testing.T, s *server, again func() *server, script string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute) // on a busy machine each gateway takes seconds to start
	defer cancel()
	cmd := exec.CommandContext(ctx, interpreter(t), append([]string{"-c", prelude + script}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH=../python/src")
	errOut := &logBuffer{}
	cmd.Stderr = errOut
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil || cmd.Start() != nil {
		t.Fatal(err1, err2)
	}
	last := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if lines.Text() != "kill" {
			last = lines.Text()
			continue
		}
		s.kill()
		s = again()
		fmt.Fprintln(in, s.uri)
	}
	if err := cmd.Wait(); err != nil || last == "" {
		t.Errorf("%v\n%s\nthe arguments: %q", err, errOut, args)
	}
	return last
}

// A job of eight ranks, two workers each, loses its gateway within a shuffled epoch; thirteen ranks of three workers finish
// that on another one: the same rows in the same order, and all receipts together prove it.
func TestEightRanksBecomeThirteen(t *testing.T) {
	dir := few(t)
	s := serve(t, dir)
	receipts := filepath.Join(t.TempDir(), "receipts")
	var next *server
	again := func() *server {
		next = serve(t, dir)
		return next
	}
	withKills(t, s, again, `
import dataclasses, headrace
order = dict(shuffle=True, seed=6, window_blocks=10, groups=2, row_id=True)

def together(uri, world, workers, batch, steps=None, **options):
    """The rows of all ranks, step by step; the last cursor; an account of every stream."""
    streams = [
        [headrace.connect(uri).stream("thousand", rank=rank, world_size=world, num_workers=workers, worker_id=worker,
                                      global_batch_size=batch, tail="keep", **order, **options) for rank in range(world)]
        for worker in range(workers)
    ]
    rows, cursor = [], ""
    for step in range(steps or 10**6):
        shares = [next(stream, None) for stream in streams[step % workers]]
        if shares[0] is None:
            break
        rows.append(np.concatenate([share["__row_id"].to_numpy() for share in shares]))
        [cursor] = {stream.cursor for stream in streams[step % workers]}
    accounts = [
        dataclasses.asdict(stream.receipt) if stream.receipt else {"epoch": 0, "rows": stream.stats().rows, "sum": stream.sum}
        for of_worker in streams for stream in of_worker
    ]
    snapshot = streams[0][0].snapshot
    [stream.close() for of_worker in streams for stream in of_worker]
    return rows, cursor, accounts, snapshot

def positions(rows, batch, start):
    """The row at each position: within a step, groups come one after the other."""
    place = [p for at in range(start, 1000, batch) for p in sorted(range(at, min(at + batch, 1000)), key=lambda p: (p % 2, p))]
    got = np.concatenate(rows)
    return dict(zip(place[:len(got)], got.tolist(), strict=True))

want = positions(together(sys.argv[1], 1, 1, 100)[0], 100, 0)
assert sorted(want.values()) == list(range(1000))
rows, cursor, first, snapshot = together(sys.argv[1], 8, 2, 48, steps=7)
before = positions(rows, 48, 0)
print("kill", flush=True)
uri = sys.stdin.readline().strip()
rows, end, rest, _ = together(uri, 13, 3, 39, snapshot=snapshot, start=cursor)
after = positions(rows, 39, 7 * 48)
assert before | after == want and len(before) + len(after) == 1000, "missing, repeated, or in another order"
assert end.endswith(":1:0") and len(first) == 16 and len(rest) == 39
Path(sys.argv[2]).write_text("".join(json.dumps(a) + "\n" for a in first + rest))
print("done")
`, s.uri, receipts)
	request := "plan thousand --shuffle window --seed 6 --window-blocks 10 --groups 2 --global-batch-size 39 --world-size 13 --tail keep"
	out, errOut, err := run(t, append(strings.Fields(request), "--server", next.uri, "--receipts", receipts)...)
	if err != nil || !strings.Contains(out, "each once") {
		t.Errorf("%v %s\n%s", err, errOut, out)
	}
}

package e2e

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// large makes one dataset of 200 MB, Parquet or Arrow, in several shards, so that a stream of it lasts.
func large(t *testing.T, format string) string {
	t.Helper()
	dir := t.TempDir()
	python(t, `
random = np.random.default_rng(5)
for shard in range(4):
    n = 50_000
    x = pa.FixedSizeListArray.from_arrays(pa.array(random.random(n * 250, np.float32)), 250)
    table = pa.table({"id": np.arange(n) + shard * n, "x": x})
    if sys.argv[2] == "parquet":
        pq.write_table(table, f"{sys.argv[1]}/{shard}.parquet", row_group_size=20_000, use_dictionary=False)
    else:
        with pa.ipc.new_file(f"{sys.argv[1]}/{shard}.arrow", table.schema) as w:
            w.write_table(table, max_chunksize=3_500)
`, dir, format)
	return dir
}

func TestBadRequests(t *testing.T) {
	dir := folders(t)
	s := serve(t, dir)
	python(t, `
client = fl.connect(sys.argv[1])

def refused(kind, words, *, cmd=None, path=None, ticket=None):
    try:
        if ticket is not None:
            client.do_get(fl.Ticket(ticket)).read_all()
        elif path is not None:
            client.get_flight_info(fl.FlightDescriptor.for_path(*path))
        else:
            client.get_flight_info(fl.FlightDescriptor.for_command(cmd))
    except kind as e:
        assert all(w in str(e) for w in words), (str(e), words)
        assert len(str(e)) < 1400, len(str(e))
        return
    raise SystemExit(f"served: {cmd or path or ticket}")

bad = pa.ArrowInvalid
good = client.get_flight_info(request(dataset="words")).endpoints[0].ticket.ticket
for cmd, words in [
    (b"", []), (b"{", []), (b"null", []), (b"[]", []), (b"x" * 1_000_000, ["65536"]), (b"\xff\xfe", []),
    (b'{"dataset": "words", "dataset": "words"}', ["dataset"]),
    (b'{"Dataset": "words"}', ["dataset"]),
    (b'{"dataset": "words", "shufle": "window"}', ["shuffle"]),
    (b'{"dataset": "words", "nranks": 4}', ["world_size"]),
    (b'{"dataset": "words", "batch_size": "many"}', ["batch_size"]),
    (b'{"dataset": "words", "batch_size": -1}', ["batch_size"]),
    (b'{"dataset": "words", "batch_size": 1.5}', ["batch_size"]),
    (b'{"dataset": "words", "world_size": 1000000000}', ["world_size"]),
    (b'{"dataset": "\xff"}', []), (b'{"dataset": "words", "columns": [""]}', ["columns"]),
    (b'{"dataset": "words", "columns": ["id", "id"]}', ["id"]),
    (b'{"dataset": "words", "shards": ["nope"]}', ["nope"]), (b'{"dataset": "words", "shards": "2:9"}', ["shards"]),
    (b'{"dataset": "words", "after": "hr1:x"}', ["after"]),
    (b'{"dataset": "words", "max_message_bytes": 1}', ["max_message_bytes"]),
    (b'{"dataset": "words", "compression": "gzip"}', ["compression"]),
]:
    refused(bad, words, cmd=cmd)
    refused(bad, words if cmd[:1] == b"{" else [], ticket=cmd)
for ticket in (b"hr1.", good[:-1], good + b"0", good.replace(b"hr1.", b"hr2."), b"\0" * 100, good[:30] + b"A" + good[31:]):
    refused(bad, [], ticket=ticket)

one = set()
for path in (["..", "words"], ["/etc"], ["words/../vectors"], ["words", ""], [""], ["%2e%2e"], ["words\0"], ["."], ["words/"]):
    try:
        client.get_flight_info(fl.FlightDescriptor.for_path(*path))
        raise SystemExit(f"served: {path}")
    except (bad, KeyError) as e:
        one.add(str(e).split(" gRPC")[0].split(". Detail")[0])
assert len(one) == 1, one
refused(KeyError, ["no-such"], path=["no-such"])
refused(KeyError, ["nope"], cmd=b'{"dataset": "words", "columns": ["nope"]}')
refused(KeyError, ["txet", 'did you mean "text"?'], cmd=b'{"dataset": "words", "columns": ["id", "txet"]}')
for cmd, words in [
    (b'{"dataset": "words", "seed": 1}', ["seed"]), (b'{"dataset": "words", "shuffle": "window"}', ["batch"]),
    (b'{"dataset": "words", "world_size": 2, "batch_size": 5, "rank": 2}', ["rank"]),
    (b'{"dataset": "words", "num_workers": 2}', ["worker_id"]),
    (b'{"dataset": "words", "world_size": 2, "batch_size": 1000000}', ["drop"]),
]:
    refused(bad, words, cmd=cmd)
refused(bad, ["snapshot"], ticket=b'{"dataset": "words", "world_size": 2, "batch_size": 5, "rank": 0}')
refused(bad, ["snapshot"], cmd=b'{"dataset": "words", "snapshot": "zz"}')
refused(pa.ArrowInvalid, ["snapshot"], cmd=json.dumps({"dataset": "words", "snapshot": "0" * 64}).encode())
assert read(client, dataset="words").num_rows == 60_021  # and all is well
`, s.uri)
}

// A file that is no good harms only the streams that need it, and says so by name.
func TestBadFiles(t *testing.T) {
	dir := folders(t)
	python(t, `
root = Path(sys.argv[1])
for name in ("empty", "truncated", "garbage", "mixed", "fifo", "link", "schemas", "encrypted", "halfarrow"):
    (root / name).mkdir()
good = (root / "words" / "part-0.parquet").read_bytes()
arrow = (root / "vectors" / "part-0.arrow").read_bytes()
(root / "empty" / "a.parquet").write_bytes(b"")
(root / "empty" / "b.parquet").write_bytes(good)
(root / "truncated" / "a.parquet").write_bytes(good[: len(good) // 2])
(root / "truncated" / "b.parquet").write_bytes(good)
(root / "garbage" / "a.parquet").write_bytes(os.urandom(5000))
(root / "mixed" / "a.parquet").write_bytes(good)
(root / "mixed" / "b.arrow").write_bytes(arrow)
os.mkfifo(root / "fifo" / "a.parquet")
(root / "fifo" / "b.parquet").write_bytes(good)
(root / "link" / "a.parquet").symlink_to("/etc/passwd")
pq.write_table(pa.table({"a": [1]}), root / "schemas" / "a.parquet")
pq.write_table(pa.table({"a": ["x"]}), root / "schemas" / "b.parquet")
(root / "encrypted" / "a.parquet").write_bytes(good[:-4] + b"PARE")
(root / "halfarrow" / "a.arrow").write_bytes(arrow[: len(arrow) - 3000])
`, dir)
	s := serve(t, dir)
	python(t, `
client = fl.connect(sys.argv[1])
for name, words in {
    "empty": ["a.parquet", "empty"], "truncated": ["a.parquet", 'dataset "truncated"', "leave it out with shards"], "garbage": ["a.parquet"], "mixed": ["a.parquet", "b.arrow"],
    "fifo": ["a.parquet", "regular"], "link": ["a.parquet"], "schemas": ["b.parquet", "int64", "string"],
    "encrypted": ["a.parquet", "encrypted"], "halfarrow": ["a.arrow"],
}.items():
    try:
        read(client, dataset=name)
        raise SystemExit(f"{name} was served")
    except pa.ArrowException as e:
        text = str(e).replace("utf8", "string")
        assert all(w in text for w in words), (name, text)
        assert "/tmp" not in text and "passwd" not in text, text
for name in ("empty", "truncated", "fifo"):  # without the bad shard all is well
    assert read(client, dataset=name, shards=["b.parquet"]).num_rows == 20_000, name
assert read(client, dataset="words").num_rows == 60_021
listed = {"/".join(p.decode() for p in f.descriptor.path): json.loads(f.app_metadata) for f in client.list_flights()}
assert listed["truncated"]["corrupt"][0]["shard"] == "a.parquet", listed["truncated"]
assert listed["mixed"].get("error") and listed["schemas"].get("error"), listed
`, s.uri)
	out, errOut, err := run(t, "ls", "--server", s.uri)
	if err != nil || !strings.Contains(out, "truncated: shard a.parquet:") || !strings.Contains(out, "schemas: ") || strings.Contains(out, "schemas: dataset") {
		t.Errorf("ls: %v %s\n%s", err, errOut, out)
	}
	_, errOut, err = run(t, "verify", "mixed", "--server", s.uri)
	if err == nil || strings.Count(errOut, `dataset "mixed"`) != 1 || !strings.Contains(errOut, `cannot be served: dataset "mixed": `) {
		t.Errorf("verify: %v %s", err, errOut)
	}
}

func TestB60Marks(t *testing.T) {
	dir := t.TempDir()
	python(t, `
root = Path(sys.argv[1])
pq.write_table(pa.table({"a": [1, 2, 3]}), root / "x.parquet")
for name in ("_SUCCESS", ".x.parquet.crc", "_metadata", ".hidden.parquet", "README.md", "_common_metadata"):
    (root / name).write_bytes(b"not data")
`, dir)
	s := serve(t, dir)
	python(t, `assert read(fl.connect(sys.argv[1]), dataset=sys.argv[2])["a"].to_pylist() == [1, 2, 3]`, s.uri, filepath.Base(dir))
	python(t, `Path(sys.argv[1], "y.parquet").write_bytes(b"")`, dir)
	again := serve(t, dir)
	python(t, `
try:
    read(fl.connect(sys.argv[1]), dataset=sys.argv[2])
    raise SystemExit("an empty data file was passed over")
except pa.ArrowException as e:
    assert "y.parquet" in str(e), e
`, again.uri, filepath.Base(dir))
}

// Files that change while they stream give the old bytes or an error, never a mixture.
func TestChangingFiles(t *testing.T) {
	for _, format := range []string{"parquet", "arrow"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			dir := large(t, format)
			s := serveDataset(t, dir, "refresh: 100ms")
			python(t, `
uri, name, root, ext = sys.argv[1], "d", Path(sys.argv[2]), sys.argv[3]
files = sorted(root.iterdir())
backup = {f: f.read_bytes() for f in files}

def truncate(f): os.truncate(f, f.stat().st_size // 2)
def empty(f): f.write_bytes(b"")
def overwrite(f):
    with open(f, "r+b") as h:
        h.write(os.urandom(f.stat().st_size))
def replace(f):
    tmp = f.with_suffix(".tmp"); tmp.write_bytes(os.urandom(1000)); tmp.rename(f)
def delete(f): f.unlink()

for change in (truncate, empty, overwrite, replace, delete):
    client = fl.connect(uri)
    info = client.get_flight_info(request(dataset=name))
    ids, error = [], None
    try:
        for i, chunk in enumerate(client.do_get(info.endpoints[0].ticket)):
            ids.append(chunk.data["id"].to_numpy())
            if i == 2:
                for f in files:
                    change(f)
    except pa.ArrowException as e:
        error = str(e)
    ids = np.concatenate(ids)
    assert np.array_equal(ids, np.arange(len(ids))), f"{change.__name__}: other rows"
    assert error or len(ids) == 200_000, f"{change.__name__}: a short stream without an error"
    if error:
        assert ext in error and 'dataset "d"' in error, error
    for f, data in backup.items():
        if f.exists(): f.unlink()
        f.write_bytes(data)
    deadline = time.time() + 60
    while True:  # the next snapshot is whole again
        try:
            if read(fl.connect(uri), dataset=name, columns=["id"]).num_rows == 200_000: break
        except pa.ArrowException:
            pass
        assert time.time() < deadline, change.__name__
        time.sleep(0.5)
`, s.uri, dir, format)
			if log := s.log.String(); !strings.Contains(log, `"msg":"stream ended early"`) || !strings.Contains(log, "no longer the version listed") {
				t.Errorf("the log does not say why streams ended:\n%s", log)
			}
		})
	}
}

func TestDrain(t *testing.T) {
	dir := large(t, "arrow")
	s := serve(t, dir)
	ready := filepath.Join(t.TempDir(), "ready")
	done := make(chan string, 1)
	go func() { // joined through done
		done <- python(t, `
client, other = fl.connect(sys.argv[1]), fl.connect(sys.argv[1])
info = client.get_flight_info(request(dataset=sys.argv[2]))
rows = 0
for i, chunk in enumerate(client.do_get(info.endpoints[0].ticket)):
    rows += chunk.data.num_rows
    if i == 1:
        Path(sys.argv[3]).touch()
        time.sleep(1.5)
        try:
            other.do_get(info.endpoints[0].ticket).read_all()
            raise SystemExit("a draining gateway took a new stream")
        except fl.FlightUnavailableError:
            pass
assert rows == 200_000, rows
`, s.uri, filepath.Base(dir), ready)
	}()
	waitFor(t, ready)
	s.drain()
	<-done
	s.stop()
}

// waitFor waits until a file is there.
func waitFor(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if matches, _ := filepath.Glob(path); len(matches) > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come", path)
		}
	}
}

func TestDrainEndsSlowStreams(t *testing.T) {
	dir := large(t, "arrow")
	s := serveDataset(t, dir, "limits: {drain_timeout: 1s}")
	ready := filepath.Join(t.TempDir(), "ready")
	done := make(chan string, 1)
	go func() { // joined through done
		done <- python(t, `
client = fl.connect(sys.argv[1])
info = client.get_flight_info(request(dataset="d"))
ids, cursor, meta = [], None, None
try:
    for i, chunk in enumerate(client.do_get(info.endpoints[0].ticket)):
        ids.append(chunk.data["id"].to_numpy())
        cursor = json.loads(chunk.app_metadata.to_pybytes())["cursor"]
        Path(sys.argv[2]).touch()
        time.sleep(0.5)
    raise SystemExit("the stream was not ended")
except fl.FlightUnavailableError as e:
    assert "after" in str(e), e
ids = np.concatenate(ids)
assert np.array_equal(ids, np.arange(len(ids))) and cursor.endswith(f":{len(ids)}"), cursor
`, s.uri, ready)
	}()
	waitFor(t, ready)
	s.drain()
	<-done
	s.stop()
}

// Clients that vanish leave nothing behind; the harness checks leases and memory when the gateway ends.
func TestB36VanishingClients(t *testing.T) {
	dir := large(t, "arrow")
	s := serve(t, dir)
	python(t, `
import signal, subprocess, urllib.request
script = '''
import json, sys, pyarrow.flight as fl
client = fl.connect(sys.argv[1])
readers = []
for i in range(10):
    c = fl.connect(sys.argv[1])
    r = c.do_get(fl.Ticket(json.dumps({"dataset": sys.argv[2]}).encode()))
    r.read_chunk()
    readers.append((c, r))
print("reading", flush=True)
sys.stdin.read()
'''
for wave in range(5):
    children = [subprocess.Popen([sys.executable, "-c", script, *sys.argv[1:]], stdout=subprocess.PIPE, stdin=subprocess.PIPE) for _ in range(4)]
    for child in children:
        assert child.stdout.readline() == b"reading\n"
        child.send_signal(signal.SIGKILL)
        child.wait()
client = fl.connect(sys.argv[1])
for i in range(50):  # and some that only cancel
    reader = client.do_get(fl.Ticket(json.dumps({"dataset": sys.argv[2]}).encode()))
    reader.read_chunk()
    reader.cancel()
deadline = time.time() + 30
while True:
    stats = json.loads(list(client.do_action(("headrace.stats", b"")))[0].body.to_pybytes())
    page = urllib.request.urlopen(sys.argv[3] + "/metrics").read().decode()
    reserved, lent = (next(line.split()[-1] for line in page.splitlines() if line.startswith(f"headrace_memory_{name}_bytes")) for name in ("reserved", "lent"))
    if stats["streams"] == 0 and stats["memory"]["used"]["batches"] == 0 and reserved == lent:
        break
    assert time.time() < deadline, (stats, reserved, lent)
    time.sleep(0.1)
`, s.uri, filepath.Base(dir), s.admin)
	if strings.Contains(s.log.String(), "stream ended early") {
		t.Errorf("clients that left are logged as faults:\n%s", s.log)
	}
}

func TestB38ClientsMayPing(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for half a minute")
	}
	dir := large(t, "arrow")
	s := serve(t, dir)
	python(t, `
options = [("grpc.keepalive_time_ms", 10_000), ("grpc.keepalive_permit_without_calls", 1), ("grpc.http2.max_pings_without_data", 0)]
client = fl.connect(sys.argv[1], generic_options=options)
reader = client.do_get(fl.Ticket(json.dumps({"dataset": sys.argv[2]}).encode()))
rows = reader.read_chunk().data.num_rows
time.sleep(45)  # four pings; strangers to this rule are cut off at the third
for chunk in reader:
    rows += chunk.data.num_rows
assert rows == 200_000, rows
`, s.uri, filepath.Base(dir))
}

func TestCancelFlightInfo(t *testing.T) {
	dir := large(t, "arrow")
	s := serve(t, dir)
	python(t, `
client = fl.connect(sys.argv[1])
info = client.get_flight_info(request(dataset=sys.argv[2]))
reader = client.do_get(info.endpoints[0].ticket)
reader.read_chunk()
assert {a.type for a in client.list_actions()} == {"CancelFlightInfo", "headrace.forecast", "headrace.plan", "headrace.receipts", "headrace.shm", "headrace.stats", "headrace.warm"}

def field(n, b):  # a length-delimited protobuf field
    size, out = len(b), bytes([n << 3 | 2])
    while size > 127:
        out, size = out + bytes([size & 127 | 128]), size >> 7
    return out + bytes([size]) + b

body = field(1, info.serialize())
assert [r.body.to_pybytes() for r in client.do_action(("CancelFlightInfo", body))]
try:
    while True:
        reader.read_chunk()
except StopIteration:
    raise SystemExit("a cancelled stream ended well")
except fl.FlightCancelledError:
    pass
assert client.do_get(info.endpoints[0].ticket).read_all().num_rows == 200_000, "tickets stay redeemable"
try:
    list(client.do_action(("CancelFlightInfo", body)))
    raise SystemExit("nothing was there to cancel")
except KeyError:
    pass
`, s.uri, filepath.Base(dir))
}

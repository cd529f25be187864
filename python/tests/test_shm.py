"""Streams through shared memory are those over Flight, and what is kept of them never changes."""

import datetime
import gc
import hashlib
import itertools
import os
import re
import signal
import sys
import time
import urllib.request
import warnings
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace
from conftest import Served, launch, run
from headrace import connection

ROWS = 1003
ALL = 520  # batches of 10 rows, far more than a ring has slots

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory can be handed over on Linux alone")


def kinds(rows: int) -> pa.Table:
    """A column of each kind."""
    random = np.random.default_rng(1)
    number = np.arange(rows)
    some = [n % 7 != 3 for n in range(rows)]

    def nulls(values: list[Any]) -> list[Any]:
        return [value if here else None for value, here in zip(values, some, strict=True)]

    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(random.random((rows, 2, 3)))
    day = datetime.date(2020, 1, 1)
    return pa.table(
        {
            "id": number,
            "small": pa.array(nulls([n % 100 for n in range(rows)]), pa.int8()),
            "half": pa.array(random.random(rows).astype(np.float16)),
            "bool": nulls([n % 3 == 0 for n in range(rows)]),
            "text": nulls([f"row {n}" * (n % 5) for n in range(rows)]),
            "long": pa.array([f"row {n}" for n in range(rows)], pa.large_string()),
            "bytes": nulls([b"%d" % n * (n % 4) for n in range(rows)]),
            "fixed": pa.array([b"%04d" % n for n in range(rows)], pa.binary(4)),
            "list": pa.array(nulls([list(range(n % 4)) for n in range(rows)]), pa.list_(pa.int32())),
            "lists": [[[n] * (n % 3)] * (n % 2) for n in range(rows)],
            "pair": pa.FixedSizeListArray.from_arrays(random.random(2 * rows), 2),
            "tensor": tensors,
            "struct": nulls([{"a": n, "b": None if n % 2 else f"{n}"} for n in range(rows)]),
            "nothing": pa.nulls(rows, pa.int32()),
            "price": [Decimal(n) / 4 for n in range(rows)],
            "when": pa.array(number, pa.timestamp("us", "UTC")),
            "day": nulls([day + datetime.timedelta(n) for n in range(rows)]),
            "word": pa.array(nulls([f"word {n % 9}" for n in range(rows)])).dictionary_encode(),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data")
    for name in ("kinds", "arrow", "many", "huge"):
        (path / name).mkdir()
    pq.write_table(kinds(ROWS), path / "kinds" / "0.parquet", row_group_size=200)
    table = kinds(ROWS)
    with pa.OSFile(str(path / "arrow" / "0.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table, max_chunksize=200)
    number = np.arange(10 * ALL)
    noise = np.random.default_rng(2).integers(0, 256, (10 * ALL, 500), dtype=np.uint8)
    columns = {"id": number, "noise": pa.FixedSizeListArray.from_arrays(pa.array(noise.ravel()), 500)}
    pq.write_table(pa.table(columns), path / "many" / "0.parquet", row_group_size=400, compression=None)
    lengths = [10, 70, 1, 30, 66, 66, 0, 5]  # MiB; a slot has 65
    blobs = pa.table({"id": range(len(lengths)), "blob": [bytes([n]) * (n << 20) for n in lengths]})
    pq.write_table(blobs, path / "huge" / "0.parquet", row_group_size=1, compression=None, use_dictionary=False)
    return path


def mark(batch: pa.RecordBatch) -> str:
    """What the bytes of a batch come to."""
    digest = hashlib.sha256()
    for column in batch.columns:
        for buffer in column.buffers():
            digest.update(b"" if buffer is None else memoryview(buffer))
    return digest.hexdigest()


def used(server: Served) -> Counter[str]:
    """The gateway's memory by kind, that of its clients' batches among them."""
    with urllib.request.urlopen(f"{server.admin}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = re.findall(r'^headrace_memory_bytes\{.*?kind="(\w+)".*\} (\S+)$', text, re.MULTILINE)
    return Counter({kind: int(float(number)) for kind, number in found})


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


SHUFFLED = {"shuffle": True, "seed": 3, "window_blocks": 2}


@pytest.mark.parametrize("name", ["kinds", "arrow"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_size": 64, "num_epochs": 3},
        {"batch_size": 1},
        {"batch_size": 50, "num_epochs": 3, "row_id": True, **SHUFFLED},
        {"batch_size": 50, "shuffle": "full", "seed": 3},
        {"batch_size": 300, "max_message_bytes": 8192, "num_epochs": 2, **SHUFFLED},
        {"batch_size": 300, "max_message_bytes": 8192, "compression": "lz4"},
        {"batch_size": 50, "compression": "zstd", **SHUFFLED},
        {"global_batch_size": 501, "world_size": 4, "rank": 3, "tail": "keep"},  # the last part has no rows
        {"batch_size": 64, "rank": 0, "world_size": 2, "tail": "pad", "columns": ["id", ["struct", "b"]]},
    ],
    ids=str,
)
def test_everything_is_as_over_flight(server: Served, name: str, options: dict[str, Any]) -> None:
    with headrace.connect(server.uri) as near, headrace.connect(server.uri, shared_memory=False) as far:
        one, other = near.stream(name, **options), far.stream(name, **options)
        for batch, same in zip(one, other, strict=True):
            batch.validate(full=True)
            assert batch.equals(same, check_metadata=True)
            assert batch.schema.equals(one.schema, check_metadata=True)
            del batch, same
            for fact in ("cursor", "epoch", "uncommitted", "sum", "receipt"):
                assert getattr(one, fact) == getattr(other, fact)
        left, right = one.stats(), other.stats()
        assert one.receipt is not None
    assert left.shared == left.bytes > 0 == right.shared
    assert (left.batches, left.rows) == (right.batches, right.rows)


def test_messages_that_fit_no_slot_come_over_flight_in_turn(server: Served) -> None:
    with headrace.connect(server.uri) as client, client.stream("huge", max_message_bytes=64 << 20) as stream:
        lengths, shared = [], [0]
        for batch in stream:
            lengths += [len(blob.as_buffer()) >> 20 for blob in batch["blob"]]
            shared.append(stream.stats().shared)
    assert lengths == [10, 70, 1, 30, 66, 66, 0, 5]
    came = [after > before for before, after in itertools.pairwise(shared)]
    assert came[:3] == [True, False, True]
    # Of the others, those that fit need not: a large one's slot may be in use for as long as the gateway has no other.
    assert not any(slot for slot, n in zip(came, lengths, strict=True) if n > 65)


@pytest.mark.parametrize("end", ["left open", "closed", "closed early", "drained", "killed"])
def test_no_byte_of_a_batch_that_is_kept_ever_changes(own: Served, end: str) -> None:
    with headrace.connect(own.uri) as client:
        stream = client.stream("many", batch_size=10)
        batches = list(itertools.islice(stream, 100 if end == "closed early" else None))
        marks = [mark(batch) for batch in batches]
        told = stream.stats()
        if end == "left open":  # and another takes what memory there is
            assert [mark(batch) for batch in client.stream("many", batch_size=10)][: len(marks)] == marks
        if "closed" in end:
            stream.close()
            # Slots that are in use stay with the stream that has them, and others have others.
            assert [mark(batch) for batch in client.stream("many", batch_size=10)][: len(marks)] == marks
    assert 0 < told.shared < told.bytes
    del stream, client
    if end in ("drained", "killed"):
        own.stop(signal.SIGTERM if end == "drained" else signal.SIGKILL)
    assert [mark(batch) for batch in batches] == marks
    ids = [row for batch in batches for row in batch["id"].to_pylist()]
    assert ids == list(range(10 * (100 if end == "closed early" else ALL)))


@pytest.mark.parametrize("early", [False, True])
def test_what_is_given_back_after_the_end_is_had_back(own: Served, early: bool) -> None:
    with headrace.connect(own.uri) as client, client.stream("many", batch_size=300) as stream:
        batches = list(itertools.islice(stream, 12 if early else None))
        first = mark(batches[0])
    assert stream.stats().shared > 0
    most = used(own)["batches"]
    del batches[1:]
    wait_until(lambda: 0 < used(own)["batches"] <= most // 2)  # what nobody took counts too
    assert mark(batches[0]) == first
    del batches, stream
    wait_until(lambda: used(own)["batches"] == 0)


def test_slots_are_used_again_in_any_order(server: Served) -> None:
    random = np.random.default_rng(3)
    with headrace.connect(server.uri) as client:
        stream = client.stream("many", batch_size=10)
        held: list[tuple[pa.RecordBatch, str]] = []
        rows: list[int] = []
        for batch in stream:
            rows += batch["id"].to_pylist()
            held.append((batch, mark(batch)))
            while len(held) > random.integers(1, 16):
                old, was = held.pop(int(random.integers(len(held))))
                assert mark(old) == was
    assert rows == list(range(10 * ALL))
    assert stream.stats().shared > 0.9 * stream.stats().bytes


def test_a_slice_or_a_column_keeps_the_slot(server: Served) -> None:
    with headrace.connect(server.uri) as client, client.stream("many", batch_size=10) as stream:
        parts: list[tuple[Any, list[int]]] = []
        for number, batch in enumerate(itertools.islice(stream, 60)):
            want = batch["id"].to_pylist()
            column = batch["id"][3:5] if number % 2 else batch["id"].to_numpy()[3:5]
            parts.append((column, want[3:5]))
        del batch
        assert [column.tolist() for column, _ in parts] == [want for _, want in parts]


FORK = """
import gc, hashlib, itertools, multiprocessing, os, sys, headrace
from test_shm import mark

uri, how = sys.argv[1:]
client = headrace.connect(uri)
stream = client.stream("many", batch_size=10)
held = list(itertools.islice(stream, 9))
marks = [mark(batch) for batch in held]
rows = [row for batch in held for row in batch["id"].to_pylist()]
go, gone = os.pipe(), os.pipe()

def child():
    # It has ended before the parent reads on, drops what it has, or looks while the parent has read on.
    if how != "ends":
        os.close(go[1])
        os.read(go[0], 1)
    same = [mark(batch) for batch in held] == marks
    held.clear()
    gc.collect()
    os.write(gone[1], b"y" if same else b"n")

if how == "multiprocessing":
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
else:
    pid = os.fork()
    if pid == 0:
        child()
        sys.exit()
if how == "ends":
    assert os.waitpid(pid, 0)[1] == 0
keep = held[:4]
held.clear()
last = None
for batch in stream:
    rows += batch["id"].to_pylist()
    last = batch
assert rows == list(range(5200)), rows
assert stream.stats().resumed == 0
assert stream.stats().shared > 0.9 * stream.stats().bytes  # other slots are there
client.close()
os.close(go[0]), os.close(go[1])
assert os.read(gone[0], 1) == b"y", "the child saw other bytes"
if how == "multiprocessing":
    process.join()
    assert process.exitcode == 0
elif how == "waits":
    assert os.waitpid(pid, 0)[1] == 0
assert [mark(batch) for batch in keep] == marks[:4]
assert last["id"].to_pylist() == list(range(5190, 5200))
print("well")
"""


@pytest.mark.parametrize("how", ["ends", "waits", "multiprocessing"])
def test_a_fork_while_batches_are_held(server: Served, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    assert run(FORK, server.uri, how) == "well\n"


def test_many_streams_leave_nothing(own: Served) -> None:
    def left(pid: str) -> tuple[int, int]:
        maps = Path(f"/proc/{pid}/maps").read_text().count("memfd:headrace")
        links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()]
        return maps, sum("memfd:headrace" in link or "socket" in link for link in links)

    gateway = str(own.child.pid)
    with headrace.connect(own.uri) as client, warnings.catch_warnings():
        warnings.simplefilter("error")
        client.datasets()
        gc.collect()  # what other tests left
        before, there = left("self"), left(gateway)
        for number in range(200):
            stream = client.stream("many", batch_size=100)
            batches = list(itertools.islice(stream, number % 4 if number % 2 else None))
            if number % 3:
                stream.close()
            if number % 5 == 0:
                batches.append(batches)  # for the collector to find
            del stream, batches
        gc.collect()
        wait_until(lambda: all(now <= then for now, then in zip(left("self"), before, strict=True)))
        wait_until(lambda: left(gateway) == there)
        wait_until(lambda: used(own)["batches"] == 0)


def test_a_stream_in_a_cycle_warns_of_nothing(server: Served) -> None:
    gc.disable()  # the collector is to find it all at once
    try:
        with headrace.connect(server.uri) as client, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            stream = client.stream("kinds", batch_size=ROWS, columns=["id"])
            next(stream)
            reader: Any = stream._reader
            reader._thread.join(30)  # the gateway has no more to send
            ring: list[Any] = [stream]
            ring.append(ring)
            del stream, ring, reader
            gc.collect()
    finally:
        gc.enable()
    assert caught == []


EXIT = """
import itertools, sys, headrace
client = headrace.connect(sys.argv[1])
streams = [client.stream("many", batch_size=10) for _ in range(3)]
batches = [list(itertools.islice(stream, 5 * n)) for n, stream in enumerate(streams)]
whole = list(client.stream("many", batch_size=500))
cycle = [whole[0].column(0), streams[1]]
cycle.append(cycle)
"""


def test_a_process_may_end_with_batches_and_streams(server: Served) -> None:
    for _ in range(3):
        assert run(EXIT, server.uri) == ""


READ_ON = """
import sys, threading, time, headrace
client = headrace.connect(sys.argv[1], shared_memory=sys.argv[2] == "shared")
reading = threading.Barrier(5)
def read():
    stream = client.stream("many", batch_size=10, num_epochs=-1)
    next(stream)
    reading.wait()
    for batch in stream:
        pass
def ask():
    reading.wait()
    while True:
        client.datasets()
for use in (read, read, read, ask):
    threading.Thread(target=use, daemon=True).start()
reading.wait()
time.sleep(float(sys.argv[3]))
"""


@pytest.mark.parametrize("memory", ["shared", "own"])
def test_daemon_threads_may_read_when_the_process_ends(server: Served, memory: str) -> None:
    for wait in (0, 0.003, 0.01, 0.02, 0.05):
        assert run(READ_ON, server.uri, memory, str(wait)) == ""


JOIN = """
import atexit, sys, threading
lock = threading.Lock()
def stop():
    global stopped
    stopped = True
    with lock:
        pass
    thread.join()
atexit.register(stop)
import headrace
stopped = False
client = headrace.connect(sys.argv[1], shared_memory=sys.argv[2] == "shared")
stream = client.stream("many", batch_size=10, num_epochs=-1)
next(stream)
def read():
    while not stopped:
        with lock:
            next(stream)
thread = threading.Thread(target=read, daemon=True)
thread.start()
"""


@pytest.mark.parametrize("memory", ["shared", "own"])
def test_handlers_at_the_exit_may_wait_for_daemon_threads(server: Served, memory: str) -> None:
    for code in (JOIN, JOIN.replace("import headrace", "").replace("import", "import headrace,", 1)):
        assert run(code, server.uri, memory) == ""


OPEN = """
import sys, threading, time, headrace
client = headrace.connect(sys.argv[1], shared_memory=sys.argv[2] == "shared")
client.datasets()
def read():
    while True:
        next(client.stream("many", batch_size=10, num_epochs=-1))
for _ in range(4):
    threading.Thread(target=read, daemon=True).start()
time.sleep(float(sys.argv[3]))
"""


@pytest.mark.parametrize("memory", ["shared", "own"])
def test_daemon_threads_may_open_and_close_streams_when_the_process_ends(server: Served, memory: str) -> None:
    for wait in range(0, 30, 3):
        assert run(OPEN, server.uri, memory, str(wait / 1000)) == ""


TOKEN = """
import sys, threading, time, headrace
asked = threading.Barrier(3)
def token():
    if threading.current_thread() is not threading.main_thread():
        asked.wait()
        time.sleep(100)
    return "word"
client = headrace.connect(sys.argv[1], token=token)
stream = client.stream("many")
for use in (client.datasets, lambda: next(stream)):
    threading.Thread(target=use, daemon=True).start()
asked.wait()
"""


def test_the_end_does_not_wait_for_a_token(server: Served) -> None:
    began = time.monotonic()
    assert run(TOKEN, server.uri) == ""
    assert time.monotonic() - began < connection.PATIENCE


def test_a_gateway_keeps_its_bound_however_much_is_kept(binary: str, tmp_path: Path) -> None:
    rows = 3000
    noise = np.random.default_rng(4).integers(0, 256, rows * 50_000, dtype=np.uint8)
    columns = {"id": range(rows), "noise": pa.FixedSizeListArray.from_arrays(pa.array(noise), 50_000)}
    table = pa.table(columns)
    with pa.OSFile(str(tmp_path / "0.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table, max_chunksize=50)
    limit = 256 << 20
    own = launch(binary, tmp_path, "--memory", str(limit))
    try:
        with headrace.connect(own.uri) as client:
            (name,) = (dataset.name for dataset in client.datasets())
            kept: list[pa.RecordBatch] = []
            marks: list[str] = []
            shared = 0
            for number in range(3):
                with client.stream(name, batch_size=100, shuffle=True, seed=number, window_blocks=2) as stream:
                    for batch in itertools.islice(stream, 30):
                        if len(kept) < 10 * (number + 1):
                            kept.append(batch)
                            marks.append(mark(batch))
                        assert sum(used(own)[kind] for kind in ("batches", "frames")) <= limit
                        assert memory(own.child.pid, "RssShmem") <= limit
                    shared += stream.stats().shared
            assert shared > 0
            assert [mark(batch) for batch in kept] == marks
            held = used(own)["batches"]
            del kept[1:]
            wait_until(lambda: 0 < used(own)["batches"] < held // 2)
            assert mark(kept[0]) == marks[0]
    finally:
        own.stop()


def memory(pid: int, kind: str) -> int:
    """Bytes of a kind that a process has."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(kind))
    return int(line.split()[1]) << 10

"""What a stream promises: each row once, in order, whatever happens to the connection."""

import dataclasses
import itertools
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyarrow import flight

import headrace
from conftest import Start, run
from gateway import SCHEMA, SNAPSHOT, Data, Fault, Gateway, Messages, total


def rows(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [row for batch in batches for row in batch["id"].to_pylist()]


def once(at: int, error: Exception) -> Fault:
    """Fails before message `at`, the first time."""
    errors = [error]

    def fault(message: int) -> None:
        if message == at and errors:
            raise errors.pop()

    return fault


def unavailable() -> Exception:
    error: Exception = flight.FlightUnavailableError("draining")
    return error


def test_reads_every_row_once(gateway: Gateway) -> None:
    with headrace.connect(gateway.uri) as client, client.stream("team/numbers", columns=["id", ["name"]]) as stream:
        assert stream.schema.equals(SCHEMA, check_metadata=True)
        assert (stream.cursor, stream.snapshot) == (None, SNAPSHOT)
        assert rows(stream) == list(range(100))
        assert stream.sum == total(range(100))
        assert stream.cursor is not None
        assert stream.cursor.endswith(":1:0")
        stats = stream.stats()
    assert (stats.rows, stats.batches, stats.resumed) == (100, 10, 0)
    assert stats.bytes > 800
    assert list(stream) == []


@pytest.mark.parametrize("part", [1, 3, 10])
@pytest.mark.parametrize("part_again", [None, 2, 7])
def test_resumes_exactly_once_wherever_it_is_cut(gateway: Gateway, part: int, part_again: int | None) -> None:
    # Steps of 10 rows in messages of 1, 3 or 10, which a stream that resumes may cut elsewhere.
    gateway.data = Data(rows=30, part=part, part_again=part_again)
    messages = 3 * -(-10 // part)
    with headrace.connect(gateway.uri) as client:
        for at in range(messages):
            gateway.calls.messages = 0
            gateway.fault = once(at, unavailable())
            with client.stream("team/numbers") as stream:
                assert rows(stream) == list(range(30)), f"cut before message {at}"
                assert stream.sum == total(range(30))
                assert (stream.stats().resumed, stream.uncommitted) == (1, 0)


def test_resumes_from_the_cursor_with_the_same_request(gateway: Gateway) -> None:
    gateway.fault = once(4, unavailable())
    with headrace.connect(gateway.uri) as client:
        stream = client.stream("team/numbers", columns=["id", "name"], batch_size=10)
        assert rows(stream) == list(range(100))
    first, second = gateway.calls.requests
    assert first == {}
    assert second.pop("after").endswith(":0:40")
    assert {"dataset", "columns", "batch_size", "snapshot", "flight"} == set(second)


def test_the_cursor_waits_for_the_whole_step(gateway: Gateway) -> None:
    gateway.data = Data(rows=20, part=4)
    with headrace.connect(gateway.uri) as client:
        stream = client.stream("team/numbers")
        seen = [(stream.uncommitted, stream.cursor and stream.cursor[-4:], stream.sum) for _ in stream]
    none, ten, twenty = total(range(0)), total(range(10)), total(range(20))
    assert seen == [
        (4, None, none),
        (8, None, none),
        (0, "0:10", ten),
        (4, "0:10", ten),
        (8, "0:10", ten),
        (0, ":1:0", twenty),
    ]


def test_goes_on_in_another_process(gateway: Gateway) -> None:
    with headrace.connect(gateway.uri) as client:
        with client.stream("team/numbers") as stream:
            begin = rows(itertools.islice(stream, 3))
            cursor, snapshot, before = stream.cursor, stream.snapshot, int(stream.sum, 16)
        with client.stream("team/numbers", snapshot=snapshot, after=cursor) as stream:
            rest = rows(stream)
            assert begin + rest == list(range(100))
            assert f"{(before + int(stream.sum, 16)) % (1 << 128):032x}" == total(range(100))
        with client.stream("team/numbers", snapshot=snapshot, after=stream.cursor) as stream:
            assert list(stream) == []
            assert stream.sum == total(range(0))


def test_receipts_of_epochs_over_resumes(gateway: Gateway) -> None:
    gateway.data = Data(rows=20, part=4, epochs=3)
    want = headrace.Receipt(1, 20, 2, 0, 0, total(range(20)))
    with headrace.connect(gateway.uri) as client:
        for at in range(18):
            gateway.calls.messages = 0
            gateway.fault = once(at, unavailable())
            stream = client.stream("team/numbers", num_epochs=3)
            assert stream.receipt is None
            got: list[int] = []
            receipts: list[headrace.Receipt | None] = []
            for number, piece in enumerate(stream):
                assert stream.epoch == number // 6
                got += piece["id"].to_pylist()
                if stream.receipt not in receipts:
                    receipts.append(stream.receipt)
            assert got == 3 * list(range(20)), f"cut before message {at}"
            ended = [r for r in receipts if r is not None]
            assert ended == [dataclasses.replace(want, epoch=epoch) for epoch in range(3)]
            assert int(stream.sum, 16) == 3 * int(want.sum, 16) % (1 << 128)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rows": 29}, "receipt of epoch 0"),
        ({"steps": 4}, "receipt of epoch 0"),
        ({"sum": total(range(29))}, "receipt of epoch 0"),
        (None, "without a receipt"),
    ],
)
def test_a_receipt_that_differs_is_an_error(gateway: Gateway, change: dict[str, object] | None, words: str) -> None:
    gateway.data = Data(rows=30, part=4)

    def changed(messages: Messages) -> Messages:
        for data, text in messages:
            meta = json.loads(text)
            if "receipt" in meta:
                meta["receipt"] = meta["receipt"] | (change or {})
                if change is None:
                    del meta["receipt"]
            yield data, json.dumps(meta).encode()

    gateway.messages = changed
    with headrace.connect(gateway.uri) as client:
        stream = client.stream("team/numbers")
        got = [row for piece in itertools.islice(stream, 8) for row in piece["id"].to_pylist()]
        assert got == list(range(28))
        with pytest.raises(headrace.DataError, match=words):
            next(stream)
        assert (stream.uncommitted, stream.receipt) == (8, None)
        gateway.messages = lambda messages: messages  # whoever goes on nevertheless loses nothing
        assert rows(stream) == [28, 29]
        assert stream.sum == total(range(30))


@pytest.mark.parametrize("keep", [[0, 1, 3, 4], [0, 1, 1, 2], [0, 2, 1, 3]])
def test_a_step_out_of_turn_is_an_error(gateway: Gateway, keep: list[int]) -> None:
    def shuffled(messages: Messages) -> Messages:
        all_of_them = list(messages)
        for i in keep:
            yield all_of_them[i]

    gateway.messages = shuffled
    with headrace.connect(gateway.uri) as client, pytest.raises(headrace.DataError, match="was due"):
        rows(client.stream("team/numbers"))


def test_cut_after_the_last_batch(gateway: Gateway) -> None:
    cut = once(0, unavailable())

    def broken(messages: Messages) -> Messages:
        yield from messages
        cut(0)

    gateway.messages = broken
    with headrace.connect(gateway.uri) as client:
        stream = client.stream("team/numbers")
        assert rows(stream) == list(range(100))
        assert stream.stats().resumed == 1


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (flight.FlightUnauthenticatedError("expired"), headrace.AuthError),
        (flight.FlightUnauthorizedError("denied"), headrace.AuthError),
        (pa.ArrowKeyError("gone"), headrace.NotFoundError),
        (pa.ArrowNotImplementedError("not served"), headrace.RequestError),
        (flight.FlightInternalError("our bug, id 7"), headrace.HeadraceError),
        (flight.FlightCancelledError("cancelled by its owner"), headrace.HeadraceError),
    ],
)
def test_other_errors_end_the_stream_and_can_be_gone_on_from(
    gateway: Gateway, error: Exception, kind: type[headrace.HeadraceError]
) -> None:
    gateway.fault = once(5, error)
    with headrace.connect(gateway.uri) as client:
        stream = client.stream("team/numbers")
        begin = rows(itertools.islice(stream, 5))
        with pytest.raises(kind, match="^" + str(error).strip("'")) as caught:
            next(stream)
        assert type(caught.value) is kind
        assert begin + rows(stream) == list(range(100))


def test_gives_up_after_retry_for(gateway: Gateway) -> None:
    def fault(message: int) -> None:
        if message >= 5:
            raise unavailable()

    gateway.fault = fault
    with headrace.connect(gateway.uri, retry_for=0.2) as client:
        stream = client.stream("team/numbers")
        assert rows(itertools.islice(stream, 5)) == list(range(50))
        with pytest.raises(headrace.UnavailableError, match="draining") as caught:
            next(stream)
    assert "tries" in caught.value.__notes__[0]


def test_repeated_parts_are_no_progress(gateway: Gateway) -> None:
    # Every stream breaks before its fourth message; that the first three come again must not renew the time left.
    gateway.data = Data(rows=10, part=2)

    def fault(message: int) -> None:
        if message % 4 == 3:
            raise unavailable()

    gateway.fault = fault
    with headrace.connect(gateway.uri, retry_for=0.3) as client:
        stream = client.stream("team/numbers")
        assert rows(itertools.islice(stream, 3)) == list(range(6))
        with pytest.raises(headrace.UnavailableError):
            next(stream)
        assert stream.cursor is None


def test_a_short_stream_is_an_error(gateway: Gateway) -> None:
    gateway.messages = lambda messages: itertools.islice(messages, 7)
    with headrace.connect(gateway.uri) as client:
        stream = client.stream("team/numbers")
        with pytest.raises(headrace.DataError, match="after 70 of 100 rows"):
            rows(stream)


def test_another_schema_is_an_error(gateway: Gateway) -> None:
    gateway.schema = SCHEMA.with_metadata({"origin": "elsewhere"})
    with headrace.connect(gateway.uri) as client, pytest.raises(headrace.DataError, match="schema"):
        next(client.stream("team/numbers"))


def test_killed_and_restarted_gateway(process: Start) -> None:
    server, port = process("--rows", "20000")
    with headrace.connect(f"127.0.0.1:{port}") as client:
        stream = client.stream("team/numbers")
        got = rows(itertools.islice(stream, 3))
        server.send_signal(signal.SIGKILL)
        server.wait()
        # What had already crossed the wire may still come; then the connection is found dead.
        process("--rows", "20000", "--port", str(port))
        got += rows(stream)
        assert got == list(range(20000))
        assert stream.sum == total(range(20000))
        assert stream.stats().resumed >= 1


def test_a_gateway_that_brings_nothing_is_given_up(process: Start) -> None:
    _, port = process("--hang-at", "5")
    with headrace.connect(f"127.0.0.1:{port}", read_timeout=0.5) as client:
        stream = client.stream("team/numbers")
        assert rows(stream) == list(range(100))
        assert stream.stats().resumed == 1


def test_a_closed_stream_ends(gateway: Gateway) -> None:
    with headrace.connect(gateway.uri) as client:
        stream = client.stream("team/numbers")
        next(stream)
        stream.close()
        assert list(stream) == []
        stream.close()


def test_an_interrupt_loses_nothing(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    with headrace.connect(gateway.uri) as client:
        stream = client.stream("team/numbers")
        got = rows(itertools.islice(stream, 2))
        assert stream._reader is not None
        read = stream._reader.read

        def interrupted() -> flight.FlightStreamChunk:
            read()
            raise KeyboardInterrupt

        monkeypatch.setattr(stream._reader, "read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(stream)
        assert got + rows(stream) == list(range(100))


def test_an_interrupt_ends_a_wait_at_once(process: Start) -> None:
    _, port = process("--hang-at", "3")
    code = (
        "import sys, headrace\n"
        "for batch in headrace.connect(sys.argv[1]).stream('team/numbers'):\n"
        "    print(batch['id'][0], flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code, f"127.0.0.1:{port}"], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child:
        assert [int(child.stdout.readline()) for _ in range(3)] == [0, 10, 20]
        child.send_signal(signal.SIGINT)
        child.wait(timeout=10)
    assert child.returncode in (130, -signal.SIGINT)


def test_a_process_may_end_with_a_stream_open(process: Start) -> None:
    _, port = process("--hang-at", "3")
    code = (
        "import itertools, sys, threading, headrace\n"
        "stream = headrace.connect(sys.argv[1]).stream('team/numbers')\n"
        "print(sum(batch.num_rows for batch in itertools.islice(stream, 3)), threading.active_count())\n"
    )
    assert run(code, f"127.0.0.1:{port}") == "30 2\n"


@pytest.mark.parametrize("taken", range(8))
def test_another_thread_may_close_a_stream(gateway: Gateway, taken: int) -> None:
    hold = threading.Event()

    def fault(message: int) -> None:
        if message >= 4:
            hold.wait(60)

    gateway.fault = fault
    got: list[int] = []
    with headrace.connect(gateway.uri) as client:
        stream = client.stream("team/numbers")
        reading = threading.Thread(target=lambda: got.extend(rows(stream)))
        reading.start()
        while stream.stats().batches < min(taken, 3):
            time.sleep(0.001)
        stream.close()
        reading.join(timeout=30)
        assert not reading.is_alive()
    hold.set()
    assert got == list(range(len(got)))


def test_a_closed_stream_leaves_no_thread(gateway: Gateway) -> None:
    before = threading.active_count()
    with headrace.connect(gateway.uri) as client:
        for taken in (1, 5, 100):
            with client.stream("team/numbers") as stream:
                list(itertools.islice(stream, taken))
            assert threading.active_count() == before


def test_b40_a_stream_does_not_cross_a_fork(gateway: Gateway) -> None:
    code = (
        "import os, sys, headrace\n"
        "client = headrace.connect(sys.argv[1])\n"
        "stream = client.stream('team/numbers')\n"
        "next(stream)\n"
        "if os.fork() == 0:\n"
        "    for use in (lambda: next(stream), client.datasets, lambda: headrace.connect(sys.argv[1]).datasets()):\n"
        "        try:\n"
        "            use()\n"
        "        except headrace.HeadraceError as error:\n"
        "            print(error, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "print(sum(batch.num_rows for batch in stream), len(client.datasets()), flush=True)\n"
    )
    out = run(code, gateway.uri).splitlines()
    assert [("forked from" in line or "was forked" in line) for line in out] == [True, True, True, False]
    assert out[3] == "90 3"


def test_b40_a_client_made_before_the_fork_works_in_the_workers(gateway: Gateway) -> None:
    code = (
        "import os, sys, headrace\n"
        "client = headrace.connect(sys.argv[1])\n"
        "for _ in range(2):\n"
        "    if os.fork() == 0:\n"
        "        print(sum(batch.num_rows for batch in client.stream('team/numbers')), flush=True)\n"
        "        os._exit(0)\n"
        "os.wait(), os.wait()\n"
        "print(len(client.datasets()), flush=True)\n"
    )
    assert run(code, gateway.uri).splitlines() == ["100", "100", "3"]


def test_b40_a_forked_child_may_drop_what_it_inherited(gateway: Gateway) -> None:
    code = (
        "import gc, os, sys, headrace\n"
        "for what in ('close', 'free', 'exit'):\n"
        "    client = headrace.connect(sys.argv[1])\n"
        "    client.datasets()\n"
        "    stream = client.stream('team/numbers')\n"
        "    next(stream)\n"
        "    if os.fork() == 0:\n"
        "        if what == 'close':\n"
        "            stream.close(), client.close()\n"
        "        if what == 'free':\n"
        "            del stream, client\n"
        "            gc.collect()\n"
        "        sys.exit(0) if what == 'exit' else os._exit(0)\n"
        "    print(what, os.wait()[1], sum(batch.num_rows for batch in stream), flush=True)\n"
    )
    assert run(code, gateway.uri).splitlines() == ["close 0 90", "free 0 90", "exit 0 90"]


def test_metadata_with_something_behind_it_is_an_error(gateway: Gateway) -> None:
    gateway.messages = lambda messages: ((data, meta + b" {}") for data, meta in messages)
    with headrace.connect(gateway.uri) as client, pytest.raises(json.JSONDecodeError, match="Extra data"):
        next(client.stream("team/numbers"))


def test_metadata_is_json_under_400_bytes(gateway: Gateway) -> None:
    # The double must not drift from the real thing in what the client leans on.
    _, meta = next(gateway._messages(0, 10))
    assert len(meta) < 400
    assert {"cursor", "epoch", "step", "sum", "wait_us"} == set(json.loads(meta))
    *_, (_, meta) = gateway._messages(0, 10)
    assert set(json.loads(meta)["receipt"]) == {"rows", "steps", "padded", "dropped", "sum"}

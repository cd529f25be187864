"""Calls that are not streams: listing, schema, plan, tokens, and errors by what to do about them."""

import json
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import flight

import headrace
from conftest import run
from gateway import PLAN, SCHEMA, SNAPSHOT, Gateway
from headrace import errors
from headrace.connection import read_token
from headrace.stream import encode


def test_datasets(gateway: Gateway) -> None:
    with headrace.connect(gateway.uri) as client:
        whole, broken, half = client.datasets()
        assert [found.name for found in client.datasets("team/")] == ["team/numbers", "team/broken"]
    assert (whole.name, whole.rows, whole.bytes, whole.error) == ("team/numbers", 100, 800, None)
    assert whole.schema == SCHEMA
    assert broken.error == "a.parquet: corrupt: no footer"
    assert broken.schema is None
    assert half.error == "shards that cannot be read: 1 of 3, the first: b.parquet: truncated"


def test_schema_and_plan(gateway: Gateway) -> None:
    with headrace.connect(gateway.uri) as client:
        assert client.schema("team/numbers").equals(SCHEMA, check_metadata=True)
        plan = client.plan("team/numbers", batch_size=7, columns=None)
    assert (plan.plan, plan.snapshot, plan.rows, plan.steps) == (PLAN, SNAPSHOT, 100, 10)
    assert (plan.blocks, plan.bytes, plan.memory, plan.design_effect, plan.good_window) == (10, 800, 80, None, 0)
    assert (plan.schema, plan.fingerprint) == (SCHEMA, "f" * 64)


def test_errors_of_requests(gateway: Gateway) -> None:
    with headrace.connect(gateway.uri) as client:
        with pytest.raises(headrace.NotFoundError, match=r"^no data set secret"):
            client.schema("secret")
        with pytest.raises(headrace.HeadraceError, match="did you mean shuffle"):
            client.stream("team/numbers", shuffel=True)  # type: ignore[call-arg]
        with pytest.raises(headrace.RequestError, match="2 streams: name a rank"):
            client.stream("team/numbers", world_size=2)


def test_options_as_they_go_over_the_wire(gateway: Gateway) -> None:
    seen = []
    ask = gateway._request

    def request(command: bytes) -> dict[str, Any]:
        seen.append(json.loads(command))
        return ask(command)

    gateway._request = request  # type: ignore[method-assign]
    with headrace.connect(gateway.uri) as client:
        client.plan("team/numbers", shuffle=True, seed=7, batch_size=4, split=(1, 0, 9000), tail=None)
        client.plan("team/numbers", shuffle=False, split={"seed": 1, "from": 0, "to": 9000})
        client.plan("team/numbers", shuffle="full", rank=0, world_size=2, worker_id=0, num_workers=3, num_epochs=-1)
    split = {"seed": 1, "from": 0, "to": 9000}
    name = {"dataset": "team/numbers"}
    assert seen == [
        name | {"shuffle": "window", "seed": 7, "batch_size": 4, "split": split},
        name | {"shuffle": "none", "split": split},
        name | {"shuffle": "full", "rank": 0, "world_size": 2, "worker_id": 0, "num_workers": 3, "num_epochs": -1},
    ]


def test_integers_of_numpy() -> None:
    assert encode({"rank": np.int64(3), "shards": ["a"]}) == b'{"rank":3,"shards":["a"]}'
    with pytest.raises(TypeError):
        encode({"rank": object()})


def test_b87_a_rank_of_many_that_names_none_is_warned(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with headrace.connect(gateway.uri) as client:
        with pytest.warns(UserWarning, match="rank 1 of 2.*every rank reads every row") as caught:
            client.stream("team/numbers")
        assert caught[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            client.stream("team/numbers", rank=1, world_size=2, batch_size=10)
            client.stream("team/numbers", rank=0)
            client.plan("team/numbers")
            monkeypatch.setenv("WORLD_SIZE", "1")
            client.stream("team/numbers")


def test_one_root() -> None:
    for name in headrace.__all__:
        kind = getattr(headrace, name)
        if name.endswith("Error"):
            assert issubclass(kind, headrace.HeadraceError)


# As pyarrow words them: one status of each gRPC code from a Go server.
STATUSES = [
    (flight.FlightCancelledError, "Flight cancelled call", headrace.HeadraceError),
    (flight.FlightServerError, "Flight RPC failed", headrace.HeadraceError),
    (pa.ArrowInvalid, "Flight returned invalid argument error", headrace.RequestError),
    (flight.FlightTimedOutError, "Flight returned timeout error", headrace.UnavailableError),
    (pa.ArrowKeyError, "Flight returned not found error", headrace.NotFoundError),
    (pa.ArrowException, "Unknown: Flight returned already exists error", headrace.HeadraceError),
    (flight.FlightUnauthorizedError, "Flight returned unauthorized error", headrace.AuthError),
    (pa.ArrowInvalid, "gRPC returned resource exhausted error", headrace.HeadraceError),
    (pa.ArrowInvalid, "gRPC returned precondition failed error", headrace.PlanChangedError),
    (flight.FlightInternalError, "gRPC returned aborted error", headrace.HeadraceError),
    (pa.ArrowInvalid, "gRPC returned out-of-range error", headrace.RequestError),
    (pa.ArrowNotImplementedError, "Flight returned unimplemented error", headrace.RequestError),
    (flight.FlightInternalError, "Flight returned internal error", headrace.HeadraceError),
    (flight.FlightUnavailableError, "Flight returned unavailable error", headrace.UnavailableError),
    (flight.FlightInternalError, "gRPC returned data loss error", headrace.DataError),
    (flight.FlightUnauthenticatedError, "Flight returned unauthenticated error", headrace.AuthError),
]

# What follows the gateway's words: in a stream, in most calls, and where pyarrow forgets the class.
ENDS = [
    ". gRPC client debug context: CODE:words. Client context: IOError: Server. Detail: TimedOut",
    "",
    ". Detail: Unavailable",
]


@pytest.mark.parametrize(("raised", "begin", "kind"), STATUSES)
@pytest.mark.parametrize("end", ENDS)
def test_translation(raised: type[Exception], begin: str, kind: type[Exception], end: str) -> None:
    words = "a.parquet: it is so. Do this; with message: that"
    middle = " with message: " if begin == "Flight RPC failed" else ", with message: "
    for error in (raised(begin + middle + words + end), OSError(begin + middle + words + end)):
        ours = errors.translate(error)
        assert type(ours) is kind
        assert str(ours) == words


@pytest.mark.parametrize(
    "words", ["Received RST_STREAM with error code 2", "Stream removed", "recvmsg:Connection reset by peer"]
)
@pytest.mark.parametrize(
    "begin", ["Flight returned internal error,", "Flight RPC failed", "Flight returned unavailable error,"]
)
def test_a_broken_connection_is_unavailable(words: str, begin: str) -> None:
    text = f"{begin} with message: {words}. gRPC client debug context: CODE:{words}"
    assert type(errors.translate(flight.FlightInternalError(text))) is headrace.UnavailableError


@pytest.mark.parametrize(
    ("words", "help_"),
    [
        ("Ssl handshake failed (TSI_PROTOCOL_FAILURE): SSL routines::certificate verify failed: expired", "tls_ca="),
        ("Ssl handshake failed: SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED", "tls_ca="),
        ("Peer name 127.0.0.1 is not in peer certificate", "another name"),
        ("Ssl handshake failed (TSI_PROTOCOL_FAILURE): SSL routines::wrong version number", "grpc://"),
    ],
)
def test_what_trying_again_cannot_mend_is_not_unavailable(words: str, help_: str) -> None:
    begin = "Flight returned unavailable error, with message: "
    error = errors.translate(flight.FlightUnavailableError(f"{begin}failed to connect to all addresses; {words}"))
    assert type(error) is headrace.HeadraceError
    assert help_ in str(error)
    assert words in str(error)
    # The gateway's own words, of its store perhaps, are no matter of ours.
    assert type(errors.translate(flight.FlightUnavailableError(begin + words))) is headrace.UnavailableError


def test_without_a_code_the_class_decides() -> None:
    assert type(errors.translate(flight.FlightUnavailableError("draining"))) is headrace.UnavailableError
    assert type(errors.translate(flight.FlightInternalError("bug"))) is headrace.HeadraceError
    assert type(errors.translate(pa.ArrowInvalid("Expected 4 buffers, got 3"))) is headrace.DataError
    assert type(errors.translate(OSError("Invalid flatbuffers message"))) is headrace.DataError


def test_token_forms(gateway: Gateway, tmp_path: Path) -> None:
    gateway.tokens.valid = "one"
    file = tmp_path / "token"
    file.write_text("one\n")
    for token in ("one", "one\n", f"@{file}", file, lambda: "one", lambda: "one\n"):
        with headrace.connect(gateway.uri, token=token) as client:
            assert len(client.datasets()) == 3
            assert next(client.stream("team/numbers")).num_rows == 10
    assert set(gateway.calls.tokens) == {"Bearer one"}
    for bad in ("two", None):
        with headrace.connect(gateway.uri, token=bad) as client, pytest.raises(headrace.AuthError, match="not valid"):
            client.datasets()


def test_a_token_file_is_read_again(gateway: Gateway, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    gateway.tokens.valid = "one"
    with headrace.connect(gateway.uri, token=file) as client:
        stream = client.stream("team/numbers")
        next(stream)
        file.write_text("two")
        gateway.tokens.valid = "two"
        assert len(client.datasets()) == 3
        assert sum(batch.num_rows for batch in client.stream("team/numbers")) == 100


def test_a_missing_token_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(headrace.AuthError, match="cannot read the token"):
        read_token(tmp_path / "none")


def test_tries_again_for_a_while(gateway: Gateway) -> None:
    left = 3

    def refuse() -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            raise flight.FlightUnavailableError("starting")

    gateway.refuse = refuse
    with headrace.connect(gateway.uri) as client:
        assert len(client.datasets()) == 3


def test_nobody_there() -> None:
    with headrace.connect("127.0.0.1:1", retry_for=0.05) as client, pytest.raises(headrace.UnavailableError):
        client.datasets()


def test_a_call_that_takes_too_long(gateway: Gateway) -> None:
    release = threading.Event()
    gateway.refuse = lambda: (release.wait(), None)[1]
    with headrace.connect(gateway.uri, timeout=0.1, retry_for=0) as client:
        try:
            with pytest.raises(headrace.UnavailableError):
                client.schema("team/numbers")
        finally:
            release.set()


@pytest.mark.parametrize("uri", ["http://127.0.0.1:1", "unix:/no/such", "", "ftp://127.0.0.1:1", "grpc://"])
def test_bad_uris(uri: str) -> None:
    with pytest.raises(headrace.HeadraceError):
        headrace.connect(uri, retry_for=0).datasets()


def test_malloc_is_left_alone_on_demand(gateway: Gateway) -> None:
    code = (
        "import sys, ctypes, headrace.connection as c\n"
        "calls = []\n"
        "c._keep_pages = lambda: calls.append(1)\n"
        "import headrace\n"
        "headrace.connect(sys.argv[1], tune_malloc=False).datasets()\n"
        "headrace.connect(sys.argv[1]).datasets()\n"
        "print(len(calls))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, gateway.uri], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


@pytest.mark.skipif(not hasattr(os, "confstr"), reason="needs confstr")
def test_malloc_setting_is_taken() -> None:
    from headrace.connection import _keep_pages

    _keep_pages()


CLOSE = """
import sys, threading, time, headrace
client = headrace.connect(sys.argv[1])
ends = time.monotonic() + 1
def ask():
    while time.monotonic() < ends:
        client.datasets()
threads = [threading.Thread(target=ask) for _ in range(4)]
for thread in threads:
    thread.start()
while time.monotonic() < ends:
    client.close()
    time.sleep(0.0005)
for thread in threads:
    thread.join()
"""


def test_a_client_may_be_closed_while_other_threads_use_it(gateway: Gateway) -> None:
    assert run(CLOSE, gateway.uri) == ""

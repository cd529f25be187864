"""A training loop while gateways die, networks are cut, tokens expire and users press Ctrl-C."""

import base64
import hashlib
import hmac
import itertools
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import clean
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from job import start
from torch.utils.data import DataLoader

import headrace
from conftest import Serve, Start, launch
from headrace.torch import Loader, StreamingDataset

ROWS, STEP = 800, 16
KEY = b"a key of more than thirty-two bytes, for tests"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows that are so large that no buffer on the way holds an epoch of them."""
    path = tmp_path_factory.mktemp("data") / "large"
    path.mkdir()
    noise = np.random.default_rng(0).integers(0, 256, (ROWS, 40_000), dtype=np.uint8)
    columns = {"id": range(ROWS), "noise": pa.FixedSizeListArray.from_arrays(pa.array(noise.ravel()), 40_000)}
    pq.write_table(pa.table(columns), path / "0.parquet", row_group_size=50, compression=None)
    return path


def dataset(uri: str, **options: Any) -> StreamingDataset:
    return StreamingDataset(uri, "large", batch_size=STEP, shuffle=True, seed=1, window_blocks=2, **options)


def workers(data: StreamingDataset) -> "DataLoader[Any]":
    return DataLoader(data, batch_size=None, num_workers=2, multiprocessing_context="fork", prefetch_factor=1)


KINDS: dict[str, Callable[[StreamingDataset], Any]] = {"workers": workers, "loader": Loader, "alone": lambda data: data}


def rows(batches: Iterator[Any]) -> list[int]:
    return [row for batch in batches for row in batch["id"].tolist()]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["failed", "drained"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_loop_goes_on_at_the_gateway_that_comes_after(
    binary: str, folder: Path, kind: str, how: signal.Signals
) -> None:
    assert clean.run(over_a_restart, binary, str(folder), kind, how) == list(range(ROWS))


def over_a_restart(binary: str, folder: str, kind: str, how: signal.Signals) -> list[int]:
    os.environ["HEADRACE_LIMITS_DRAIN_TIMEOUT"] = "100ms"
    server = launch(binary, folder)
    batches = iter(KINDS[kind](dataset(server.uri)))
    got = rows(itertools.islice(batches, 3))
    server.stop(how)
    server = launch(binary, folder, listen=server.address)
    try:
        return sorted(got + rows(batches))
    finally:
        server.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_a_gateway_that_does_not_come_back_is_one_clear_error(binary: str, folder: Path, kind: str) -> None:
    with pytest.raises(headrace.UnavailableError):
        clean.run(without_a_gateway, binary, str(folder), kind)


def without_a_gateway(binary: str, folder: str, kind: str) -> None:
    server = launch(binary, folder)
    batches = iter(KINDS[kind](dataset(server.uri, retry_for=0.3)))
    next(batches)
    server.stop()
    rows(batches)


def token(expires_in: float) -> str:
    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    claims = {
        "iss": "tests", "aud": "headrace", "sub": "job", "tenant": "tests", "headrace": ["**"],
        "exp": int(time.time() + expires_in), "iat": int(time.time() - 7200),
    }  # fmt: skip
    text = ".".join(part(json.dumps(piece).encode()) for piece in ({"alg": "HS256", "typ": "JWT"}, claims))
    return f"{text}.{part(hmac.new(KEY, text.encode(), hashlib.sha256).digest())}"


def test_a_refused_token_is_explained_by_what_is_known_here(serve: Serve, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(KEY)
    jwt = ["--auth", "jwt", "--algorithm", "HS256", "--issuer", "tests", "--audience", "headrace"]
    server = serve(folder, *jwt, "--key", tmp_path / "key")
    cases: list[tuple[Any, str]] = [
        (None, 'none was passed: pass token="@FILE"'),
        ("token.jwt", 'is not one; the name of a file that holds it begins with "@"'),
        ("", "is not one"),
        (token(-3600), r"this one expired 36\d\d s ago"),
        (token(3600) + "x", "the gateway's log says what is wrong with this one"),
        ("a.b.c", "the gateway's log says"),
        (lambda: token(-3600), "the gateway's log says"),
    ]
    for passed, words in cases:
        with headrace.connect(server.uri, token=passed) as client:
            with pytest.raises(
                headrace.AuthError, match=f"^unauthenticated: a valid bearer token is required: .*{words}"
            ):
                client.datasets()
            with pytest.raises(headrace.AuthError, match=words):
                dataset(server.uri, token=passed)
    server.stop()


@pytest.mark.parametrize("renewed", [True, False])
@pytest.mark.parametrize("kind", ["workers", "loader"])
def test_a_token_file_that_expires(binary: str, folder: Path, tmp_path: Path, kind: str, renewed: bool) -> None:
    (tmp_path / "key").write_bytes(KEY)
    if renewed:
        assert clean.run(with_tokens, binary, str(folder), kind, str(tmp_path), renewed) == list(range(ROWS))
        return
    with pytest.raises(headrace.AuthError, match="a valid bearer token is required"):
        clean.run(with_tokens, binary, str(folder), kind, str(tmp_path), renewed)


def with_tokens(binary: str, folder: str, kind: str, place: str, renewed: bool) -> list[int]:
    auth = [
        "--auth",
        "jwt",
        "--key",
        f"{place}/key",
        "--algorithm",
        "HS256",
        "--issuer",
        "tests",
        "--audience",
        "headrace",
    ]
    server = launch(binary, folder, *auth)
    file = Path(place, "token")
    file.write_text(token(3600))
    batches = iter(KINDS[kind](dataset(server.uri, token=file)))
    got = rows(itertools.islice(batches, 3))
    file.write_text(token(3600 if renewed else -3600))
    server.stop()
    server = launch(binary, folder, *auth, listen=server.address)
    try:
        return sorted(got + rows(batches))
    finally:
        server.stop()


class Network:
    """The network between a client and a gateway, which can be cut: then nothing passes, and nobody is told."""

    def __init__(self, address: str) -> None:
        self._to = address
        self.cut = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.uri = f"grpc://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near = self._listener.accept()[0]
            host, port = self._to.split(":")
            far = socket.create_connection((host, int(port)))
            dead = threading.Event()  # connections made before the cut stay dead
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(one, other, dead), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket, dead: threading.Event) -> None:
        while data := one.recv(65536):
            if self.cut.is_set():
                dead.set()
            if not dead.is_set():
                other.sendall(data)


@pytest.mark.parametrize("kind", ["workers", "loader"])
def test_a_network_that_is_cut(binary: str, folder: Path, kind: str) -> None:
    assert clean.run(over_a_cut, binary, str(folder), kind) == list(range(ROWS))


def over_a_cut(binary: str, folder: str, kind: str) -> list[int]:
    server = launch(binary, folder)
    network = Network(server.address)
    try:
        batches = iter(KINDS[kind](dataset(network.uri, read_timeout=1.0)))
        got = rows(itertools.islice(batches, 3))
        network.cut.set()
        threading.Timer(0.2, network.cut.clear).start()
        return sorted(got + rows(batches))
    finally:
        server.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_ctrl_c_ends_a_loop_that_waits_and_leaves_no_process(process: Start, kind: str) -> None:
    _, port = process("--rows", "100", "--hang-at", "2")
    job = start(wait_for_ever, f"127.0.0.1:{port}", kind)
    assert job.said.poll(60)
    os.killpg(job.group, signal.SIGINT)
    assert job.end(within=20) != 0


def wait_for_ever(said: Any, uri: str, kind: str) -> None:
    batches = iter(KINDS[kind](StreamingDataset(uri, "team/numbers", batch_size=10)))
    next(batches)
    said.send(None)
    rows(batches)


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_ends_though_a_loop_was_left_open(binary: str, folder: Path, kind: str) -> None:
    server = launch(binary, folder)
    job = start(leave_open, server.uri, kind)
    assert job.end(within=60) == 0
    server.stop()


def leave_open(said: Any, uri: str, kind: str) -> None:
    global kept
    kept = iter(KINDS[kind](dataset(uri)))
    next(kept)


kept: Any = None

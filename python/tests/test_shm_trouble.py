"""Shared memory that cannot be had, gateways that die, users that press Ctrl-C: streams lose and repeat nothing."""

import itertools
import json
import mmap
import os
import resource
import secrets
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import flight

import headrace
from conftest import Served, launch
from gateway import Gateway

ROWS, STEP = 4000, 10

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory can be handed over on Linux alone")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows that are so large that no buffer on the way holds all of them."""
    path = tmp_path_factory.mktemp("data") / "large"
    path.mkdir()
    noise = np.random.default_rng(0).integers(0, 256, ROWS * 20_000, dtype=np.uint8)
    columns = {"id": range(ROWS), "noise": pa.FixedSizeListArray.from_arrays(pa.array(noise), 20_000)}
    table = pa.table(columns)
    with pa.OSFile(str(path / "0.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table, max_chunksize=100)
    return path


def rows(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [row for batch in batches for row in batch["id"].to_pylist()]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["failed", "drained"])
@pytest.mark.parametrize("keep", [0, 40])
def test_goes_on_at_the_gateway_that_comes_after(
    binary: str, folder: Path, own: Served, how: signal.Signals, keep: int
) -> None:
    with headrace.connect(own.uri) as client, client.stream("large", batch_size=STEP, shuffle=True, seed=1) as stream:
        kept = list(itertools.islice(stream, keep))
        got = rows(iter(kept)) + rows(itertools.islice(stream, 20))
        before = stream.stats().shared
        own.stop(how)
        after = launch(binary, folder, listen=own.address)
        try:
            got += rows(stream)
        finally:
            after.stop()
        assert before > 0
        assert stream.stats().resumed >= 1
        assert stream.stats().shared > before
        assert got[: keep * STEP] == rows(iter(kept))
    with pytest.raises(StopIteration):
        next(stream)
    assert sorted(got) == list(range(ROWS))


def test_a_gateway_that_stops_is_given_up_and_gone_on_with(own: Served) -> None:
    with headrace.connect(own.uri, read_timeout=0.5, retry_for=0.1) as client:
        stream = client.stream("large", batch_size=STEP)
        got = rows(itertools.islice(stream, 30))
        assert stream.stats().shared > 0
        own.child.send_signal(signal.SIGSTOP)
        with pytest.raises(headrace.UnavailableError, match=r"nothing came for 0\.5 s"):  # noqa: PT012
            while True:  # how many are there is not known
                got += next(stream)["id"].to_pylist()
        own.child.send_signal(signal.SIGCONT)
        stream._connection.__dict__["read_timeout"] = 60.0
        assert got + rows(stream) == list(range(ROWS))


def test_an_interrupt_ends_a_wait_and_loses_nothing(own: Served) -> None:
    with headrace.connect(own.uri) as client:
        stream = client.stream("large", batch_size=STEP)
        got = rows(itertools.islice(stream, 30))
        own.child.send_signal(signal.SIGSTOP)
        old = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt):  # noqa: PT012  how many are there is not known
                signal.setitimer(signal.ITIMER_REAL, 1.0, 0.2)
                while True:
                    got += next(stream)["id"].to_pylist()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, old)
        own.child.send_signal(signal.SIGCONT)
        assert got + rows(stream) == list(range(ROWS))


@pytest.mark.parametrize("taken", [0, 1, 30])
def test_another_thread_may_close_a_stream_that_waits(own: Served, taken: int) -> None:
    with headrace.connect(own.uri) as client:
        stream = client.stream("large", batch_size=STEP)
        got = rows(itertools.islice(stream, taken))
        own.child.send_signal(signal.SIGSTOP)
        reading = threading.Thread(target=lambda: got.extend(rows(stream)))
        reading.start()
        reading.join(0.3)
        assert reading.is_alive()
        stream.close()
        own.child.send_signal(signal.SIGCONT)
        reading.join(30)
        assert not reading.is_alive()
    assert got == list(range(len(got)))


@pytest.mark.parametrize("shared", [True, False])
def test_exceptions_are_as_over_flight(binary: str, folder: Path, tmp_path: Path, shared: bool) -> None:
    (tmp_path / "key").write_bytes(b"a key of more than thirty-two bytes, for tests")
    tokens = ["--auth", "jwt", "--key", str(tmp_path / "key"), "--algorithm", "HS256"]
    named = ["--issuer", "tests", "--audience", "headrace"]
    grant = [*tokens, *named, "--sub", "job", "--tenant", "tests", "--grant", "**", "--ttl", "1h"]
    token = subprocess.run([binary, "token", *(a for a in grant if a not in ("--auth", "jwt"))], capture_output=True)
    assert token.returncode == 0, token.stderr
    given = [token.stdout.decode()]
    server = launch(binary, folder, *tokens, *named)
    try:
        with headrace.connect(server.uri, token=lambda: given[0], shared_memory=shared) as client:
            with pytest.raises(headrace.NotFoundError, match="nothing"):
                client.stream("large", columns=["nothing"])
            stream = client.stream("large", batch_size=STEP)
            given.insert(0, "another")
            with pytest.raises(headrace.AuthError, match="a valid bearer token is required"):
                next(stream)
            del given[0]
            assert rows(stream) == list(range(ROWS))
            assert (stream.stats().shared > 0) is shared
    finally:
        server.stop()


@pytest.mark.parametrize("what", ["there", "deleted", "forbidden", "off"])
def test_a_socket_file(binary: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    path = tmp_path / "shm.sock"
    monkeypatch.setenv("HEADRACE_SHARED_MEMORY", "off" if what == "off" else str(path))
    server = launch(binary, folder)
    try:
        if what == "deleted":
            path.unlink()
        if what == "forbidden":
            path.chmod(0)
        code = (
            "import os, sys, headrace\n"
            "stream = headrace.connect(sys.argv[1]).stream('large', batch_size=10)\n"
            "os.geteuid() or os.seteuid(int(sys.argv[2]))\n"
            "print(sum(b.num_rows for b in stream), stream.stats().shared > 0, stream.stats().resumed)\n"
        )
        user = "65534" if what == "forbidden" else "0"
        done = subprocess.run(
            [sys.executable, "-c", code, server.uri, user], capture_output=True, text=True, check=False
        )
        assert (done.stdout, done.stderr) == (f"{ROWS} {what == 'there'} 0\n", "")
    finally:
        server.stop()


class Elsewhere(Gateway):
    """Offers shared memory that is another's, or none's."""

    def __init__(self, answer: Callable[[], list[bytes]]) -> None:
        super().__init__()
        self.answer = answer

    def do_action(self, context: Any, action: flight.Action) -> list[bytes]:
        assert action.type == "headrace.shm"
        return self.answer()


def offer(name: Any) -> list[bytes]:
    return [json.dumps({"socket": name, "key": "f" * 32}).encode()]


ANSWERS: dict[str, Callable[[], list[bytes]]] = {
    "nothing": list,
    "two": lambda: [b"{}", b"{}"],
    "no JSON": lambda: [b"\xff{"],
    "no object": lambda: [b"[]"],
    "no socket": lambda: [b"{}"],
    "a number": lambda: offer(7),
    "no text": lambda: offer(None),
    "no name": lambda: offer(""),
    "no such file": lambda: offer("/nowhere/shm.sock"),
    "no such name": lambda: offer("@nobody-" + secrets.token_hex(8)),
    "a long name": lambda: offer("/" + "n" * 1000),
    "a name with a zero": lambda: offer("/a\0b"),
    "no socket's file": lambda: offer("/dev/null"),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_offer_that_leads_nowhere(answer: str) -> None:
    with Elsewhere(ANSWERS[answer]) as gateway, headrace.connect(gateway.uri, read_timeout=30.0) as client:
        stream = client.stream("team/numbers")
        assert rows(stream) == list(range(100))
        assert (stream.stats().resumed, stream.stats().shared) == (0, 0)


def memory(size: int) -> int:
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, size)
    return descriptor


def hand(link: socket.socket, greeting: bytes, count: int = 1, size: int = 1 << 20, then: bytes = b"") -> bool:
    link.recv(32)
    descriptors = [memory(size) for _ in range(count)]
    socket.send_fds(link, [greeting], descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    link.sendall(then)
    return True


def greet(stride: int, slots: int, magic: bytes = b"hrshm1\0\0") -> bytes:
    return struct.pack("<8sQQ", magic, stride, slots)


STRANGERS: dict[str, Callable[[socket.socket], object]] = {
    "never answers": lambda link: link.recv(1 << 10) and link.recv(1),
    "closes at once": lambda link: None,
    "closes after the key": lambda link: link.recv(32),
    "sends rubbish": lambda link: link.sendall(bytes(range(256)) * 100),
    "sends too little": lambda link: link.sendall(b"hrshm1"),
    "sends no descriptor": lambda link: link.sendall(greet(1 << 16, 16)),
    "sends another mark": lambda link: hand(link, greet(1 << 16, 16, b"hrshm2\0\0")),
    "sends two descriptors": lambda link: hand(link, greet(1 << 16, 16), 2),
    "sends memory that is too small": lambda link: hand(link, greet(1 << 20, 16)),
    "sends no size": lambda link: hand(link, greet(0, 0), size=0),
    "sends a size beyond all memory": lambda link: hand(link, greet(1 << 63, 1 << 63)),
    "sends memory of no stream": lambda link: hand(link, greet(1 << 16, 16)) and link.recv(1),
    "sends memory and another byte": lambda link: hand(link, greet(1 << 16, 16), then=b"\2"),
}


@pytest.mark.parametrize("stranger", STRANGERS)
def test_a_stranger_at_the_socket(stranger: str) -> None:
    name = "headrace-test-" + secrets.token_hex(8)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + name)
        listener.listen()

        def serve() -> None:
            try:
                while True:
                    with listener.accept()[0] as link:
                        STRANGERS[stranger](link)
            except OSError:
                return

        thread = threading.Thread(target=serve)
        thread.start()
        before = descriptors()
        # What waits for as long as nothing may come would have the stream given up, and begun again for ever.
        with (
            Elsewhere(lambda: offer("@" + name)) as gateway,
            headrace.connect(gateway.uri, read_timeout=10.0) as client,
        ):
            stream = client.stream("team/numbers")
            assert rows(stream) == list(range(100))
            assert (stream.stats().resumed, stream.stats().shared) == (0, 0)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(30)
        assert not thread.is_alive()
        assert descriptors() == before


def descriptors() -> int:
    """Sockets of this host that are open here, and memory that was handed over."""
    links = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum("memfd" in link for link in links)


@pytest.mark.parametrize("at", ["socket.socket", "recv_fds", "mmap"])
def test_descriptors_that_run_out(server: Served, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    met = []

    def without(use: Callable[..., Any]) -> Callable[..., Any]:
        def limited(*args: Any, **kwargs: Any) -> Any:
            free = os.dup(0)
            os.close(free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
            try:
                return use(*args, **kwargs)
            except OSError as error:
                met.append(error)
                raise
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                if at == "recv_fds":
                    met.append(OSError())

        return limited

    shm: Any = headrace.shm
    if at == "socket.socket":
        monkeypatch.setattr(shm, "_Link", without(shm._Link))
    elif at == "recv_fds":
        monkeypatch.setattr(socket, "recv_fds", without(socket.recv_fds))
    else:
        monkeypatch.setattr(mmap, "mmap", without(mmap.mmap))
    with headrace.connect(server.uri) as client, client.stream("large", batch_size=STEP) as stream:
        assert rows(stream) == list(range(ROWS))
        assert (stream.stats().resumed, stream.stats().shared) == (0, 0)
    assert met


def test_too_little_address_space_for_a_ring(server: Served) -> None:
    code = (
        "import resource, sys, headrace\n"
        "client = headrace.connect(sys.argv[1])\n"
        "client.datasets()\n"
        "size = [int(l.split()[1]) << 10 for l in open('/proc/self/status') if l.startswith('VmSize')][0]\n"
        "resource.setrlimit(resource.RLIMIT_AS, (size + (900 << 20),) * 2)\n"
        "stream = client.stream('large', batch_size=10)\n"
        "print(sum(b.num_rows for b in stream), stream.stats().shared, stream.stats().resumed)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, server.uri], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{ROWS} 0 0\n", "")

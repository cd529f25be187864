"""How a data set asks for its plan when it is made: by a fork where that is safe, and nothing is left behind."""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import clean
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from job import start
from pyarrow import flight

import headrace
from conftest import Serve
from headrace import Plan, child, fork
from headrace.torch import StreamingDataset

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are for Linux")


@pytest.fixture(scope="module")
def uri(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("data")
    for name, columns in {"numbers": 1, "wide": 3000}.items():
        (folder / name).mkdir()
        pq.write_table(pa.table({f"column {n}": range(10) for n in range(columns)}), folder / name / "0.parquet")
    server = serve(folder)
    yield server.uri
    server.stop()


def want(uri: str, name: str = "numbers") -> Plan:
    with headrace.connect(uri) as client:
        return client.plan(name, global_batch_size=2, tail="keep")


Asked = tuple[Plan, int, int]
FORKED, FRESH, BOTH, HERE = (1, 0), (0, 1), (1, 1), (0, 0)


def ask(uri: str, name: str = "numbers", **options: Any) -> Asked:
    """Makes a data set, and returns its plan and how many forks and fresh processes it took; they must be gone."""
    forks: list[None] = []
    fresh: list[None] = []
    anew = child._fresh

    def counted(question: dict[str, Any]) -> Any:
        fresh.append(None)
        return anew(question)

    child._fresh = counted
    os.register_at_fork(before=lambda: forks.append(None))
    before = set(os.listdir("/proc/self/fd"))
    try:
        plan = StreamingDataset(uri, name, batch_size=2, **options).plan
    except headrace.HeadraceError as error:
        error.add_note(f"{len(forks)} forks, {len(fresh)} fresh")
        raise
    finally:
        child._fresh = anew
        eventually(lambda: set(os.listdir("/proc/self/fd")) <= before)  # gRPC, if it was here, closes its own later
        with pytest.raises(ChildProcessError):  # no child, not even one that has ended
            os.waitpid(-1, os.WNOHANG)
    return plan, len(forks), len(fresh)


def eventually(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("name", ["numbers", "wide"])  # an answer may be longer than a pipe holds
def test_a_fork_asks(uri: str, name: str) -> None:
    assert clean.run(ask, uri, name) == (want(uri, name), *FORKED)


def test_a_process_that_has_read_asks_by_itself(uri: str) -> None:
    assert clean.run(ask_again, uri) == (want(uri), *HERE)


def ask_again(uri: str) -> Asked:
    assert len(list(StreamingDataset(uri, "numbers", batch_size=2))) == 5
    return ask(uri)


def test_pyarrows_own_use_of_grpc_is_noticed(uri: str) -> None:
    assert clean.run(beside_flight, uri) == [(want(uri), *FRESH), (want(uri), *FORKED)]


def beside_flight(uri: str) -> list[Asked]:
    with flight.FlightClient(uri) as client:
        list(client.list_flights())
        asked = [ask(uri)]
        assert len(list(client.list_flights())) == 2
    del client
    eventually(lambda: not fork._uses_grpc())
    return [*asked, ask(uri)]


def test_threads_may_have_any_name(uri: str) -> None:
    assert clean.run(named_oddly, uri) == (want(uri), *FORKED)


def named_oddly(uri: str) -> Asked:
    Path("/proc/self/comm").write_bytes(b"\xff")
    return ask(uri)


def test_large_processes_are_not_forked(uri: str) -> None:
    assert clean.run(when_large, uri) == (want(uri), *FRESH)


def when_large(uri: str) -> Asked:
    fork._MOST_MEMORY = 1 << 20
    return ask(uri)


def wait_for_a_lock() -> None:
    """In a fork, where the thread that holds it is not."""
    taken.acquire()


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


taken = threading.Lock()


@pytest.mark.parametrize("trouble", [wait_for_a_lock, stop, die])
def test_a_fork_that_does_not_answer_is_replaced(uri: str, trouble: Callable[[], None]) -> None:
    assert clean.run(in_trouble, uri, trouble) == (want(uri), *BOTH)


def in_trouble(uri: str, trouble: Callable[[], None]) -> Asked:
    threading.Thread(target=taken.acquire).start()
    while not taken.locked():
        pass
    os.register_at_fork(after_in_child=trouble)
    fork._PATIENCE = 600.0 if trouble is die else 0.2  # that one has died is seen at once
    return ask(uri)


@pytest.mark.parametrize(
    ("name", "scheme", "kind", "words"),
    [
        ("nothing", "grpc", headrace.NotFoundError, "nothing"),
        ("numbers", "grpc+tls", headrace.HeadraceError, "it does not speak TLS"),
        (
            "numbers",
            "grpc+unix",
            headrace.UnavailableError,
            "^no gateway answers at grpc.unix:///nowhere: is it .*failed to connect",
        ),
    ],
)
def test_errors_come_from_a_fork_as_they_are(
    uri: str, name: str, scheme: str, kind: type[Exception], words: str
) -> None:
    address = uri.replace("grpc", scheme) if scheme != "grpc+unix" else "grpc+unix:///nowhere"
    with pytest.raises(kind, match=words) as caught:
        clean.run(ask, address, name, retry_for=0.0)
    assert caught.type is kind
    assert caught.value.__notes__ == ["1 forks, 0 fresh"]


def test_a_fork_keeps_nothing_open_that_its_process_closes() -> None:
    assert clean.run(close_while_a_fork_waits)


def close_while_a_fork_waits() -> bool:
    fork._PATIENCE = 600.0
    reads, writes = os.pipe()
    ended: list[bool] = []

    def close() -> None:
        with server, server.accept()[0]:
            os.close(writes)
            ended.append(select.select([reads], [], [], 5)[0] == [reads])

    server = socket.create_server(("127.0.0.1", 0))
    closer = threading.Thread(target=close)
    closer.start()
    with pytest.raises(headrace.UnavailableError):
        StreamingDataset(address(server), "numbers", batch_size=2, retry_for=0.0)
    closer.join()
    return ended == [True]


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A gateway that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def address(server: socket.socket) -> str:
    return f"grpc://127.0.0.1:{server.getsockname()[1]}"


def test_ctrl_c_in_the_moment_of_a_fork_leaves_nothing(uri: str) -> None:
    assert clean.run(interrupted, uri) == set()


def interrupted(uri: str) -> set[int]:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.register_at_fork(after_in_parent=lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        ask(uri)
    return signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.parametrize("most", [fork._MOST_MEMORY, 0], ids=["forked", "fresh"])
def test_ctrl_c_ends_a_question_and_leaves_no_process(silent: socket.socket, most: int) -> None:
    job = start(ask_for_ever, address(silent), 600.0, most)
    with silent.accept()[0]:
        os.killpg(job.group, signal.SIGINT)
        assert job.end(within=20) == 1


def test_a_fork_whose_process_is_killed_ends(silent: socket.socket) -> None:
    job = start(ask_for_ever, address(silent), fork._PATIENCE, fork._MOST_MEMORY)
    with silent.accept()[0]:
        os.kill(job.group, signal.SIGKILL)
        assert job.end(within=20) == -signal.SIGKILL


def ask_for_ever(_: Any, uri: str, patience: float, most: int) -> None:
    fork._PATIENCE, fork._MOST_MEMORY = patience, most
    StreamingDataset(uri, "numbers", batch_size=2)


def test_a_fork_runs_no_handler_of_its_process(silent: socket.socket) -> None:
    job = start(handle, address(silent))
    assert job.said.recv() == "forked"
    os.killpg(job.group, signal.SIGTERM)
    assert {job.said.recv(), job.said.recv()} == {job.group, "pending"}
    os.killpg(job.group, signal.SIGINT)
    assert job.end(within=20) == 1


def handle(said: Any, uri: str) -> None:
    def wait() -> None:
        said.send("forked")
        while signal.SIGTERM not in signal.sigpending():
            time.sleep(0.01)
        said.send("pending")
        time.sleep(600)

    os.register_at_fork(after_in_child=wait)
    signal.signal(signal.SIGTERM, lambda *_: said.send(os.getpid()))
    ask_for_ever(said, uri, 600.0, fork._MOST_MEMORY)


PROGRAM = """
import atexit, sys
from headrace.torch import StreamingDataset
atexit.register(print, "end", end="")
print("begin", end=" ")
StreamingDataset(sys.argv[1], "numbers", batch_size=2)
"""


def test_a_fork_repeats_nothing_of_the_program(uri: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, uri], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("begin end", "")

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway import Gateway
from headrace import connection

Start = Callable[..., tuple[subprocess.Popen[str], int]]

# Shells that start the tests in the background have them ignore Ctrl-C, which processes that tests start would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with Gateway() as server:
        yield server


@pytest.fixture
def process() -> Iterator[Start]:
    """Starts gateways in processes of their own, which a test may kill."""
    started: list[subprocess.Popen[str]] = []

    def start(*args: str) -> tuple[subprocess.Popen[str], int]:
        command = [sys.executable, str(Path(__file__).with_name("gateway.py")), *args]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(server)
        assert server.stdout is not None
        return server, int(server.stdout.readline())

    yield start
    for server in started:
        server.kill()
        server.wait()
        assert server.stdout is not None
        server.stdout.close()


@dataclass
class Served:
    """A real gateway, in a process of its own."""

    uri: str
    admin: str
    child: subprocess.Popen[str]

    @property
    def address(self) -> str:
        return self.uri.removeprefix("grpc://")

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        self.child.send_signal(how)
        self.child.wait()
        assert self.child.stdout is not None
        self.child.stdout.close()


def run(code: str, *args: str) -> str:
    """Runs a program that is to end well and to have nothing to say but its output, which it returns."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore:This process:DeprecationWarning", "-c", code, *args],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


Serve = Callable[..., Served]


@pytest.fixture(scope="session")
def binary(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The gateway of this tree."""
    path = str(tmp_path_factory.mktemp("binary") / "headrace")
    subprocess.run(["go", "build", "-o", path, "./cmd/headrace"], cwd=Path(__file__).parents[2], check=True)
    return path


def launch(binary: str, *args: str | os.PathLike[str], listen: str = "127.0.0.1:0") -> Served:
    """Starts a gateway with the arguments of `headrace serve`."""
    command = [binary, "serve", *(os.fspath(arg) for arg in args), "--listen", listen, "--admin", "127.0.0.1:0"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert child.stdout is not None
    uri, admin = (child.stdout.readline().partition(" ")[2].strip() for _ in range(2))
    server = Served(uri, admin, child)
    assert server.uri, "the gateway did not start"
    return server


@pytest.fixture(scope="session")
def serve(binary: str) -> Iterator[Serve]:
    """Launches gateways, and ends those that are left."""
    started: list[Served] = []

    def start(*args: str | os.PathLike[str]) -> Served:
        started.append(launch(binary, *args))
        return started[-1]

    yield start
    for server in started:
        if server.child.poll() is None:
            server.stop()


@pytest.fixture(scope="module")
def server(serve: Serve, folder: Path) -> Iterator[Served]:
    """A gateway for the folder of a test's module."""
    server = serve(folder)
    yield server
    server.stop()


@pytest.fixture
def own(binary: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """Another one, which the test may end."""
    monkeypatch.setenv("HEADRACE_LIMITS_DRAIN_TIMEOUT", "100ms")
    server = launch(binary, folder)
    yield server
    if server.child.returncode is None:
        server.stop()


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test is proved by waiting: tries follow each other quickly."""
    monkeypatch.setattr(connection.Backoff, "FIRST", 0.001)
    monkeypatch.setattr(connection.Backoff, "LONGEST", 0.05)

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway import Gateway
from headrace import connection

Start = Callable[..., tuple[subprocess.Popen[str], int]]


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


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test is proved by waiting: tries follow each other quickly."""
    monkeypatch.setattr(connection.Backoff, "FIRST", 0.001)
    monkeypatch.setattr(connection.Backoff, "LONGEST", 0.05)

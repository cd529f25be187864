"""Runs a function in a fork of this process, where all that it needs is imported already."""

import contextlib
import gc
import json
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

# How long a fork may take, in seconds: a lock that another thread held at the fork is never given back in it.
_PATIENCE = 1.0

# A fork copies page tables, and each page that is written to afterwards costs a fault. Beyond so many bytes of this
# process's own the two can take longer than starting Python anew.
_MOST_MEMORY = 1 << 30


def run(work: Callable[[], Any]) -> Any:
    """Returns what the function does, which must be JSON, or None if a fork is no good here or gives no answer.

    The function must not mind that it has none of this process's threads, signals and descriptors.
    """
    if not _fits():
        return None
    pid = None
    reads, writes = os.pipe()
    # Signals stay blocked in the fork, so that no handler of this process runs twice.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = _fork(work, writes)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)  # a Ctrl-C that came meanwhile is raised here
        line = _line(reads)
    finally:
        if pid is not None:
            _end(pid)
        os.close(reads)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    return None if line is None else json.loads(line)


def _fits() -> bool:
    """Whether a fork is safe here, as only Linux can tell, and quick."""
    if sys.platform != "linux":
        return False
    try:
        size, shared = (int(pages) * os.sysconf("SC_PAGE_SIZE") for pages in _tell("statm").split()[1:3])
    except OSError:  # no /proc
        return False
    return size - shared <= _MOST_MEMORY and not _uses_grpc()


def _uses_grpc() -> bool:
    """Whether gRPC runs in this process, whoever started it: its threads would be missing in a fork."""
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # it has ended
            if _tell(f"task/{thread}/comm") == b"event_engine\n":
                return True
    return False


def _tell(name: str) -> bytes:
    return Path("/proc/self", name).read_bytes()


def _fork(work: Callable[[], Any], answer: int) -> int | None:
    """Returns the id of a fork that writes the function's answer as a line, or None if there can be none."""
    try:
        # Python warns of a fork beside threads, that it may hang: that is seen to.
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            pid = os.fork()
            if pid == 0:
                _work(work, answer)
        return pid
    except OSError:
        return None
    finally:
        os.close(answer)


def _work(work: Callable[[], Any], answer: int) -> NoReturn:
    try:
        # Should the parent be killed, nobody else ends a fork that hangs.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, 2 * _PATIENCE)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
        gc.disable()  # what it would free is the parent's
        _let_go(answer)
        with open(answer, "wb") as pipe:
            pipe.write(json.dumps(work()).encode() + b"\n")
    finally:
        os._exit(0)


def _let_go(but: int) -> None:
    """Replaces all descriptors but one: nobody waits for a fork to close his, and what is written to them is lost."""
    null = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):
        if int(name) != but:
            os.dup2(null, int(name))


def _line(pipe: int) -> bytes | None:
    """Reads a line in time; its end may not show by the pipe's, which other forks may have inherited."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    deadline = time.monotonic() + _PATIENCE
    line = b""
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            return None
        part = os.read(pipe, 1 << 16)
        if not part:
            return None
        line += part
    return line


def _end(pid: int) -> None:
    with contextlib.suppress(OSError):  # a handler of SIGCHLD may have waited for it
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

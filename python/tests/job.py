"""Starts functions of a test as a terminal starts jobs, so that signals reach all their processes."""

import os
import time
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any


class Job:
    """A process that leads a group, as a terminal's job does."""

    def __init__(self, function: Callable[..., None], args: tuple[Any, ...]) -> None:
        context = get_context("forkserver")
        self.said, say = context.Pipe(duplex=False)
        self._process = context.Process(target=lead, args=(function, say, *args))
        self._process.start()
        say.close()
        self.group = self._process.pid or 0

    def end(self, within: float) -> int | None:
        """Waits for the process, and for what it left behind; returns its exit code."""
        self._process.join(within)
        assert self._process.exitcode is not None, "it hangs"
        deadline = time.monotonic() + within
        while self._alive():
            assert time.monotonic() < deadline, "it left a process behind"
            time.sleep(0.01)
        return self._process.exitcode

    def _alive(self) -> bool:
        try:
            os.killpg(self.group, 0)
        except ProcessLookupError:
            return False
        return True


def start(function: Callable[..., None], *args: Any) -> Job:
    return Job(function, args)


def lead(function: Callable[..., None], *args: Any) -> None:
    os.setpgid(0, 0)
    function(*args)

"""How a process reaches a gateway: address, token, gRPC options, deadlines, and the guard against forks."""

import atexit
import base64
import ctypes
import json
import os
import random
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyarrow import flight

from headrace.errors import AuthError, HeadraceError, UnavailableError, translate

Headers = list[tuple[bytes, bytes]]
Token = str | os.PathLike[str] | Callable[[], str] | None

# Gateways answer pings every ten seconds or slower. Two unanswered ones and the connection is given up, so a gateway
# that hangs, or a network that swallows packets, is noticed in under a minute. The look-ahead lets the kernel and gRPC
# hold two messages, which hides the latency of a real network.
_GRPC_OPTIONS: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.lookahead_bytes", 8 << 20),
]

READER = "headrace-reader"  # the name of threads of this package that read

# Seconds that a cancelled call may take to end, at most: it is a matter of milliseconds.
PATIENCE = 5.0

# Seconds that daemon threads may take to end when the process does, at most; one that goes on is left behind.
_LEAVE = 0.5

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

_grpc_process: int | None = None  # where gRPC was first used; a child that was forked from there cannot use it
_exiting = False  # what holds a connection is being closed for good
_holders: set[weakref.ref[Any]] = set()  # what holds an open connection; list() of it is one step for other threads


@dataclass(frozen=True)
class Connection:
    """What is needed to open a connection; it holds none itself, so it may cross a fork."""

    uri: str
    token: Token
    tls_ca: str | os.PathLike[str] | None
    timeout: float
    read_timeout: float
    retry_for: float
    tune_malloc: bool
    shared_memory: bool

    def open(self, holder: object) -> flight.FlightClient:
        """Opens a connection of its own for the holder, so that streams do not share one socket."""
        guard_fork(start=True)
        _holders.add(weakref.ref(holder, _holders.discard))
        if self.tune_malloc:
            _keep_pages()
        try:
            certificates = None if self.tls_ca is None else Path(self.tls_ca).read_bytes()
            if certificates is not None and b"BEGIN CERTIFICATE" not in certificates:  # gRPC has no word for it
                raise ValueError(f"there is no certificate in {self.tls_ca}")
            return flight.FlightClient(self.uri, tls_root_certs=certificates, generic_options=_GRPC_OPTIONS)
        except (OSError, ValueError) as error:
            raise HeadraceError(f"cannot connect to {self.uri}: {error}") from error

    def call(self, timeout: float | None = None) -> flight.FlightCallOptions:
        """The options of one call: the token as it is now, and a deadline in seconds unless the call is a stream."""
        return flight.FlightCallOptions(timeout=timeout, headers=self.headers())

    def headers(self) -> Headers:
        """The headers of a call: the token as it is now."""
        token = read_token(self.token)
        return [] if token is None else [(b"authorization", b"Bearer " + token.encode())]

    def translate(self, error: Exception) -> HeadraceError:
        """Returns what to raise for an exception of pyarrow, with what only this end knows: address and token."""
        ours = translate(error)
        if isinstance(ours, AuthError) and str(ours).startswith("unauthenticated"):
            return AuthError(f"{ours}: {_fault_of(self.token)}")
        if isinstance(ours, UnavailableError) and str(ours).startswith("failed to connect"):
            return UnavailableError(
                f"no gateway answers at {self.uri}: is it running, and does it listen there? ({ours})"
            )
        return ours


def read_token(token: Token) -> str | None:
    """Returns the token's text; files are read again and functions called again every time."""
    try:
        if callable(token):
            return token().strip()
        if isinstance(token, os.PathLike):
            return Path(token).read_text().strip()
        if token is not None and token.startswith("@"):
            return Path(token[1:]).read_text().strip()
    except OSError as error:
        raise AuthError(f"cannot read the token: {error}") from error
    return None if token is None else token.strip()  # what was read from a file ends with a newline


def _fault_of(token: Token) -> str:
    """What is wrong with a token that was refused, as far as that shows here: a gateway tells nobody."""
    text = None if callable(token) else read_token(token)  # a function may make another one each time
    late = time.time() - _expiry(text or "")
    if token is None:
        return 'none was passed: pass token="@FILE", or its text'
    if text is not None and text.count(".") != 2:
        return 'what was passed as token is not one; the name of a file that holds it begins with "@"'
    return f"this one expired {late:.0f} s ago" if late > 0 else "the gateway's log says what is wrong with this one"


def _expiry(token: str) -> float:
    """When a token expires, in seconds since 1970; infinity where it cannot be read."""
    try:
        claims = base64.urlsafe_b64decode(token.split(".")[1] + "==")
        return float(json.loads(claims)["exp"])
    except (IndexError, ValueError, KeyError, TypeError):
        return float("inf")


def guard_fork(*, start: bool = False) -> None:
    """Raises in a child of a process that had used gRPC: there every call would hang for ever.

    Args:
        start: this process is about to use gRPC.
    """
    global _grpc_process
    pid = os.getpid()
    if _grpc_process is None and start:
        _grpc_process = pid
        os.register_at_fork(after_in_child=_keep_holders)
    if _grpc_process not in (None, pid):
        raise HeadraceError(
            f"process {pid} was forked from process {_grpc_process} after that one had used headrace, and gRPC does "
            "not survive a fork: use the client only in the workers, or start them with multiprocessing's 'spawn' or "
            "'forkserver': DataLoader(..., multiprocessing_context='forkserver')"
        )


def grpc_process() -> int | None:
    """The process that first used gRPC by this package: this one, or one that it was forked from."""
    return _grpc_process


def _keep_holders() -> None:
    """In a forked child: takes a reference that is never given back, since freeing what is left of gRPC would hang."""
    for holder in _open_holders():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(holder))


def _open_holders() -> set[Any]:
    return {holder for ref in list(_holders) if (holder := ref()) is not None}


@atexit.register  # at the import, for handlers that are registered later come before it
def _close_holders() -> None:
    """At the end of the process: a thread that comes back from gRPC after the interpreter has gone would crash it."""
    global _exiting
    if _grpc_process != os.getpid():
        return
    _exiting = True
    closed: set[Any] = set()

    def at_work() -> bool:
        for holder in _open_holders() - closed:  # a call that had begun may open another one
            closed.add(holder)
            holder.close()
        return calls.others() or any(thread.name == READER for thread in threading.enumerate())

    _wait(PATIENCE, at_work)
    _wait(_LEAVE, lambda: not calls.left.isdisjoint(sys._current_frames()))


def _wait(seconds: float, true: Callable[[], bool]) -> None:
    """Waits while something is true."""
    until = time.monotonic() + seconds
    while true() and time.monotonic() < until:
        time.sleep(0.001)


class _Calls:
    """Surrounds whatever may wait in gRPC or Arrow without the interpreter's lock.

    While the process ends, daemon threads end here as by sys.exit, so that none is in a call when the interpreter goes,
    none reports as a fault that its connection was closed, and whoever waits for one, or for a lock of its, goes on.
    """

    def __init__(self) -> None:
        self._inside: list[int] = []  # threads, as often as they are: the collector may close in the middle of a call
        self.left: set[int] = set()  # threads that were told to end

    def __enter__(self) -> None:
        self._inside.append(threading.get_ident())  # as begin and end do: these two are for each batch
        if _exiting and abandoned():
            self.__exit__()

    def __exit__(self, *_: object) -> None:
        self._inside.remove(threading.get_ident())
        if _exiting and abandoned():
            self.left.add(threading.get_ident())
            raise SystemExit

    def begin(self) -> None:
        """Counts a thread as in a call, which no daemon thread must enter while the process ends."""
        self._inside.append(threading.get_ident())

    def end(self) -> None:
        """Undoes begin."""
        self._inside.remove(threading.get_ident())

    def others(self) -> bool:
        """Whether other threads are in calls."""
        own = threading.get_ident()  # an interrupt may have left it there
        return any(thread != own for thread in list(self._inside))


calls = _Calls()


def abandoned() -> bool:
    """Whether this is a thread that the end of the process does not wait for."""
    return _exiting and threading.current_thread().daemon


class Backoff:
    """Waits between tries of the same thing: full jitter, doubling up to five seconds, for a total time."""

    FIRST = 0.1
    LONGEST = 5.0

    def __init__(self, total: float) -> None:
        self._ends = time.monotonic() + total
        self._tries = 0

    def wait(self, error: UnavailableError, sleep: Callable[[float], object] = time.sleep) -> None:
        """Sleeps before the next try, or raises the error when the time is over."""
        left = self._ends - time.monotonic()
        if left <= 0:
            error.add_note(f"given up after {self._tries + 1} tries")
            raise error
        longest = min(self.LONGEST, self.FIRST * 2.0**self._tries)
        self._tries += 1
        sleep(min(left, random.uniform(0, longest)))


def _keep_pages() -> None:
    """Asks glibc to keep the memory of messages; by default it gives the pages of large ones back each time."""
    if not sys.platform.startswith("linux") or not os.confstr("CS_GNU_LIBC_VERSION"):
        return
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(_M_TRIM_THRESHOLD, 256 << 20)
    mallopt(_M_MMAP_THRESHOLD, 32 << 20)

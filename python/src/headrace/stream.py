"""A stream of record batches that goes on by itself when its connection is lost."""

import dataclasses
import json
import operator
import os
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, NoReturn, Self

import pyarrow as pa
from pyarrow import flight

from headrace.connection import Backoff, Connection, calls
from headrace.errors import DataError, HeadraceError, UnavailableError
from headrace.reader import Message, Reader
from headrace.stats import Stats


@dataclasses.dataclass(frozen=True)
class Receipt:
    """What a stream gave out of one epoch, since its start or after.

    Over all ranks and workers, rows less padded ones add up to the plan's rows less those dropped, and the sums
    (128-bit numbers, modulo 2**128) to the sum of those rows.
    """

    epoch: int
    rows: int  # padded ones included
    steps: int
    padded: int  # rows of the tail that were repeated
    dropped: int  # rows that no rank got; the same number everywhere
    sum: str  # 32 hex digits; padded rows are not in it


class _Tally:
    """Adds up rows, steps and sums of one epoch."""

    def __init__(self) -> None:
        self.rows = self.steps = self.sum = 0

    def add(self, rows: int, steps: int, total: int) -> None:
        self.rows += rows
        self.steps += steps
        self.sum = (self.sum + total) % (1 << 128)

    def counted(self) -> tuple[int, int, str]:
        return self.rows, self.steps, f"{self.sum:032x}"


class Stream(Iterator[pa.RecordBatch]):
    """Iterates record batches, each row exactly once, over lost connections and restarted gateways.

    A step that is longer than a message comes in several batches; `cursor` moves when the last of them was given out.
    Steps out of turn, and an epoch that is not what the gateway's receipt says, raise `DataError`. After an error the
    next call tries to go on from there. A stream is used by one thread, but any may close it.
    """

    def __init__(
        self,
        connection: Connection,
        request: dict[str, Any],
        ticket: flight.Ticket,
        schema: pa.Schema,
        rows: int,
    ) -> None:
        self._connection = connection
        self._request = request
        self._ticket = ticket
        self._schema = schema
        self._expected = rows
        self._process = os.getpid()
        self._reader: Reader | None = None
        self._ended = False
        self._closed = threading.Event()
        self._backoff: Backoff | None = None  # there while no progress is made

        self._cursor: str | None = request.get("after")
        self._at: int = request.get("epoch", 0)
        self._sum = 0
        self._step_rows = 0  # given out since the cursor
        self._step_sum = 0  # of all rows since the cursor, on this connection
        self._epoch = _Tally()  # given out of this epoch, up to the cursor
        self._received = _Tally()  # of this epoch, on this connection: what its receipt will speak of
        self._receipt: Receipt | None = None
        self._due: int | None = None  # the step that comes next, once one came
        self._repeated = 0  # rows still to pass over: given out before the connection was lost
        self._stats = Stats()
        self._left: float | None = None  # when the user got the last batch

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch."""
        return self._schema

    @property
    def snapshot(self) -> str:
        """The snapshot that is being read, for `snapshot=`."""
        return str(self._request["snapshot"])

    @property
    def cursor(self) -> str | None:
        """The place after the last complete step that was given out, for `after=`; None before the first."""
        return self._cursor

    @property
    def epoch(self) -> int:
        """The epoch of the last batch that was given out; before the first, the one that the stream begins with."""
        return self._at

    @property
    def uncommitted(self) -> int:
        """Rows given out since the cursor: 0 at the end of a step, where going on loses and repeats nothing."""
        return self._step_rows

    @property
    def sum(self) -> str:
        """The receipts' sum of all rows that this stream gave out up to the cursor, as 32 hex digits."""
        return f"{self._sum:032x}"

    @property
    def receipt(self) -> Receipt | None:
        """What this stream gave out of the last epoch that it finished; None before the end of one."""
        return self._receipt

    def stats(self) -> Stats:
        """Where the time went so far."""
        return dataclasses.replace(self._stats)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        self._check_process()
        if self._ended:
            raise StopIteration
        asked = time.perf_counter()
        batch = None
        waits: list[dict[str, Any]] = []
        while batch is None:
            message = self._read()
            if message is None:
                self._finish()
                raise StopIteration
            data, meta, size, shared = message
            if meta["wait_us"]:
                waits.append(meta)
            batch = self._take(data, meta)
        self._count(batch.num_rows, size, asked, waits)
        self._stats.shared += size if shared else 0
        return batch

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_reader"):
            self._drop()

    def close(self) -> None:
        """Ends the stream, also for a thread that waits for it; the gateway stops reading for it."""
        self._ended = True
        self._closed.set()
        self._drop()

    def _read(self) -> Message | None:
        """Returns the next message, from a new connection if need be; None at the end."""
        while not self._closed.is_set():
            try:
                if (reader := self._reader) is not None:
                    with calls:
                        return reader.read()
                headers = self._connection.headers()  # a token's function may take any time: nobody waits for that
                with calls:
                    self._reader = Reader(self._connection, headers, self._place(), self._schema)
            except StopIteration:
                return None
            except (pa.ArrowException, OSError) as cause:
                self._lost(cause)
            except BaseException:
                # An interrupt leaves the reader anywhere; the next call begins at a place that is known.
                self._drop()
                raise
        self._drop()  # it may have been made while the stream was closed
        return None

    def _place(self) -> flight.Ticket:
        """What to ask the gateway for, to go on behind the cursor."""
        self._repeated = self._step_rows
        self._step_sum = 0
        self._received = _Tally()
        if self._cursor == self._request.get("after"):
            return self._ticket
        return flight.Ticket(encode(self._request | {"after": self._cursor}))

    def _take(self, batch: pa.RecordBatch, meta: dict[str, Any]) -> pa.RecordBatch | None:
        """Books a message and returns what of it was not given out before, or None."""
        rows, total = batch.num_rows, int(meta["sum"], 16)
        self._received.add(rows, int("cursor" in meta), total)
        self._verify(rows, meta)  # before anything is booked, so that after an error nothing counts that nobody got
        repeated = min(self._repeated, rows)
        fresh = batch.slice(repeated) if repeated else batch
        self._repeated -= repeated
        self._step_rows += rows - repeated
        self._step_sum += total
        if "cursor" in meta:
            self._commit(meta)
        if repeated == rows and repeated:
            return None
        self._backoff = None
        self._at = meta["epoch"]
        return fresh

    def _verify(self, rows: int, meta: dict[str, Any]) -> None:
        """A message must be of the step that is due, and an epoch must end with a receipt that agrees."""
        if self._due is not None and self._due != meta["step"]:
            self._fail(f"step {meta['step']} came where step {self._due} was due")
        if "cursor" not in meta:
            return
        if self._repeated > rows:
            self._fail(f"the step after {self._cursor} came back {self._repeated - rows} rows shorter than before")
        receipt = meta.get("receipt")
        if receipt is None:
            if meta["cursor"].split(":")[2] != str(meta["epoch"]):
                self._fail(f"epoch {meta['epoch']} ended without a receipt")
            return
        came = self._received.counted()
        if came != (receipt["rows"], receipt["steps"], receipt["sum"]):
            self._fail(f"the receipt of epoch {meta['epoch']} is {receipt}, but rows, steps and sum are {came}")

    def _commit(self, meta: dict[str, Any]) -> None:
        """Moves the cursor behind a step."""
        self._epoch.add(self._step_rows, 1, self._step_sum)
        self._sum = (self._sum + self._step_sum) % (1 << 128)
        self._step_rows = self._step_sum = 0
        self._cursor = meta["cursor"]
        self._due = meta["step"] + self._request.get("num_workers", 1)
        if "receipt" in meta:
            rows, steps, total = self._epoch.counted()
            told = meta["receipt"]
            self._receipt = Receipt(meta["epoch"], rows, steps, told["padded"], told["dropped"], total)
            self._epoch, self._received = _Tally(), _Tally()

    def _fail(self, text: str) -> NoReturn:
        """The data are not what they should be; the next call begins again at the cursor."""
        self._drop()
        raise DataError(text)

    def _count(self, rows: int, size: int, asked: float, waits: list[dict[str, Any]]) -> None:
        """Books a batch and the time since it was asked for; waits: metadata that tell what the gateway waited."""
        stats = self._stats
        now = time.perf_counter()
        stats.take(self._left, asked, now)
        self._left = now
        stats.batches += 1
        stats.rows += rows
        stats.bytes += size
        stats.wire += now - asked
        if waits:
            self._divide(waits, now - asked)

    def _divide(self, waits: list[dict[str, Any]], took: float) -> None:
        """Divides what the gateway waited, as far as it was waited for here."""
        stats = self._stats
        whole, store, decode = (
            sum(meta.get(name, 0) for meta in waits) / 1e6 for name in ("wait_us", "store_us", "decode_us")
        )
        part = min(whole, took) / whole
        stats.store += store * part
        stats.decode += decode * part
        stats.gateway += (whole - store - decode) * part
        stats.wire -= whole * part

    def _lost(self, cause: Exception) -> None:
        """Waits before the next try to go on, or raises what trying again cannot mend."""
        stalled = isinstance(cause, TimeoutError)
        self._drop()
        if self._closed.is_set():
            return
        connection = self._connection
        error = (
            UnavailableError(f"nothing came for {connection.read_timeout} s")
            if stalled
            else connection.translate(cause)
        )
        if not isinstance(error, UnavailableError):
            raise error from cause
        error.__cause__ = cause
        if self._backoff is None:
            self._backoff = Backoff(self._connection.retry_for)
        self._backoff.wait(error, self._closed.wait)
        self._stats.resumed += 1

    def _finish(self) -> None:
        """The end is only the end when everything came, or when nobody wants it."""
        self._drop()
        if self._closed.is_set():
            return
        if self._step_rows or self._stats.rows != self._expected >= 0:
            raise DataError(f"the stream ended after {self._stats.rows} of {self._expected} rows")
        if self._epoch.steps:
            raise DataError(f"the stream ended at {self._cursor} without a receipt")
        self._ended = True

    def _drop(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None and self._process == os.getpid():  # in a forked child it is the parent's
            reader.close()

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise HeadraceError(
                f"this stream was made in process {self._process}, from which process {os.getpid()} was forked; make "
                "streams in the process that reads them"
            )


def encode(request: dict[str, Any]) -> bytes:
    """Returns a request as it goes over the wire; integers may be those of NumPy, too."""
    return json.dumps(request, separators=(",", ":"), ensure_ascii=False, default=operator.index).encode()

"""One connection's part of a stream."""

import contextlib
import json
import queue
import threading
from typing import Any

import pyarrow as pa
from pyarrow import flight

from headrace.connection import PATIENCE, READER, Connection, Headers, abandoned, calls
from headrace.errors import DataError
from headrace.shm import HEADER, Ring

_decode = json.JSONDecoder().raw_decode

# Bytes that may be there before they are asked for; one message may be whatever its size. To hand over small ones each
# by itself costs more than to receive them.
_AHEAD = 4 << 20
_EACH = 4 << 10  # that a message counts for beside its data

# A record batch, its metadata, its bytes, and whether they are in shared memory.
Message = tuple[pa.RecordBatch, dict[str, Any], int, bool]


class Reader:
    """Reads one DoGet to its end, in a thread of its own, a message ahead of its user or several small ones.

    A read of gRPC can neither be interrupted nor given a time: deadlines are for whole calls, and a stream may take
    days. So the thread reads, and whoever waits for the thread can be interrupted and watches the clock.
    """

    def __init__(self, connection: Connection, headers: Headers, ticket: flight.Ticket, schema: pa.Schema) -> None:
        self._limit = connection.read_timeout
        self._closed = False
        self._reader: flight.FlightStreamReader | None = None
        self._schema = schema
        self._came: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._read = 0  # bytes, by the thread
        self._taken = 0  # of these, by the user
        self._waits = False  # the thread, for room
        self._room = threading.Lock()  # held, but while the thread is to look for room again
        self._room.acquire()
        self._ring: Ring | None = None  # there is one once the thread has joined it
        self._joined = False
        self._thread = threading.Thread(
            target=self._run, args=(ticket, headers, connection, schema), name=READER, daemon=True
        )
        self._client = connection.open(self)
        self._thread.start()

    def read(self) -> Message:
        """Returns the next message; raises StopIteration at the end, what reading raised, TimeoutError."""
        if not self._joined:
            self._joined = bool(self._get())  # nothing comes before that
        shared = None if self._ring is None else self._ring.read(self._schema)
        if shared is not None:
            batch, text = shared
            return batch, _parse(text.decode()), batch.get_total_buffer_size(), True
        batch, metadata, size = self._get()
        self._taken += size + _EACH
        self._wake()
        return batch, _parse(metadata.to_pybytes().decode()), size, False

    def _get(self) -> Any:
        """Returns what the thread hands over next, or raises it."""
        try:
            came = self._came.get(timeout=self._limit)
        except queue.Empty:
            raise TimeoutError from None
        if not isinstance(came, BaseException):
            return came
        try:
            raise came
        finally:
            del came  # else it and this frame keep each other, and the ring, until the collector comes

    def close(self) -> None:
        """Cancels what is left of the call; its connection is closed once the thread has noticed."""
        calls.begin()
        try:
            if not abandoned():  # else whoever ends the process does it
                self._close()
        finally:
            calls.end()

    def _close(self) -> None:
        self._closed = True
        if self._reader is not None:
            self._reader.cancel()
        if self._ring is not None:
            self._ring.end()
        self._wake()
        self._came.put(StopIteration())  # for whoever waits while another thread closes
        # A thread that still connects takes its time, and nobody needs to wait for that.
        if self._reader is not None and self._thread is not threading.current_thread():
            self._thread.join(PATIENCE)

    def _wake(self) -> None:
        """Lets the thread look for room, if it waits."""
        if self._waits:
            self._waits = False
            with contextlib.suppress(RuntimeError):  # reading and closing in two threads may both come to that
                self._room.release()

    def _has_room(self) -> bool:
        """Waits until there is room for another message; False once nobody wants any."""
        while not self._closed and self._read - self._taken >= _AHEAD:
            self._waits = True  # first, and then looks again: what is taken from here on wakes it
            if not self._closed and self._read - self._taken >= _AHEAD:
                self._room.acquire()
        return not self._closed

    def _run(self, ticket: flight.Ticket, headers: Headers, connection: Connection, schema: pa.Schema) -> None:
        try:
            if connection.shared_memory:
                options = flight.FlightCallOptions(timeout=connection.timeout, headers=headers)
                self._ring = Ring.join(self._client, options, self._limit)
            if self._ring is not None:
                headers = [*headers, (HEADER, self._ring.key.encode())]
            self._reader = self._client.do_get(ticket, flight.FlightCallOptions(headers=headers))
            if not self._closed and not self._reader.schema.equals(schema, check_metadata=True):
                raise DataError("the gateway's schema is not the one it announced")
            if self._ring is not None and not self._ring.joined():
                self._ring = None
            self._came.put(True)
            while self._has_room():
                chunk = self._reader.read_chunk()
                batch = chunk.data  # another object each time
                size = batch.get_total_buffer_size()  # nbytes takes thirty times as long
                self._read += size + _EACH
                self._came.put((batch, chunk.app_metadata, size))
        except BaseException as error:
            # Without this frame, which holds what holds the error.
            self._came.put(error.with_traceback(error.__traceback__ and error.__traceback__.tb_next))
        finally:
            if self._ring is not None:
                self._ring.end()
            if self._reader is not None:
                self._reader.cancel()
            self._client.close()


def _parse(text: str) -> dict[str, Any]:
    """Does what json.loads does with what has no space around it, in half the time."""
    meta: dict[str, Any]
    meta, end = _decode(text)
    if end != len(text):
        raise json.JSONDecodeError("Extra data", text, end)
    return meta

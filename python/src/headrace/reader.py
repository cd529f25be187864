"""One connection's part of a stream."""

import contextlib
import queue
import threading

import pyarrow as pa
from pyarrow import flight

from headrace.connection import Connection
from headrace.errors import DataError

# Bytes that may be there before they are asked for; one message may be whatever its size. To hand over small ones each
# by itself costs more than to receive them.
_AHEAD = 4 << 20
_EACH = 4 << 10  # that a message counts for beside its data

# A record batch, its metadata, and its bytes.
Message = tuple[pa.RecordBatch, pa.Buffer, int]

# Seconds that a cancelled call may take to end, at most: it is a matter of milliseconds.
_PATIENCE = 5.0


class Reader:
    """Reads one DoGet to its end, in a thread of its own, a message ahead of its user or several small ones.

    A read of gRPC can neither be interrupted nor given a time: deadlines are for whole calls, and a stream may take
    days. So the thread reads, and whoever waits for the thread can be interrupted and watches the clock.
    """

    def __init__(self, connection: Connection, ticket: flight.Ticket, schema: pa.Schema) -> None:
        self._limit = connection.read_timeout
        self._closed = False
        self._reader: flight.FlightStreamReader | None = None
        self._came: queue.SimpleQueue[Message | BaseException] = queue.SimpleQueue()
        self._read = 0  # bytes, by the thread
        self._taken = 0  # of these, by the user
        self._waits = False  # the thread, for room
        self._room = threading.Lock()  # held, but while the thread is to look for room again
        self._room.acquire()
        self._client = connection.open(self)
        try:
            options = connection.call()
        except BaseException:
            self._client.close()
            raise
        self._thread = threading.Thread(
            target=self._run, args=(ticket, options, schema), name="headrace-reader", daemon=True
        )
        self._thread.start()

    def read(self) -> Message:
        """Returns the next message; raises StopIteration at the end, what reading raised, TimeoutError."""
        try:
            message = self._came.get(timeout=self._limit)
        except queue.Empty:
            raise TimeoutError from None
        if isinstance(message, BaseException):
            raise message
        self._taken += message[2] + _EACH
        self._wake()
        return message

    def close(self) -> None:
        """Cancels what is left of the call; its connection is closed once the thread has noticed."""
        self._closed = True
        if self._reader is not None:
            self._reader.cancel()
        self._wake()
        # A thread that still connects takes its time, and nobody needs to wait for that.
        if self._reader is not None and self._thread is not threading.current_thread():
            self._thread.join(_PATIENCE)

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

    def _run(self, ticket: flight.Ticket, options: flight.FlightCallOptions, schema: pa.Schema) -> None:
        try:
            self._reader = self._client.do_get(ticket, options)
            if not self._closed and not self._reader.schema.equals(schema, check_metadata=True):
                raise DataError("the gateway's schema is not the one it announced")
            while self._has_room():
                chunk = self._reader.read_chunk()
                batch = chunk.data  # another object each time
                size = batch.get_total_buffer_size()  # nbytes takes thirty times as long
                self._read += size + _EACH
                self._came.put((batch, chunk.app_metadata, size))
            self._came.put(StopIteration())  # for whoever waits while another thread closes
        except BaseException as error:
            self._came.put(error)
        finally:
            if self._reader is not None:
                self._reader.cancel()
            self._client.close()

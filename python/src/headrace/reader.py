"""One connection's part of a stream."""

import contextlib
import queue
import threading

import pyarrow as pa
from pyarrow import flight

from headrace.connection import Connection
from headrace.errors import DataError

# Seconds that a cancelled call may take to end, at most: it is a matter of milliseconds.
_PATIENCE = 5.0


class Reader:
    """Reads one DoGet to its end, in a thread of its own, one message ahead of its user.

    A read of gRPC can neither be interrupted nor given a time: deadlines are for whole calls, and a stream may take
    days. So the thread reads, and whoever waits for the thread can be interrupted and watches the clock.
    """

    def __init__(self, connection: Connection, ticket: flight.Ticket, schema: pa.Schema) -> None:
        self._limit = connection.read_timeout
        self._closed = False
        self._reader: flight.FlightStreamReader | None = None
        self._wanted = threading.Lock()  # free while there is room for a message
        self._came: queue.SimpleQueue[flight.FlightStreamChunk | BaseException] = queue.SimpleQueue()
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

    def read(self) -> flight.FlightStreamChunk:
        """Returns the next message; raises StopIteration at the end, what the reading raised, and TimeoutError."""
        try:
            message = self._came.get(timeout=self._limit)
        except queue.Empty:
            raise TimeoutError from None
        if isinstance(message, BaseException):
            raise message
        self._want()
        return message

    def close(self) -> None:
        """Cancels what is left of the call; its connection is closed once the thread has noticed."""
        self._closed = True
        if self._reader is not None:
            self._reader.cancel()
        self._want()
        # A thread that still connects takes its time, and nobody needs to wait for that.
        if self._reader is not None and self._thread is not threading.current_thread():
            self._thread.join(_PATIENCE)

    def _want(self) -> None:
        """Lets the thread go on, if it waits: reading and closing in two threads may both come to that."""
        with contextlib.suppress(RuntimeError):
            self._wanted.release()

    def _run(self, ticket: flight.Ticket, options: flight.FlightCallOptions, schema: pa.Schema) -> None:
        try:
            self._reader = self._client.do_get(ticket, options)
            if not self._closed and not self._reader.schema.equals(schema, check_metadata=True):
                raise DataError("the gateway's schema is not the one it announced")
            while not self._closed and self._wanted.acquire() and not self._closed:
                self._came.put(self._reader.read_chunk())
            self._came.put(StopIteration())  # for whoever waits while another thread closes
        except BaseException as error:
            self._came.put(error)
        finally:
            if self._reader is not None:
                self._reader.cancel()
            self._client.close()

"""One connection's part of a stream."""

import threading
import time

import pyarrow as pa
from pyarrow import flight

from headrace.connection import Connection
from headrace.errors import DataError


class Reader:
    """Reads one DoGet to its end. It is used by one thread; a second one only watches the clock.

    gRPC's deadlines are for whole calls and a stream may take days, so the time that one read may take is watched here.
    """

    def __init__(self, connection: Connection, ticket: flight.Ticket, schema: pa.Schema) -> None:
        self.stalled = False  # given up because nothing came
        self._limit = connection.read_timeout
        self._since: float | None = None  # when the read began that is running
        self._closed = threading.Event()
        self._client = connection.open(self)
        try:
            self._reader = self._client.do_get(ticket, connection.call())
            if not self._reader.schema.equals(schema, check_metadata=True):
                raise DataError("the gateway's schema is not the one it announced")
        except BaseException:
            self._client.close()
            raise
        threading.Thread(target=self._watch, name="headrace-watch", daemon=True).start()

    def read(self) -> flight.FlightStreamChunk:
        """Returns the next message; raises StopIteration at the end of the stream."""
        self._since = time.monotonic()
        try:
            return self._reader.read_chunk()
        finally:
            self._since = None

    def close(self) -> None:
        """Cancels what is left of the call and closes its connection."""
        self._closed.set()
        self._reader.cancel()
        self._client.close()

    def _watch(self) -> None:
        while not self._closed.wait(self._limit / 10):
            since = self._since
            if since is not None and time.monotonic() - since > self._limit:
                self.stalled = True
                self._reader.cancel()
                return

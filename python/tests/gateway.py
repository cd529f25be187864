"""A small Flight server that speaks headrace's metadata, and that can fail in all the ways a real one can be made to.

Rows are the numbers from 0 on, so what a client got says what it missed or had twice.
"""

import argparse
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyarrow import flight

SNAPSHOT = hashlib.sha256(b"snapshot").hexdigest()
PLAN = hashlib.sha256(b"plan").hexdigest()
FLIGHT = hashlib.sha256(b"flight").hexdigest()[:32]
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False, metadata={"unit": "row"}), pa.field("name", pa.string())],
    metadata={"origin": "test"},
)

Messages = Iterator[tuple[pa.RecordBatch, bytes]]
Fault = Callable[[int], None]  # called before message n of a stream, counted over all streams of the gateway


def mix(row: int) -> int:
    """The receipts' hash of one row."""
    mask = (1 << 64) - 1
    key = int.from_bytes(hashlib.sha256(b"headrace sum 1\0" + SNAPSHOT.encode()).digest()[:8], "little")
    z = (key + (row + 1) * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def total(rows: range) -> str:
    return f"{sum(mix(row) for row in rows) % (1 << 128):032x}"


def batch(rows: range, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.record_batch([pa.array(rows, pa.int64()), pa.array([f"row {r}" for r in rows])], schema=schema)


@dataclass
class Data:
    """What is served, and how it is cut: steps of `step` rows in messages of `part` rows."""

    rows: int = 100
    step: int = 10
    part: int = 10
    wait: float = 0.0  # seconds each message waits for data
    store: float = 0.0  # of them, for the store
    decode: float = 0.0  # of them, for the decoder
    part_again: int | None = None  # rows of a message in streams that resume
    epochs: int = 1  # all alike; steps must divide them

    def receipt(self, since: int) -> dict[str, Any]:
        """Of the rows of an epoch from one on."""
        rows = range(since, self.rows)
        steps = -(-len(rows) // self.step)
        return {"rows": len(rows), "steps": steps, "padded": 0, "dropped": 0, "sum": total(rows)}


@dataclass
class Calls:
    """What the gateway saw."""

    tokens: list[str] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)  # of DoGet; {} for a ticket
    messages: int = 0


class Tokens(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    def __init__(self, valid: str | None, calls: Calls) -> None:
        super().__init__()
        self.valid = valid
        self.calls = calls

    def start_call(self, info: flight.CallInfo, headers: dict[str, list[str]]) -> None:
        token = headers.get("authorization", [""])[0]
        self.calls.tokens.append(token)
        if self.valid is not None and token != f"Bearer {self.valid}":
            raise flight.FlightUnauthenticatedError("the token is not valid")


class Gateway(flight.FlightServerBase):  # type: ignore[misc]
    def __init__(self, port: int = 0, data: Data | None = None, token: str | None = None) -> None:
        self.calls = Calls()
        self.tokens = Tokens(token, self.calls)
        super().__init__(f"grpc://127.0.0.1:{port}", middleware={"tokens": self.tokens})
        self.data = data or Data()
        self.fault: Fault = lambda n: None
        self.refuse: Callable[[], None] = lambda: None  # called at the start of every unary call and stream
        self.messages: Callable[[Messages], Messages] = lambda messages: messages  # what is made of a stream's own
        self.schema = SCHEMA

    @property
    def uri(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[flight.FlightInfo]:
        self.refuse()
        for name in ("team/numbers", "team/broken", "other/half"):
            if name.startswith(criteria.decode()):
                yield self._listed(name)

    def _listed(self, name: str) -> flight.FlightInfo:
        meta: dict[str, Any] = {"rows": self.data.rows, "bytes": 8 * self.data.rows, "shards": 3}
        if name == "team/broken":
            meta = {"rows": 0, "bytes": 0, "shards": 1, "error": "a.parquet: corrupt: no footer"}
        if name == "other/half":
            meta["corrupt"] = [{"shard": "b.parquet", "error": "truncated"}]
        descriptor = flight.FlightDescriptor.for_path(*name.split("/"))
        schema = None if "error" in meta else SCHEMA
        return flight.FlightInfo(schema, descriptor, [], meta["rows"], meta["bytes"], True, json.dumps(meta))

    def get_schema(self, context: Any, descriptor: flight.FlightDescriptor) -> flight.SchemaResult:
        self._request(descriptor.command)
        return flight.SchemaResult(SCHEMA)

    def get_flight_info(self, context: Any, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
        request = self._request(descriptor.command)
        rows = self.data.rows * self.data.epochs - _after(request, self.data.rows)
        meta = {
            "plan": PLAN,
            "snapshot": SNAPSHOT,
            "rows": rows,
            "steps": -(-rows // self.data.step),
            "window_blocks": 0,
            "design_effect": None,
            "dropped": 0,
            "padded": 0,
            "schema": "f" * 64,
            "flight": FLIGHT,
            "blocks": 10,
            "bytes": 800,
            "memory": 80,
        }
        endpoints = [flight.FlightEndpoint(b"ticket " + descriptor.command, [])] * (
            1 if "rank" in request else request.get("world_size", 1)
        )
        return flight.FlightInfo(SCHEMA, descriptor, endpoints, rows, -1, True, json.dumps(meta))

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.GeneratorStream:
        first = ticket.ticket.startswith(b"ticket ")
        request = self._request(ticket.ticket.removeprefix(b"ticket "))
        self.calls.requests.append({} if first else request)
        if not first:
            assert request["snapshot"] == SNAPSHOT
            assert request["flight"] == FLIGHT
        again = not first and self.data.part_again is not None
        part = self.data.part_again if again and self.data.part_again else self.data.part
        return flight.GeneratorStream(self.schema, self.messages(self._messages(_after(request, self.data.rows), part)))

    def _request(self, command: bytes) -> dict[str, Any]:
        self.refuse()
        request: dict[str, Any] = json.loads(command)
        if request["dataset"] != "team/numbers":
            raise pa.ArrowKeyError(f"no data set {request['dataset']}")
        if "shuffel" in request:
            raise pa.ArrowInvalid("unknown field shuffel: did you mean shuffle?")
        return request

    def _messages(self, start: int, part: int) -> Messages:
        """The messages from a row on, rows counted over all epochs."""
        data = self.data
        origin = start
        for low in range(start, data.rows * data.epochs, data.step):
            epoch, first = divmod(low, data.rows)
            high = min(first + data.step, data.rows)
            parts = [range(a, min(a + part, high)) for a in range(first, high, part)]
            for number, rows in enumerate(parts, 1):
                self.calls.messages += 1
                self.fault(self.calls.messages - 1)
                step = epoch * -(-data.rows // data.step) + first // data.step
                meta: dict[str, Any] = {
                    "epoch": epoch,
                    "step": step,
                    "sum": total(rows),
                    "wait_us": int(data.wait * 1e6),
                }
                for name, seconds in (("store_us", data.store), ("decode_us", data.decode)):
                    if seconds:
                        meta[name] = int(seconds * 1e6)
                if len(parts) > 1:
                    meta |= {"part": number, "parts": len(parts)}
                if number == len(parts):
                    meta["cursor"] = _cursor(epoch, high) if high < data.rows else _cursor(epoch + 1, 0)
                    if high == data.rows:
                        meta["receipt"] = data.receipt(max(0, origin - epoch * data.rows))
                time.sleep(data.wait)
                yield batch(rows, self.schema), json.dumps(meta).encode()


def _cursor(epoch: int, rows: int) -> str:
    return f"hr1:{PLAN[:32]}:{epoch}:{rows}"


def _after(request: dict[str, Any], rows: int) -> int:
    """The row to begin with, counted over all epochs."""
    if "after" not in request:
        return 0
    _, plan, epoch, row = request["after"].split(":")
    if plan != PLAN[:32]:
        raise pa.ArrowInvalid("the cursor belongs to another plan")
    return int(epoch) * rows + int(row)


def main() -> None:
    """Serves until killed, in a process of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--hang-at", type=int, default=-1)
    args = parser.parse_args()
    gateway = Gateway(args.port, Data(rows=args.rows))
    if args.hang_at >= 0:
        gateway.fault = lambda n: time.sleep(3600) if n == args.hang_at else None
    print(gateway.port, flush=True)
    gateway.serve()


if __name__ == "__main__":
    main()

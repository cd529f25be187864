"""The client: what there is, what it looks like, and streams of it."""

import dataclasses
import json
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self, TypedDict, TypeVar, Unpack

import pyarrow as pa
from pyarrow import flight

from headrace.connection import Backoff, Connection, Token, calls, guard_fork
from headrace.errors import HeadraceError, RequestError, UnavailableError
from headrace.stream import Stream, encode

T = TypeVar("T")

# How long a call that is not a stream is tried again, in seconds, at most: somebody waits for its answer.
_FIRST_ANSWER = 10.0

_SCHEMES = ("grpc://", "grpc+tcp://", "grpc+tls://", "grpc+unix://")


# A part of every block's rows, from and to of 10,000, always the same ones for a seed.
Split = TypedDict("Split", {"seed": int, "from": int, "to": int})


class Options(TypedDict, total=False):
    """What may be asked of a data set, by the names on the wire. None stands for the gateway's default."""

    # Which data.
    snapshot: str | None  # None: the newest
    shards: Sequence[str] | str | None  # keys, or "from:to" in the snapshot's numbers
    columns: Sequence[str | Sequence[str]] | None  # names, or paths of nested fields; None: all that are granted
    split: Split | tuple[int, int, int] | None  # a tuple is (seed, from, to)
    row_id: bool | None  # adds __row_id, the row's number in the snapshot
    expect_schema: str | None  # the fingerprint that a Plan names

    # In which order.
    shuffle: bool | Literal["none", "window", "full"] | None  # True: window
    window_blocks: int | None  # more blocks mix better and take more of the gateway's memory
    groups: int | None  # spans of the order, so that the ranks of a node share blocks
    seed: int | None
    epoch: int | None  # the first one
    num_epochs: int | None  # -1: without end

    # In which steps, and which of them are this stream's.
    batch_size: int | None  # rows of this rank; None: batches as stored
    global_batch_size: int | None  # rows of all ranks together
    world_size: int | None
    rank: int | None
    num_workers: int | None
    worker_id: int | None
    tail: Literal["drop", "pad", "keep"] | None  # the rows after the last full batch
    start: str | None  # a cursor: steps are counted from there
    after: str | None  # a cursor: go on behind it, counting on

    # In which messages.
    max_message_bytes: int | None
    compression: Literal["lz4", "zstd"] | None  # on the wire only


@dataclass(frozen=True)
class Dataset:
    """One entry of the listing."""

    name: str
    schema: pa.Schema | None  # None where no shard could be read
    rows: int
    bytes: int
    error: str | None  # why it, or a part of it, cannot be served


@dataclass(frozen=True)
class Plan:
    """What a request means: counted exactly, nothing read yet."""

    plan: str  # the plan's hash
    snapshot: str
    rows: int  # delivered, to all ranks unless one is named; -1: without end
    steps: int
    dropped: int  # rows that the tail leaves out
    padded: int  # rows that the tail repeats
    blocks: int  # that have rows of the plan
    bytes: int  # that an epoch decodes
    window_blocks: int  # 0 unless the shuffle is by windows
    memory: int  # bytes that a window takes at the gateway, for all streams of the plan together
    design_effect: float | None  # 1: batches are mixed as if drawn at random; None in stored order
    good_window: int  # the window_blocks that would bring it to 2
    schema: pa.Schema
    fingerprint: str  # for expect_schema


class Client:
    """Speaks to one gateway. It connects on first use, may be shared by threads, and may be made before a fork."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._flight: flight.FlightClient | None = None
        self._process: int | None = None  # the one that opened it
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Gives up the connection; streams have their own."""
        with self._lock:
            self._drop()

    def datasets(self, pattern: str = "") -> list[Dataset]:
        """Lists the data sets that the caller may read.

        Args:
            pattern: a prefix of names, or a glob.
        """
        return self._ask(lambda c, o: [_dataset(info) for info in c.list_flights(pattern.encode(), options=o)])

    def schema(self, dataset: str) -> pa.Schema:
        """The schema of the columns that the caller may read."""
        schema: pa.Schema = self._ask(lambda c, o: c.get_schema(_descriptor({"dataset": dataset}), options=o).schema)
        return schema

    def plan(self, dataset: str, **options: Unpack[Options]) -> Plan:
        """Says what `stream` with the same options would deliver."""
        info, meta = self._info(request_of(dataset, options))
        fingerprint = meta.pop("schema")
        counted = {field.name: meta.get(field.name, 0) for field in dataclasses.fields(Plan)}
        return Plan(**counted | {"schema": info.schema, "fingerprint": fingerprint})

    def stream(self, dataset: str, **options: Unpack[Options]) -> Stream:
        """Streams a data set, or the part of it that the options name.

        The snapshot is fixed here; nothing is read before the first batch is asked for.
        """
        if options.get("rank") is None:
            _warn_of_ranks(dataset)
        request = request_of(dataset, options)
        info, meta = self._info(request)
        if len(info.endpoints) != 1:
            raise RequestError(f"world_size means {len(info.endpoints)} streams: name a rank, which counts from 0")
        pinned = request | {"snapshot": meta["snapshot"], "flight": meta["flight"]}
        return Stream(self._connection, pinned, info.endpoints[0].ticket, info.schema, meta["rows"])

    def _info(self, request: dict[str, Any]) -> tuple[flight.FlightInfo, dict[str, Any]]:
        info = self._ask(lambda c, o: c.get_flight_info(_descriptor(request), o))
        return info, json.loads(info.app_metadata)

    def _ask(self, question: Callable[[flight.FlightClient, flight.FlightCallOptions], T]) -> T:
        """Makes one call, with a deadline, again while the gateway is unavailable for a short time."""
        guard_fork()
        backoff = Backoff(min(self._connection.retry_for, _FIRST_ANSWER))
        while True:
            try:
                options = self._connection.call(self._connection.timeout)  # a token's function may take any time
                with calls:
                    return question(self._dial(), options)
            except (pa.ArrowException, OSError) as cause:
                error = self._connection.translate(cause)
                if not isinstance(error, UnavailableError):
                    raise error from cause
                error.__cause__ = cause
            # A connection that failed waits ever longer before it tries again by itself; a new one tries at once.
            self.close()
            backoff.wait(error)

    def _dial(self) -> flight.FlightClient:
        with self._lock:
            if self._flight is None:
                self._flight = self._connection.open(self)
                self._process = os.getpid()
            return self._flight

    def _drop(self) -> None:
        # It closes when nobody refers to it any more: to close one in which another thread is in a call crashes.
        if self._process == os.getpid():
            self._flight = None


def connect(
    uri: str,
    *,
    token: Token = None,
    tls_ca: str | os.PathLike[str] | None = None,
    timeout: float = 60.0,
    read_timeout: float = 300.0,
    retry_for: float = 300.0,
    tune_malloc: bool = True,
    shared_memory: bool = True,
) -> Client:
    """Returns a client for the gateway at a URI. Nothing is opened before the first call.

    Args:
        uri: `grpc://host:port`, `grpc+tls://host:port` or `grpc+unix:///path`; without a scheme, `grpc://`.
        token: the text of a token; `"@/path"` or a path, read again on every call; or a function, called every time.
        tls_ca: a file of certificates to trust instead of the system's.
        timeout: seconds that a call may take that is not a stream.
        read_timeout: seconds that a stream may bring nothing before its connection is given up and made again.
        retry_for: seconds that a stream tries to go on without progress before it raises `UnavailableError`.
        tune_malloc: lets glibc keep the memory of messages between them, for the whole process; faster, and no
            other C library is touched.
        shared_memory: lets a gateway on the same host hand batches over in memory that both have mapped.
    """
    if not uri:
        raise HeadraceError("an empty URI")
    address = uri if "://" in uri or uri.startswith("unix:") else f"grpc://{uri}"
    if not address.startswith(_SCHEMES):
        raise HeadraceError(f"cannot connect to {uri}: it must begin with one of {', '.join(_SCHEMES)}")
    return Client(Connection(address, token, tls_ca, timeout, read_timeout, retry_for, tune_malloc, shared_memory))


def request_of(dataset: str, options: Options) -> dict[str, Any]:
    """Returns options as a request has them on the wire."""
    request: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if isinstance(request.get("shuffle"), bool):
        request["shuffle"] = "window" if request["shuffle"] else "none"
    if isinstance(request.get("split"), str):  # as other loaders name a folder
        raise RequestError(
            f'split is (seed, from, to), a part of the rows; a folder "{request["split"]}" is named by the data set'
        )
    if isinstance(request.get("split"), tuple):
        request["split"] = dict(zip(("seed", "from", "to"), request["split"], strict=True))
    return {"dataset": dataset, **request}


def _warn_of_ranks(dataset: str) -> None:
    """A process that is one rank of many hardly ever means to read what all the others read too."""
    world, rank = os.environ.get("WORLD_SIZE", ""), os.environ.get("RANK", "")
    if world.isdecimal() and int(world) > 1:
        warnings.warn(
            f"this process is rank {rank or 'unknown'} of {world} (WORLD_SIZE), but the stream of {dataset} names no "
            "rank: every rank reads every row. Pass rank and world_size to share them, or rank=0 if that is meant",
            stacklevel=3,
        )


def _descriptor(request: dict[str, Any]) -> flight.FlightDescriptor:
    return flight.FlightDescriptor.for_command(encode(request))


def _dataset(info: flight.FlightInfo) -> Dataset:
    meta = json.loads(info.app_metadata)
    name = "/".join(part.decode() for part in info.descriptor.path)
    error = meta.get("error")
    corrupt = meta.get("corrupt", [])
    if error is None and corrupt:
        first = f"{corrupt[0]['shard']}: {corrupt[0]['error']}"
        error = f"shards that cannot be read: {len(corrupt)} of {meta['shards']}, the first: {first}"
    return Dataset(name, info.schema, info.total_records, info.total_bytes, error)

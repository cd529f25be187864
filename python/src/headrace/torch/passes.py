"""One pass over a data set: the steps of one stream, and the states behind them."""

import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from torch.utils.data._utils.collate import default_collate_fn_map

from headrace.errors import RequestError
from headrace.stats import Stats
from headrace.stream import Stream
from headrace.torch.tensors import Nulls, converter

# Of the whole job: snapshot, epoch (the first one of the pass) and cursor (None: the epoch's beginning). A worker's own
# has its number and theirs as `worker`, and as `start` the cursor from which all of them count their steps.
State = dict[str, Any]


class Batch(dict[str, Any]):
    """Tensors by column, the epoch they are of, and `state`: what a checkpoint keeps to go on behind this batch."""

    epoch: int
    state: State


def _refuse(batches: list[Batch], **_: Any) -> Any:
    """Collates batches for a DataLoader that is told to make batches of batches, which nobody means."""
    raise RequestError(
        "batches come ready from the gateway: DataLoader(dataset, batch_size=None), and the dataset has the batch_size"
    )


default_collate_fn_map[Batch] = _refuse


class Step(NamedTuple):
    """The states behind a step of a pass."""

    state: State  # to go on from with any number of ranks and workers
    begin: State  # of its pass, in this worker
    cursor: str | None  # of this worker's stream

    def worker(self) -> State:
        """The state to go on from in this worker."""
        return {**self.begin, "cursor": self.cursor}


class Pass(Iterator[tuple[Step, Any]]):
    """Reads on behind a state, and yields steps and their data. It is iterated by one thread, but any may close it."""

    def __init__(self, open_stream: Callable[[State], Stream], begin: State, nulls: Nulls | None) -> None:
        """Opens nothing before the first step.

        Args:
            open_stream: opens the stream behind a state.
            begin: that state, a worker's own.
            nulls: what becomes of them in tensors; None for record batches.
        """
        self._open = open_stream
        self._begin = begin
        self._nulls = nulls
        self._stream: Stream | None = None
        self._closed = threading.Event()
        self._convert: Callable[[pa.RecordBatch], Any] = lambda batch: batch

    def __next__(self) -> tuple[Step, Any]:
        stream = self._stream or self._opened()
        batch = _whole_step(stream)
        cursor = stream.cursor
        state = {"snapshot": self._begin["snapshot"], "epoch": self._begin["epoch"], "cursor": cursor}
        data = self._convert(batch)
        if self._nulls is not None:
            data = Batch(data)
            data.epoch, data.state = stream.epoch, state
        return Step(state, self._begin, cursor), data

    def _opened(self) -> Stream:
        if self._closed.is_set():
            raise StopIteration
        self._stream = stream = self._open(self._begin)
        if self._nulls is not None:
            self._convert = converter(stream.schema, self._nulls)
        if self._closed.is_set():
            stream.close()
        return stream

    def stats(self) -> Stats:
        """Where the stream's time went."""
        return Stats() if self._stream is None else self._stream.stats()

    def close(self) -> None:
        """Ends the pass, also for a thread that waits for its next step."""
        self._closed.set()
        if self._stream is not None:
            self._stream.close()


def _whole_step(stream: Stream) -> pa.RecordBatch:
    """Returns a stream's next step; one that is longer than a message is put together, which copies it."""
    batch = next(stream)
    if not stream.uncommitted:
        return batch
    parts = [batch]
    while stream.uncommitted:
        parts.append(next(stream))
    return pa.concat_batches(parts)

"""An IterableDataset over a gateway: ready batches, shared among ranks and workers, resumable from a checkpoint."""

import functools
import operator
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Literal, NoReturn, Unpack

from torch.utils.data import IterableDataset, get_worker_info

from headrace import child
from headrace.client import Client, Options, Plan, connect
from headrace.connection import Token
from headrace.errors import HeadraceError, RequestError
from headrace.stream import Stream
from headrace.torch import names, ranks
from headrace.torch.passes import Pass, State, Step
from headrace.torch.place import Place
from headrace.torch.tensors import Nulls, converter


class StreamingDataset(IterableDataset[Any]):
    """Streams the batches of this rank and this DataLoader worker; pass it to a DataLoader with `batch_size=None`.

    A pass over it yields the batches of one epoch, or of `num_epochs`, from the place on that `set_epoch` or
    `load_state_dict` set; without either, each pass yields the same. It opens nothing before the first batch is taken,
    so it may be made before workers are forked.
    """

    def __init__(
        self,
        uri: str = "",
        dataset: str = "",
        *,
        token: Token = None,
        tls_ca: str | os.PathLike[str] | None = None,
        timeout: float = 60.0,
        read_timeout: float = 300.0,
        retry_for: float = 300.0,
        shared_memory: bool = True,
        format: Literal["torch", "arrow"] = "torch",  # noqa: A002  the word that users of other loaders know
        fill: Any = None,
        mask: bool | Sequence[str] = False,
        **options: Unpack[Options],
    ) -> None:
        """Looks up the data set's newest snapshot, in a process that ends; on several ranks it is a collective call.

        Args:
            uri: of the gateway; it, `token`, `tls_ca` and the times are those of `headrace.connect`.
            dataset: its name.
            token: for a worker that is not forked it must be one that can be pickled.
            tls_ca: a file of certificates.
            timeout: seconds that a call may take that is not a stream.
            read_timeout: seconds that a stream may bring nothing.
            retry_for: seconds that a stream tries to go on.
            shared_memory: lets a gateway on the same host hand batches over in memory that both have mapped.
            format: `"torch"` for a `Batch` of tensors, `"arrow"` for a `pyarrow.RecordBatch`.
            fill: replaces nulls: a value, or a dict of values by column. Without it and `mask` nulls are an error.
            mask: columns (True: all) that come as `Masked`, with their nulls beside them.
            options: as for `Client.stream`: `batch_size` or `global_batch_size`, `shuffle`, `seed`, `columns`, `split`,
                `tail`, `num_epochs`, `window_blocks`, `snapshot` and so on. `rank` and `world_size` come from
                torch.distributed or the environment unless they are given.
        """
        names.check(options)
        if not uri or not dataset:  # not Python's own complaint: other loaders' names for these two are answered above
            raise RequestError(
                'the gateway or the data set is missing: StreamingDataset("grpc://HOST:PORT", "NAME", ...)'
            )
        if format not in ("torch", "arrow"):
            raise RequestError(f'format is "torch" or "arrow", not {format!r}')
        self.name = dataset
        self._connection = connect(
            uri,
            token=token,
            tls_ca=tls_ca,
            timeout=timeout,
            read_timeout=read_timeout,
            retry_for=retry_for,
            shared_memory=shared_memory,
        )._connection
        named = options.get("rank") is not None
        self.rank, self.world_size = ranks.find(options.pop("rank", None), options.pop("world_size", None))
        self._rows = self._global(options.pop("batch_size", None), options.pop("global_batch_size", None))
        self._tail = options.pop("tail", None) or ("drop" if self.world_size > 1 else "keep")
        self._options = options
        self._nulls = Nulls(fill, mask) if format == "torch" else None
        self.plan: Plan = ranks.resolve(self._connection, dataset, self._whole(), named, self.world_size)
        if self._nulls is not None:
            converter(self.plan.schema, self._nulls)  # so that a column that cannot be had is known at once
        self._place = Place()
        self._latest: Step | None = None  # of the latest pass in this process
        self._loaded: State | None = None  # in a worker: where its next pass begins

    def _global(self, batch_size: int | None, global_batch_size: int | None) -> int:
        """Returns the rows that all ranks take together in a step."""
        _check_size("batch_size", batch_size)
        _check_size("global_batch_size", global_batch_size)
        if batch_size and global_batch_size and batch_size * self.world_size != global_batch_size:
            raise RequestError(
                f"batch_size {batch_size} times world_size {self.world_size} is not global_batch_size "
                f"{global_batch_size}: give one of the two sizes"
            )
        if not batch_size and not global_batch_size:
            raise RequestError("batch_size is missing: the rows of a batch, on each rank")
        return global_batch_size or (batch_size or 0) * self.world_size

    def _whole(self) -> Options:
        """What all ranks ask for together: their steps are the same for any number of them."""
        return {**self._options, "global_batch_size": self._rows, "tail": self._tail}

    @property
    def snapshot(self) -> str:
        """The snapshot that all passes read, for `snapshot=`."""
        return self.plan.snapshot

    def __getitem__(self, index: Any) -> NoReturn:
        """Rows come in the order that was asked for, and batches are made at the gateway."""
        raise RequestError(f"a stream has no row {index}: iterate; `headrace peek {self.name}` shows some rows")

    def __len__(self) -> int:
        """How many steps a pass takes from its place on, over all workers."""
        if self._options.get("num_epochs") == -1:
            raise TypeError("a pass over epochs without end has no length")
        return self._left(self._beginning())

    def _left(self, state: State) -> int:
        """How many steps a pass takes behind a state."""
        epochs = self._options.get("num_epochs") or 1
        if state["cursor"] is None:
            return self.plan.steps
        epoch, (at, taken) = int(state["epoch"]), (int(number) for number in state["cursor"].split(":")[2:])
        if at >= epoch + epochs > epoch:
            return 0
        rows = (self.plan.rows - self.plan.padded + self.plan.dropped) // epochs - taken
        rest = rows // self._rows if self._tail == "drop" else -(-rows // self._rows)
        return rest + (epoch + epochs - 1 - at) * (self.plan.steps // epochs)

    def set_epoch(self, epoch: int) -> None:
        """Makes the next passes begin at an epoch; in that of a state that was loaded, behind the state."""
        at, state = self._place.get()
        if state is None or at != epoch:
            self._place.set(epoch, None)
            self._latest = None

    def state_dict(self) -> State:
        """The state behind the last batch that the trainer took of the latest pass in this process.

        Raises:
            HeadraceError: DataLoader workers make the passes, and what they have read the trainer need not have taken.
        """
        worker = get_worker_info()
        if worker is not None and self._loaded is not None:
            return self._loaded  # asked before the pass began
        if self._latest is not None:
            return self._latest.state if worker is None else self._latest.worker()
        if worker is None and self._place.in_workers:
            raise HeadraceError(
                "the passes are made in workers, which read ahead of the trainer: keep `state` of the last batch that "
                "counts, or use StatefulDataLoader or headrace.torch.Loader"
            )
        return self._beginning()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next passes begin behind a state, with any number of ranks and workers, at any batch size."""
        state = dict(state)
        missing = {"snapshot", "epoch", "cursor"} - set(state)
        if missing:
            raise RequestError(f"this is no state of a StreamingDataset: {', '.join(sorted(missing))} is missing")
        worker = get_worker_info()
        if worker is not None:
            self._load_in_worker(state, (worker.id, worker.num_workers))
            return
        if "worker" in state:
            raise RequestError(
                "this state is one worker's own, as StatefulDataLoader keeps it: load it there, with as many workers"
            )
        if state["snapshot"] != self.snapshot:
            self.plan = child.plan(self._connection, self.name, {**self._whole(), "snapshot": state["snapshot"]})
        if self._place.get()[0] > state["epoch"] and self._left(state) == 0:
            return  # nothing is left of its epoch, and set_epoch has named a later one, whichever was called first
        self._place.set(state["epoch"], state if state["cursor"] else None)
        self._latest = None

    def _load_in_worker(self, state: State, worker: tuple[int, int]) -> None:
        if tuple(state.get("worker", worker)) != worker:
            raise RequestError(
                f"this state is of worker {state['worker'][0]} of {state['worker'][1]}, and this is worker {worker[0]} "
                f"of {worker[1]}: go on with as many workers, or from a batch's own state with any number"
            )
        if state["snapshot"] != self.snapshot:
            raise RequestError(
                f"this state is of snapshot {state['snapshot']}, and the data set has changed since: make it with "
                "snapshot= that one"
            )
        # A state of the whole job is where this worker's steps are counted from.
        self._loaded = state if "worker" in state else {**state, "start": state["cursor"], "cursor": None}

    def __iter__(self) -> Iterator[Any]:
        # What is set later is for later passes, so the pass begins now and not with its first step.
        return self._noting(self.begin())

    def _noting(self, steps: Pass) -> Iterator[Any]:
        with closing(steps):
            for step, data in steps:
                self.note(step)
                yield data

    def note(self, step: Step) -> None:
        """Makes a step the one that `state_dict` speaks of: the trainer has it."""
        self._latest = step

    def begin(self) -> Pass:
        """Begins a pass; `state_dict` knows of those of its steps that are noted."""
        worker = get_worker_info()
        state, turn = self._beginning(), None
        begin, self._loaded = self._loaded, None
        if begin is None:
            begin, turn = {**state, "start": state["cursor"], "cursor": None}, self._place.turn
        if worker is not None:
            begin["worker"] = [worker.id, worker.num_workers]
            self._place.work()
        self.note(Step(state, begin, begin["cursor"]))
        return Pass(functools.partial(self._open, turn), begin, self._nulls)

    def _beginning(self) -> State:
        """The state that passes begin behind."""
        epoch, state = self._place.get()
        return state or {"snapshot": self.snapshot, "epoch": epoch, "cursor": None}

    def _warn_of_repeats(self, begin: State) -> None:
        if begin["start"] is None and self._options.get("shuffle") in (None, False, "none"):
            return
        where = "the state that was loaded" if begin["start"] else f"epoch {begin['epoch']}"
        warnings.warn(
            f"another pass begins at {where} of {self.name}, with the same batches in the same order: call "
            "set_epoch(epoch) before each pass, or set num_epochs and take all epochs in one",
            stacklevel=6,
        )

    def _open(self, turn: int | None, begin: State) -> Stream:
        """Opens the stream behind a worker's state; turn: that of the place where its pass began, if it was there."""
        worker_id, num_workers = begin.get("worker", (0, 1))
        if turn is not None and self._place.begin(turn, worker_id):
            self._warn_of_repeats(begin)
        request: Options = {
            **self._whole(),
            "snapshot": self.snapshot,
            "rank": self.rank,
            "world_size": self.world_size,
            "epoch": begin["epoch"],
            "start": begin["start"],
            "after": begin["cursor"],
            "num_workers": num_workers,
            "worker_id": worker_id,
        }
        with Client(self._connection) as client:
            return client.stream(self.name, **request)


def _check_size(name: str, size: Any) -> None:
    """Sizes are multiplied before the gateway sees them: it could not name what the caller wrote."""
    if size is not None and (isinstance(size, bool) or not hasattr(size, "__index__") or operator.index(size) < 1):
        raise RequestError(f"{name} must be a whole number of rows, at least 1, not {size!r}")

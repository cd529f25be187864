"""A loader without processes: one stream, transforms in threads, batches on their way to the device."""

import dataclasses
import os
import queue
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any

import torch

from headrace.errors import RequestError
from headrace.stats import Stats
from headrace.torch.dataset import StreamingDataset
from headrace.torch.device import Device, Sent
from headrace.torch.passes import Pass, Step
from headrace.torch.tensors import rows

# Seconds to wait for a thread that has been told to end, at most: it may be in the middle of a call to the gateway.
_PATIENCE = 5.0


class Loader:
    """Iterates a data set in the process that trains: what a DataLoader does with workers, done with threads.

    Batches come in the data set's order, however long each one's transform takes. `dataset.state_dict()` is the state
    behind the last batch that was taken from here.
    """

    def __init__(
        self,
        dataset: StreamingDataset,
        *,
        transform: Callable[[Any], Any] | None = None,
        transform_threads: int | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        device: torch.device | str | None = None,
        pin_memory: bool = False,
        prefetch: int = 3,
    ) -> None:
        """Opens nothing before the first batch is taken.

        Args:
            dataset: what to iterate.
            transform: makes of a batch what the trainer is to have, in a thread; with `collate`, of a row.
            transform_threads: how many; by default as many as processors, four at most.
            collate: makes a batch of a list of rows.
            device: where batches are to be; for CUDA they are copied ahead, out of pinned memory.
            pin_memory: leaves batches in pinned memory, for those who copy them themselves.
            prefetch: batches that are transformed or copied ahead of the trainer, at most.
        """
        if prefetch < 1 or (transform_threads is not None and transform_threads < 1):
            raise RequestError("prefetch and transform_threads are at least 1")
        self.dataset = dataset
        self.prefetch = prefetch
        self.threads = transform_threads or min(4, os.cpu_count() or 1)
        self.device = Device(device, pin_memory=pin_memory)
        self._transform = transform
        self._collate = collate
        self._stats = Stats()
        self._steps: Pass | None = None  # of the latest pass

    def __len__(self) -> int:
        return len(self.dataset)

    def stats(self) -> Stats:
        """Where the time of the latest pass went; `str` of it says in one line what to change."""
        own = self._stats
        if self._steps is None:
            return dataclasses.replace(own)
        return dataclasses.replace(
            self._steps.stats(),
            batches=own.batches,
            transform=own.transform,
            threads=own.threads,
            first=own.first,
            wait=own.wait,
            trainer=own.trainer,
        )

    def __iter__(self) -> Generator[Any, None, None]:
        # What is set later is for later passes, so the pass begins now and not with its first batch.
        return self._iterate(self.dataset.begin())

    def _iterate(self, steps: Pass) -> Generator[Any, None, None]:
        self._steps = steps
        stats = self._stats = Stats(threads=self.threads)
        left: float | None = None  # when the trainer got its last batch
        with closing(self._run(steps, stats)) as run:
            while True:
                asked = time.perf_counter()
                taken = run.take()
                if taken is None:
                    return
                step, batch = taken
                self.dataset.note(step)
                now = time.perf_counter()
                stats.take(left, asked, now)
                stats.batches += 1
                left = now
                yield batch

    def _run(self, steps: Pass, stats: Stats) -> "_Threads | _Straight":
        if self._transform is None and self._collate is None and self.device.idle:
            return _Straight(steps)
        return _Threads(self, steps, stats)

    def prepare(self, batch: Any) -> Sent:
        """Makes of a batch what the trainer is to have, in any thread."""
        if self._collate is not None:
            batch = self._collate([self._transform(row) if self._transform else row for row in rows(batch)])
        elif self._transform is not None:
            batch = self._transform(batch)
        return self.device.send(batch)


class _Straight:
    """A pass whose batches need no preparing: they are read ahead as it is, and to hand them on again costs time."""

    def __init__(self, steps: Pass) -> None:
        self._steps = steps

    def take(self) -> tuple[Step, Any] | None:
        """Returns the next step and its batch, or None at the end."""
        return next(self._steps, None)

    def close(self) -> None:
        """Ends the pass."""
        self._steps.close()


class _Threads:
    """The threads of one pass: one that reads, and some that prepare what it read."""

    def __init__(self, loader: Loader, steps: Pass, stats: Stats) -> None:
        self._loader = loader
        self._steps = steps
        self._stats = stats
        self._lock = threading.Lock()
        self._closed = False
        self._room = threading.Semaphore(loader.prefetch)
        self._ready: queue.SimpleQueue[tuple[Step, Future[Sent]] | BaseException] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(loader.threads, thread_name_prefix="headrace-transform")
        self._reader = threading.Thread(target=self._read, name="headrace-loader", daemon=True)
        self._reader.start()

    def take(self) -> tuple[Step, Any] | None:
        """Returns the next step and its batch, or None at the end."""
        ready = self._ready.get()
        if isinstance(ready, StopIteration):
            return None
        if isinstance(ready, BaseException):
            raise ready
        step, future = ready
        batch = self._loader.device.receive(future.result())
        self._room.release()
        return step, batch

    def close(self) -> None:
        """Ends the threads: what is being read is broken off, what is being prepared is waited for."""
        self._closed = True
        self._steps.close()
        self._room.release()
        self._pool.shutdown(cancel_futures=True)
        self._reader.join(_PATIENCE)

    def _read(self) -> None:
        try:
            while self._room.acquire() and not self._closed:
                step, data = next(self._steps)
                self._ready.put((step, self._pool.submit(self._prepare, data)))
        except BaseException as error:
            self._ready.put(error)

    def _prepare(self, batch: Any) -> Sent:
        began = time.perf_counter()
        try:
            return self._loader.prepare(batch)
        finally:
            with self._lock:
                self._stats.transform += time.perf_counter() - began

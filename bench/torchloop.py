"""The training loops that the torch bench compares: shuffled passes in batches of 256 rows, every byte touched.

torchloop.py LOOP WORKERS SOURCE...    read one pass, print {"seconds", "first", "cpu", "peak", "rows", "bytes",
                                       "batches", "sum"} as JSON: CPU seconds and peak bytes of memory are those of this
                                       process and its workers, first is the time to the first batch
torchloop.py resume URI NAME           go on in the middle of a pass, print the seconds until the first batch
torchloop.py share URI NAME            print {"pyarrow", "arrow", "torch", "shared"}: microseconds of CPU that small
                                       batches take, read by pyarrow alone, as record batches and tensors of a
                                       StreamingDataset, and as tensors in shared memory
torchloop.py convert FORMAT FROM TO    write a folder of Parquet files as FORMAT: arrow, mds, litdata (an index)
torchloop.py serve FILE                serve its rows, shuffled, from pyarrow's own Flight server; print "listening URI"
torchloop.py truth FOLDER              print what the sum of its Parquet files' samples must be

LOOP and SOURCE: headrace (Loader) URI NAME; wired (without shared memory) URI NAME; dataloader (headrace in a
DataLoader) URI NAME; ready URI NAME; mapped FILE; hf FOLDER; litdata FOLDER; mds FOLDER. WORKERS are those of
DataLoader; for ready, whether a thread reads ahead: 0 or 1.
"""

import importlib
import json
import os
import queue
import resource
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import torch
import wire
from pyarrow import flight
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

BATCH = 256
warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # what is made by hand lives with that
COLUMNS = {"x": np.float32, "id": np.int64, "label": np.int32}


def headrace(uri: str, name: str, workers: int = 0, state: Any = None, shared_memory: bool = True) -> Iterable[Any]:
    """One stream."""
    from headrace.torch import Loader, StreamingDataset

    dataset = StreamingDataset(uri, name, batch_size=BATCH, shuffle=True, seed=1, shared_memory=shared_memory)
    if state:
        dataset.load_state_dict(state(dataset))
    return Loader(dataset)


def wired(uri: str, name: str, workers: int = 0) -> Iterable[Any]:
    """One stream, over the wire."""
    return headrace(uri, name, workers, shared_memory=False)


def dataloader(uri: str, name: str, workers: int = 0) -> Iterable[Any]:
    """A stream for each worker."""
    from headrace.torch import StreamingDataset

    dataset = StreamingDataset(uri, name, batch_size=BATCH, shuffle=True, seed=1)
    return DataLoader(dataset, batch_size=None, num_workers=workers)


def serve(path: str) -> None:
    """Serve shuffled batches that lie ready in memory: what Flight alone costs."""
    rows = pa.ipc.open_file(pa.memory_map(path)).read_all()
    shuffled = rows.take(np.random.default_rng(1).permutation(rows.num_rows)).combine_chunks()
    wire.run(pa.Table.from_batches(shuffled.to_batches(max_chunksize=BATCH)))


def ready(uri: str, name: str, workers: int = 0) -> Iterator[dict[str, torch.Tensor]]:
    """What comes of a Flight server, by pyarrow alone."""
    reader = flight.connect(uri).do_get(flight.Ticket(name))
    chunks: Iterator[Any] = iter(lambda: next(reader, None), None)
    for chunk in ahead(chunks) if workers else chunks:
        batch = chunk.data
        yield {column: torch.from_numpy(numbers(batch[column], batch.num_rows)) for column in COLUMNS}


def ahead(chunks: Iterator[Any]) -> Iterator[Any]:
    """Let a thread read, a few chunks ahead."""
    came: queue.Queue[Any] = queue.Queue(8)

    def read() -> None:
        for chunk in chunks:
            came.put(chunk)
        came.put(None)

    threading.Thread(target=read, daemon=True).start()
    return iter(came.get, None)


class Mapped(Dataset[Any]):
    """What users write by hand over an Arrow file: rows are taken out of the mapped file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.table: pa.Table | None = None
        self.rows = pa.ipc.open_file(pa.memory_map(path)).read_all().num_rows

    def __len__(self) -> int:
        return self.rows

    def __getitems__(self, rows: list[int]) -> list[pa.Table]:
        if self.table is None:  # in the worker
            self.table = pa.ipc.open_file(pa.memory_map(self.path)).read_all()
        return [self.table.take(pa.array(rows))]


def tensors(taken: list[pa.Table]) -> dict[str, torch.Tensor]:
    """Make tensors of the rows, which take has copied already."""
    batch = taken[0].combine_chunks().to_batches()[0]
    return {name: torch.from_numpy(numbers(batch[name], batch.num_rows)) for name in batch.schema.names}


def numbers(column: pa.Array, rows: int) -> np.ndarray:
    """Return a column of numbers, or of equal lists of them, as an array; nothing is copied."""
    if pa.types.is_fixed_size_list(column.type):
        column = column.flatten()
    return column.to_numpy(zero_copy_only=True).reshape(rows, -1).squeeze()


def mapped(path: str, workers: int = 0) -> Iterable[Any]:
    """Rows drawn at random from a mapped file."""
    return DataLoader(Mapped(path), batch_size=BATCH, shuffle=True, num_workers=workers, collate_fn=tensors)


def hf(folder: str, workers: int = 0) -> Iterable[Any]:
    """Hugging Face datasets, streaming; its fixed sleep of five seconds at the end of a pass is taken out."""
    import datasets  # type: ignore[import-not-found]

    datasets.config.SLEEP_TIME_ON_THREADS_SHUTDOWN = 0
    source = datasets.load_dataset("parquet", data_files=f"{folder}/*.parquet", split="train", streaming=True)
    shuffled = source.shuffle(seed=1, buffer_size=10_000).with_format("arrow")
    return DataLoader(Tables(shuffled), batch_size=None, num_workers=workers)


class Tables(IterableDataset[Any]):
    """Batches of a Hugging Face data set out of its Arrow tables: its own ways to tensors are many times slower."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        part = self.source.shard(worker.num_workers, worker.id) if worker else self.source
        for table in part.iter(batch_size=BATCH):
            yield tensors([table])


def litdata(folder: str, workers: int = 0) -> Iterable[Any]:
    """LitData, reading Parquet files where they lie."""
    import litdata as ld  # type: ignore[import-not-found]
    from litdata.streaming.item_loader import ParquetLoader  # type: ignore[import-not-found]

    dataset = ld.StreamingDataset(f"local:{folder}", item_loader=ParquetLoader(), shuffle=True, seed=1)
    context = "spawn" if workers else None  # Polars and fork do not go together
    return ld.StreamingDataLoader(
        dataset, batch_size=BATCH, num_workers=workers, collate_fn=samples, multiprocessing_context=context
    )


def mds(folder: str, workers: int = 0) -> Iterable[Any]:
    """MosaicML StreamingDataset, over its own format."""
    from streaming import StreamingDataset  # type: ignore[import-not-found]
    from streaming.base.util import clean_stale_shared_memory  # type: ignore[import-not-found]

    clean_stale_shared_memory()
    dataset = StreamingDataset(local=folder, shuffle=True, batch_size=BATCH, shuffle_seed=1)
    return DataLoader(dataset, batch_size=BATCH, num_workers=workers, collate_fn=samples)


def samples(rows: list[Any]) -> dict[str, torch.Tensor]:
    """Stack samples, which are dicts, or lists in the order of the columns."""
    named = [row if isinstance(row, dict) else dict(zip(COLUMNS, row, strict=True)) for row in rows]
    return {
        name: torch.from_numpy(np.stack([np.asarray(row[name], kind) for row in named]))
        for name, kind in COLUMNS.items()
    }


LOOPS: dict[str, Callable[..., Iterable[Any]]] = {
    "headrace": headrace,
    "wired": wired,
    "dataloader": dataloader,
    "ready": ready,
    "mapped": mapped,
    "hf": hf,
    "litdata": litdata,
    "mds": mds,
}


# What a loop imports, before its time runs.
LIBRARIES = {
    "headrace": "headrace.torch",
    "wired": "headrace.torch",
    "dataloader": "headrace.torch",
    "hf": "datasets",
    "litdata": "litdata",
    "mds": "streaming",
}


def digest(batch: dict[str, Any]) -> int:
    """Sum up digests of whole samples, so that it is the same in whatever order they come; touches every byte."""
    x, number, label = batch["x"], batch["id"], batch["label"]
    h = x.reshape(len(number), -1).view(torch.int64).sum(1) ^ (number * 0x1E3779B97F4A7C15)
    h = (h ^ (h >> 32)) * 0x3F58476D1CE4E5B9 + label.long() * 0x14D049BB133111EB
    return int((h ^ (h >> 29)).sum())


def read(loop: str, workers: str, *source: str) -> None:
    """Read one pass and report."""
    total = rows = size = batches = 0
    first = 0.0
    os.environ["HF_HUB_OFFLINE"] = "1"
    if loop in LIBRARIES:
        importlib.import_module(LIBRARIES[loop])
    torch.set_num_threads(1)  # others only spin where processors have other work: no loop is faster with them
    memory = Memory()
    began, used = time.perf_counter(), cpu()
    for batch in LOOPS[loop](*source, workers=int(workers)):
        first = first or time.perf_counter() - began
        size += sum(value.nbytes for value in batch.values())
        total += digest(batch)
        rows += len(batch["id"])
        batches += 1
    took = time.perf_counter() - began
    report = {"seconds": took, "first": first, "cpu": cpu() - used, "peak": memory.end(), "rows": rows, "bytes": size}
    print(json.dumps(report | {"batches": batches, "sum": total % 2**64}))


def parquet(folder: str) -> ds.Dataset:
    """Return the Parquet files of a folder, in which LitData keeps an index too."""
    return ds.dataset(sorted(map(str, Path(folder).glob("*.parquet"))), format="parquet")


def truth(folder: str) -> None:
    """Sum up the samples as pyarrow and NumPy have them."""
    total = 0
    for batch in parquet(folder).to_batches(batch_size=4096):
        total += digest(tensors([pa.Table.from_batches([batch])]))
    print(total % 2**64)


def cpu() -> float:
    """CPU seconds of this process and of workers that have ended, user and system."""
    uses = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(use.ru_utime + use.ru_stime for use in uses)


class Memory:
    """Samples the proportional memory of this process and its children."""

    def __init__(self) -> None:
        self._peak = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def end(self) -> int:
        """Return the most that was seen, in bytes."""
        self._ended.set()
        self._thread.join()
        return self._peak

    def _watch(self) -> None:
        while not self._ended.wait(0.1):
            self._peak = max(self._peak, sum(private(process) for process in family(os.getpid())))


def family(parent: int) -> list[int]:
    """Return a process and its descendants."""
    children = Path(f"/proc/{parent}/task/{parent}/children")
    below = [int(child) for child in children.read_text().split()] if children.exists() else []
    return [parent, *(process for child in below for process in family(child))]


def private(process: int) -> int:
    """Return the memory of a process, its share of what several have; files do not count."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0
    sizes = dict(line.split(":") for line in text.splitlines()[1:])
    return sum(int(sizes[name].split()[0]) << 10 for name in ("Pss_Anon", "Pss_Shmem"))


def resume(*source: str) -> None:
    """Time how long it takes to go on in the middle of a pass."""

    def middle(dataset: Any) -> Any:
        plan = dataset.plan
        rows = plan.rows // 2 // BATCH * BATCH
        return {"snapshot": plan.snapshot, "epoch": 0, "cursor": f"hr1:{plan.plan[:32]}:0:{rows}"}

    began = time.perf_counter()
    next(iter(headrace(*source, state=middle)))
    print(json.dumps(time.perf_counter() - began))


def share(uri: str, name: str) -> None:
    """Measure what a batch costs this process, whatever its bytes cost: they are few."""
    from headrace.torch import StreamingDataset

    request: Any = {"columns": ["id", "label"], "num_epochs": 20, "batch_size": BATCH}

    def plain() -> int:
        with flight.connect(uri) as client:
            reader = client.do_get(flight.Ticket(json.dumps({"dataset": name, **request})))
            return sum(1 for _ in iter(lambda: next(reader, None), None))

    def ours(form: Any, shared: bool) -> int:
        return sum(1 for _ in StreamingDataset(uri, name, format=form, shared_memory=shared, **request))

    ways: dict[str, Callable[[], int]] = {
        "pyarrow": plain,
        "arrow": lambda: ours("arrow", False),
        "torch": lambda: ours("torch", False),
        "shared": lambda: ours("torch", True),
    }
    costs: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(5):
        for way, batches in ways.items():
            used = time.process_time()
            count = batches()
            costs[way].append((time.process_time() - used) / count * 1e6)
    print(json.dumps({way: float(np.median(cost)) for way, cost in costs.items()}))


def convert(form: str, folder: str, to: str) -> None:
    """Write what a rival needs."""
    table = parquet(folder).to_table()
    if form == "arrow":
        with pa.OSFile(to, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table.combine_chunks())  # take copies all that is in several record batches
    if form == "litdata":
        from litdata import index_parquet_dataset

        index_parquet_dataset(folder)
    if form == "mds":
        from streaming import MDSWriter

        kinds = {"x": "ndarray:float32:480", "id": "int64", "label": "int32"}
        with MDSWriter(out=to, columns=kinds) as out:
            for batch in table.to_batches():
                x = numbers(batch["x"], batch.num_rows)
                for row in range(batch.num_rows):
                    number, label = batch["id"][row].as_py(), np.int32(batch["label"][row].as_py())
                    out.write({"x": x[row], "id": number, "label": label})


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {
        "resume": resume,
        "share": share,
        "convert": convert,
        "serve": serve,
        "truth": truth,
    }
    if sys.argv[1] in commands:
        commands[sys.argv[1]](*sys.argv[2:])
    else:
        read(*sys.argv[1:])

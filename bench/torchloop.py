"""The training loops that the torch bench compares: shuffled passes in batches of 256 rows, every byte touched.

torchloop.py LOOP WORKERS SOURCE...    read one pass, print {"seconds", "first", "cpu", "peak", "rows", "bytes",
                                       "batches", "sum"} as JSON: CPU seconds and peak bytes of memory are those of this
                                       process and its workers, first is the time to the first batch
torchloop.py resume LOOP SOURCE...     go on in the middle of a pass, print the seconds until the first batch
torchloop.py convert FORMAT FROM TO    write a folder of Parquet files as FORMAT: arrow, mds, litdata (an index)

LOOP and SOURCE: headrace (threads) URI NAME; dataloader (headrace in DataLoader workers) URI NAME; mapped FILE;
hf FOLDER; litdata FOLDER; mds FOLDER. WORKERS are those of DataLoader.
"""

import json
import os
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
from torch.utils.data import DataLoader, Dataset

BATCH = 256
warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # what is made by hand lives with that
COLUMNS = {"x": np.float32, "id": np.int64, "label": np.int32}


def headrace(uri: str, name: str, workers: int = 0, state: Any = None) -> Iterable[Any]:
    """One stream, read by a thread."""
    from headrace.torch import Loader, StreamingDataset

    dataset = StreamingDataset(uri, name, batch_size=BATCH, shuffle=True, seed=1)
    if state:
        dataset.load_state_dict(state(dataset))
    return Loader(dataset)


def dataloader(uri: str, name: str, workers: int = 0) -> Iterable[Any]:
    """A stream for each worker."""
    from headrace.torch import StreamingDataset

    dataset = StreamingDataset(uri, name, batch_size=BATCH, shuffle=True, seed=1)
    return DataLoader(dataset, batch_size=None, num_workers=workers)


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
    os.environ["HF_HUB_OFFLINE"] = "1"
    import datasets  # type: ignore[import-not-found]

    datasets.config.SLEEP_TIME_ON_THREADS_SHUTDOWN = 0
    source = datasets.load_dataset("parquet", data_files=f"{folder}/*.parquet", split="train", streaming=True)
    shuffled = source.shuffle(seed=1, buffer_size=10_000)
    if workers:
        return DataLoader(shuffled.batch(BATCH).with_format("torch"), batch_size=None, num_workers=workers)

    def arrow() -> Iterator[Any]:
        for table in shuffled.with_format("arrow").iter(batch_size=BATCH):
            yield tensors([table])

    return arrow()


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
    "dataloader": dataloader,
    "mapped": mapped,
    "hf": hf,
    "litdata": litdata,
    "mds": mds,
}


def read(loop: str, workers: str, *source: str) -> None:
    """Read one pass and report; the sum is the same in whatever order rows come."""
    total = rows = size = batches = 0
    first = 0.0
    memory = Memory()
    began, used = time.perf_counter(), cpu()
    for batch in LOOPS[loop](*source, workers=int(workers)):
        first = first or time.perf_counter() - began
        for value in batch.values():
            size += value.nbytes
            total += int(value.view(torch.int64 if value[0].nbytes % 8 == 0 else torch.int32).sum())
        rows += len(batch["id"])
        batches += 1
    took = time.perf_counter() - began
    report = {"seconds": took, "first": first, "cpu": cpu() - used, "peak": memory.end(), "rows": rows, "bytes": size}
    print(json.dumps(report | {"batches": batches, "sum": total % 2**64}))


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


def resume(loop: str, *source: str) -> None:
    """Time how long it takes to go on in the middle of a pass."""
    if loop != "headrace":
        raise SystemExit("only headrace goes on from a state here")

    def middle(dataset: Any) -> Any:
        plan = dataset.plan
        rows = plan.rows // 2 // BATCH * BATCH
        return {"snapshot": plan.snapshot, "epoch": 0, "cursor": f"hr1:{plan.plan[:32]}:0:{rows}"}

    began = time.perf_counter()
    next(iter(headrace(*source, state=middle)))
    print(json.dumps(time.perf_counter() - began))


def convert(form: str, folder: str, to: str) -> None:
    """Write what a rival needs."""
    table = ds.dataset(folder, format="parquet").to_table()
    if form == "arrow":
        with pa.OSFile(to, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=2000)  # just under 4 MiB, as headrace would have it
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
    commands: dict[str, Callable[..., None]] = {"resume": resume, "convert": convert}
    if sys.argv[1] in commands:
        commands[sys.argv[1]](*sys.argv[2:])
    else:
        read(*sys.argv[1:])

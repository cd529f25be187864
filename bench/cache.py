"""The cache bench's trainer, over a gateway and over a store; its data in another format.

cache.py gateway URI REQUEST PAUSE EPOCHS          read a stream of so many epochs
cache.py store ENDPOINT FOLDER ROWS PAUSE EPOCHS   scan FOLDER (BUCKET/PREFIX of an S3 server) as often, with pyarrow,
                                                   in batches of ROWS rows; credentials come from the environment
cache.py ipc FROM TO ROWS                          write Parquet files as Arrow IPC files, in batches of ROWS rows

The trainer adds up every buffer of a batch and is busy with it for PAUSE ms in all. It prints a list with an item for
each epoch: {"seconds", "wait", "rows", "batches", "sum"} as JSON.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.flight as fl
import pyarrow.fs as fs
import pyarrow.parquet as pq
from client import find, numbers, row_sum


def streamed(uri: str, request: str) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield batches with the epochs that they are of."""
    client = fl.connect(uri)
    for chunk in client.do_get(find(client, request)):
        yield json.loads(chunk.app_metadata.to_pybytes())["epoch"], chunk.data


def scanned(endpoint: str, folder: str, rows: int, epochs: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield batches of the files, scanned anew for each epoch."""
    store = fs.S3FileSystem(endpoint_override=endpoint, region="us-east-1", scheme="http")
    data = ds.dataset(folder, filesystem=store, format="parquet")
    for epoch in range(epochs):
        for batch in data.to_batches(batch_size=rows):
            yield epoch, batch


def train(batches: Iterator[tuple[int, pa.RecordBatch]], pause: float, epochs: int) -> None:
    """Read at the pace of a trainer, and report."""
    told = [{"seconds": 0.0, "wait": 0.0, "rows": 0, "batches": 0, "sum": 0} for _ in range(epochs)]
    while True:
        began = time.perf_counter()
        epoch, batch = next(batches, (0, None))
        if batch is None:
            break
        came = time.perf_counter()
        t = told[epoch]
        t["sum"] = (int(t["sum"]) + sum(row_sum(column) for column in numbers(batch))) % 2**64
        t["rows"] += batch.num_rows
        t["batches"] += 1
        time.sleep(max(0.0, came + pause / 1000 - time.perf_counter()))
        t["wait"] += came - began
        t["seconds"] += time.perf_counter() - began
    print(json.dumps(told))


def ipc(source: str, target: str, rows: int) -> None:
    """Write files in another format."""
    Path(target).mkdir(parents=True)
    for path in sorted(Path(source).iterdir()):
        table = pq.read_table(path)
        with pa.OSFile(f"{target}/{path.stem}.arrow", "wb") as f, pa.ipc.new_file(f, table.schema) as w:
            w.write_table(table, max_chunksize=rows)


if __name__ == "__main__":
    what, args = sys.argv[1], sys.argv[2:]
    if what == "gateway":
        train(streamed(args[0], args[1]), float(args[2]), int(args[3]))
    elif what == "store":
        train(scanned(args[0], args[1], int(args[2]), int(args[4])), float(args[3]), int(args[4]))
    else:
        ipc(args[0], args[1], int(args[2]))

"""The stores bench's other readers: pyarrow's own S3 file system, in one process, without a wire.

stores.py scan ENDPOINT REQUESTS FOLDER      read all files as one table, touch every byte; print as client.py does
stores.py blocks ENDPOINT REQUESTS FOLDER    read row group by row group in random order, each when the last is there;
                                             print as client.py does
stores.py joined ENDPOINT REQUESTS FOLDER    the same, with near ranges joined and read at once
stores.py cut FROM TO ROWS                   write Parquet files again, with row groups of so many rows

FOLDER is BUCKET/PREFIX. Credentials come from the environment.
"""

import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as fs
import pyarrow.parquet as pq
from client import cpu, touch


def scan(store: fs.FileSystem, folder: str) -> Iterator[pa.RecordBatch]:
    """Yield each row group as one batch, so that no buffer is seen twice."""
    return iter(ds.dataset(folder, filesystem=store, format="parquet").to_batches(batch_size=1 << 30))


def blocks(store: fs.FileSystem, folder: str, joined: bool) -> Iterator[pa.RecordBatch]:
    """Yield row groups in random order, one after the other."""
    paths = [f.path for f in store.get_file_info(fs.FileSelector(folder))]
    files = [pq.ParquetFile(path, filesystem=store, pre_buffer=joined) for path in sorted(paths)]
    groups = [(f, i) for f in files for i in range(f.num_row_groups)]
    random.Random(1).shuffle(groups)
    for f, i in groups:
        yield from f.read_row_group(i).combine_chunks().to_batches()


def cut(source: str, target: str, rows: str) -> None:
    """Write files again with other row groups."""
    Path(target).mkdir(parents=True)
    for path in sorted(Path(source).iterdir()):
        pq.write_table(pq.read_table(path), f"{target}/{path.name}", row_group_size=int(rows))


def main(what: str, endpoint: str, requests: str, folder: str) -> None:
    """Read, and report."""
    pa.set_io_thread_count(int(requests))
    store = fs.S3FileSystem(endpoint_override=endpoint, region="us-east-1", scheme="http")
    read = {"scan": scan, "blocks": lambda s, f: blocks(s, f, False), "joined": lambda s, f: blocks(s, f, True)}[what]
    total = rows = size = batches = 0
    began, used = time.perf_counter(), cpu()
    for batch in read(store, folder):
        rows += batch.num_rows
        size += sum(b.size for column in batch.columns for b in column.buffers() if b is not None)
        total += sum(touch(column) for column in batch.columns)
        batches += 1
    took, used = time.perf_counter() - began, cpu() - used
    report = {"seconds": took, "cpu": used, "rows": rows, "bytes": size, "batches": batches, "sum": total % 2**64}
    print(json.dumps(report))


if __name__ == "__main__":
    if sys.argv[1] == "cut":
        cut(*sys.argv[2:])
    else:
        main(*sys.argv[1:])

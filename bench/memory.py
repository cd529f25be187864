"""Make the data of the memory bench.

memory.py many DIR SETS BYTES        data sets of Parquet, each of so many bytes once decoded
memory.py groups DIR BYTES GROUP     one Parquet file with row groups of so many bytes
memory.py arrow DIR BYTES            one Arrow file, record batches of 4 MB
"""

import os
import sys
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

WIDTH = 128  # numbers in a row's vector
ROW = 8 + 4 * WIDTH + 80  # bytes of a row, about
CHUNK = 8192  # rows made at a time


def rows(total: int) -> Iterator[pa.RecordBatch]:
    """So many rows of a number, a vector and a text that is longer for some rows than for others."""
    random = np.random.default_rng(7)
    alphabet = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ .,;:0123456", dtype=np.uint8)
    for at in range(0, total, CHUNK):
        n = min(CHUNK, total - at)
        values = random.standard_normal(n * WIDTH, dtype=np.float32)
        lengths = random.integers(40, 120, n)
        letters = alphabet[random.integers(0, len(alphabet), int(lengths.sum()))]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        text = pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(letters))
        vector = pa.FixedSizeListArray.from_arrays(pa.array(values), WIDTH)
        yield pa.record_batch({"id": pa.array(np.arange(at, at + n)), "vector": vector, "text": text})


def parquet(path: str, size: int, group: int) -> None:
    """Write a file of row groups, each made in memory."""
    writer = None
    some: list[pa.RecordBatch] = []
    left = size // ROW
    for batch in rows(left):
        some.append(batch)
        left -= batch.num_rows
        if left and sum(b.num_rows for b in some) < group // ROW:
            continue
        table = pa.Table.from_batches(some)
        writer = writer or pq.ParquetWriter(path, table.schema, use_dictionary=False)
        writer.write_table(table, row_group_size=table.num_rows)
        some = []
    assert writer is not None
    writer.close()


def main(what: str, folder: str, *numbers: str) -> None:
    """Make a folder of data."""
    os.makedirs(folder)
    if what == "many":
        sets, size = map(int, numbers)
        for i in range(sets):
            os.makedirs(f"{folder}/set-{i:02}")
            parquet(f"{folder}/set-{i:02}/data.parquet", size, 64 << 20)
    elif what == "groups":
        size, group = map(int, numbers)
        parquet(f"{folder}/data.parquet", size, group)
    else:
        per_batch = 4_000_000 // ROW
        table = None
        for batch in rows(int(numbers[0]) // ROW):
            if table is None:
                table = pa.ipc.new_file(f"{folder}/data.arrow", batch.schema)
            for at in range(0, batch.num_rows, per_batch):
                table.write_batch(batch.slice(at, per_batch))
        assert table is not None
        table.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

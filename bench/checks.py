"""Make the data of the checks bench: the same bytes in a type whose values are checked, and in one whose are not.

checks.py KIND FOLDER BYTES   data sets FOLDER/checked and FOLDER/free, of about so many bytes each
"""

import os
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

CHUNK = 4_000_000  # bytes made at a time: a block
LENGTH = 480  # numbers of a list
JAPANESE = "水車に水を送る水路は、上流の堰から始まる。データを読み込む速さが、学習の速さを決める。"
ENGLISH = "The channel that feeds the turbine begins above the weir. What reads data decides how fast it is learnt. "


def texts(sentence: str, random: np.random.Generator) -> tuple[pa.Array, pa.Array]:
    """Make texts of some hundred bytes, as strings and as binaries over the same memory."""
    letters = sentence.encode() * 40
    step = len(sentence.encode())
    sizes = random.integers(1, 20, CHUNK // (10 * step)) * step
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    whole = letters * (int(offsets[-1]) // len(letters) + 1)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(whole[: int(offsets[-1])])]
    rows = len(sizes)
    return pa.Array.from_buffers(pa.string(), rows, buffers), pa.Array.from_buffers(pa.binary(), rows, buffers)


def lists(random: np.random.Generator) -> tuple[pa.Array, pa.Array]:
    """Make lists of one length, whose offsets are checked, and lists that have none."""
    rows = CHUNK // (4 * LENGTH)
    values = pa.array(random.standard_normal(rows * LENGTH, dtype=np.float32))
    offsets = np.arange(0, rows * LENGTH + 1, LENGTH, dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values), pa.FixedSizeListArray.from_arrays(values, LENGTH)


def main(kind: str, folder: str, size: str) -> None:
    """Write both data sets."""
    what, form = kind.split("-")
    random = np.random.default_rng(3)
    pair = lists(random) if what == "lists" else texts(JAPANESE if what == "japanese" else ENGLISH, random)
    for name, values in zip(("checked", "free"), pair, strict=True):
        os.makedirs(f"{folder}/{name}")
        batch = pa.record_batch({"values": values})
        chunks = max(1, int(size) // CHUNK)
        if form == "arrow":
            with ipc.new_file(f"{folder}/{name}/data.arrow", batch.schema) as arrow:
                for _ in range(chunks):
                    arrow.write_batch(batch)
            continue
        with pq.ParquetWriter(f"{folder}/{name}/data.parquet", batch.schema, use_dictionary=False) as parquet:
            for _ in range(0, chunks, 16):
                parquet.write_table(pa.Table.from_batches([batch] * 16))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The data of the decode bench, and pyarrow's reading of it.

decode.py write KIND FOLDER BYTES     write files of about so many decoded bytes
decode.py read FOLDER                 for each line THREADS on the standard input, read all files with so many threads
                                      and print {"Seconds", "CPU", "Rows", "Bytes"}

All writer options are pyarrow's defaults, but for the encodings that a kind is named after.
"""

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FILES = 8
Make = Callable[[np.random.Generator, int], pa.Array]


def floats(rng: np.random.Generator, rows: int) -> pa.Array:
    """Make lists of 480 floats."""
    return pa.FixedSizeListArray.from_arrays(pa.array(rng.standard_normal(rows * 480, dtype=np.float32)), 480)


def fixed(rng: np.random.Generator, rows: int) -> pa.Array:
    """Make the same as values of a fixed length."""
    data = rng.standard_normal(rows * 480, dtype=np.float32)
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(1920), rows, [None, pa.py_buffer(data)])


def blobs(rng: np.random.Generator, rows: int) -> pa.Array:
    """Make values of 60 to 140 KiB that do not compress, as images do not."""
    return pa.array([rng.bytes(int(n)) for n in rng.integers(60 << 10, 140 << 10, rows)], pa.binary())


def strings(rng: np.random.Generator, rows: int) -> pa.Array:
    """Make distinct strings of 20 bytes."""
    return pa.array([f"{a:020x}" for a in rng.integers(0, 1 << 62, rows).tolist()])


def texts(rng: np.random.Generator, rows: int) -> pa.Array:
    """Make texts of about 1 KiB."""
    words = [rng.bytes(int(n)).hex() for n in rng.integers(1, 6, 4000)]
    picks = rng.integers(0, len(words), (rows, 150))
    return pa.array([" ".join([words[i] for i in row]) for row in picks.tolist()], pa.large_string())


def lists(rng: np.random.Generator, rows: int) -> pa.Array:
    """Make token sequences of random lengths."""
    offsets = np.concatenate([[0], rng.integers(0, 1000, rows).cumsum()]).astype("int32")
    return pa.ListArray.from_arrays(offsets, rng.integers(0, 50_000, offsets[-1], dtype="int32"))


def picked(of: pa.Array) -> Make:
    """Make few values again and again."""
    return lambda rng, rows: of.take(pa.array(rng.integers(0, len(of), rows)))


def deltas(rng: np.random.Generator, rows: int) -> pa.Array:
    """Make times that rise."""
    return pa.array(rng.integers(0, 2000, rows).cumsum() + 1_700_000_000_000_000)


def nulls(rng: np.random.Generator, rows: int) -> pa.Array:
    """Make floats of which one in ten is null."""
    return pa.array(rng.standard_normal(rows), mask=rng.random(rows) < 0.1)


# What makes a kind's values, the bytes of one, and options of the writer.
KINDS: dict[str, tuple[Make, int, dict[str, Any]]] = {
    "floats": (floats, 1920, {}),
    "fixed": (fixed, 1920, {}),
    "blobs": (blobs, 100 << 10, {}),
    "int64": (picked(pa.array(range(0, 1_000_000, 1000))), 8, {}),
    "int32": (picked(pa.array(range(0, 1_000_000, 1000), pa.int32())), 4, {}),
    "words": (picked(pa.array([f"https://example.com/x/{i:05}" for i in range(2000)])), 31, {}),
    "strings": (strings, 24, {"use_dictionary": False}),
    "texts": (texts, 1060, {"use_dictionary": False}),
    "nulls": (nulls, 8, {}),
    "deltas": (deltas, 8, {"use_dictionary": False, "column_encoding": {"x": "DELTA_BINARY_PACKED"}}),
    "lists": (lists, 2000, {}),
}


def write(kind: str, folder: str, size: str) -> None:
    """Write files of up to four million rows."""
    make, width, options = KINDS[kind]
    Path(folder).mkdir(parents=True)
    rng = np.random.default_rng(1)
    for i in range(FILES):
        rows = max(1, min(int(size) // FILES // width, 1 << 22))
        pq.write_table(pa.table({"x": make(rng, rows)}), f"{folder}/part-{i:05}.parquet", **options)


def scan(file: Path) -> tuple[int, int]:
    """Read one file; return rows and bytes."""
    with pq.ParquetFile(file, memory_map=True) as f:
        table = f.read(use_threads=False)
        return table.num_rows, table.nbytes


def read(folder: str) -> None:
    """Serve measurements until the input ends."""
    files = sorted(Path(folder).iterdir())
    for line in sys.stdin:
        begin, used = time.perf_counter(), time.process_time()
        with ThreadPoolExecutor(int(line)) as pool:
            done = list(pool.map(scan, files))
        seconds, cpu = time.perf_counter() - begin, time.process_time() - used
        rows, size = (sum(part) for part in zip(*done, strict=True))
        print(json.dumps({"Seconds": seconds, "CPU": cpu, "Rows": rows, "Bytes": size}), flush=True)


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {"write": write, "read": read}
    commands[sys.argv[1]](*sys.argv[2:])

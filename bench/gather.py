"""Takes random rows with numpy and pyarrow, for the gather bench.

gather.py SHAPE FRAMES FRAME_ROWS BATCH     make the data; then, for each line "METHOD SECONDS" on the standard input,
                                            take batches for about so long and print {"Seconds", "Rows", "Bytes"},
                                            the seconds those of one processor

The data of a row are a function of its number, which is its id; SHAPE says which columns there are. METHOD is
numpy         fancy indexing of one array for each column
pyarrow       take from one record batch
chunked       take from a table of FRAMES chunks
"""

import json
import sys
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

Columns = dict[str, np.ndarray]


def samples(ids: np.ndarray) -> Columns:
    """Make x of 480 floats, id int64, label int32."""
    x = np.broadcast_to(ids.astype("float32")[:, None], (len(ids), 480)).copy()
    return {"x": x, "id": ids, "label": ids.astype("int32")}


def bytes64(ids: np.ndarray) -> Columns:
    """Make six columns of 64 bytes together."""
    floats = ids.astype("float32")
    tail = np.broadcast_to(ids[:, None], (len(ids), 4)).copy().view("V32")[:, 0]
    return {"id": ids, "a": ids + 1, "b": ids + 2, "c": floats, "d": floats + 1, "e": tail}


def pages(ids: np.ndarray) -> Columns:
    """Make values of 4,096 bytes that are the id again and again."""
    return {"id": np.broadcast_to(ids[:, None], (len(ids), 512)).copy().view("V4096")[:, 0]}


def numbers(ids: np.ndarray) -> Columns:
    """Make the id alone."""
    return {"id": ids}


SHAPES: dict[str, Callable[[np.ndarray], Columns]] = {
    "samples": samples,
    "bytes64": bytes64,
    "pages": pages,
    "numbers": numbers,
}


def arrow(a: np.ndarray) -> pa.Array:
    """View an array without copying it."""
    if a.ndim == 2:
        return pa.FixedSizeListArray.from_arrays(pa.array(a.reshape(-1)), a.shape[1])
    if a.dtype.kind == "V":
        return pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(a.dtype.itemsize), len(a), [None, pa.py_buffer(a.view("u1"))]
        )
    return pa.array(a)


def ids_of(taken: Columns | pa.RecordBatch | pa.Table) -> np.ndarray:
    """Return what came as id, as numbers."""
    if isinstance(taken, pa.Table):
        taken = taken.combine_chunks().to_batches()[0]
    if isinstance(taken, dict):
        a = taken["id"]
    else:
        column = taken.column("id")
        a = np.frombuffer(column.buffers()[1], f"V{column.type.bit_width // 8}", len(column), 0)
    return np.ascontiguousarray(a).view("int64").reshape(len(a), -1)[:, 0]


def main(shape: str, frames: int, frame_rows: int, batch: int) -> None:
    """Serve measurements until the input ends."""
    pa.set_cpu_count(1)
    columns = SHAPES[shape](np.arange(frames * frame_rows))
    whole = pa.record_batch({name: arrow(a) for name, a in columns.items()})
    table = pa.Table.from_batches([whole.slice(i * frame_rows, frame_rows) for i in range(frames)])
    methods: dict[str, Callable[[np.ndarray], Columns | pa.RecordBatch | pa.Table]] = {
        "numpy": lambda rows: {name: a[rows] for name, a in columns.items()},
        "pyarrow": lambda rows: whole.take(pa.array(rows)),
        "chunked": lambda rows: table.take(pa.array(rows)),
    }
    width = sum(a.nbytes for a in columns.values()) // len(whole)
    order = np.random.default_rng(1).integers(0, len(whole), max(1 << 21, 2 * batch))
    for line in sys.stdin:
        name, seconds = line.split()
        take, rows = methods[name], 0
        if not np.array_equal(ids_of(take(order[:batch])), order[:batch]):
            raise AssertionError(f"{name} took other rows than were asked for")
        begin = time.process_time()
        while (spent := time.process_time() - begin) < float(seconds):
            at = rows % (len(order) - batch)
            take(order[at : at + batch])
            rows += batch
        print(json.dumps({"Seconds": spent, "Rows": rows, "Bytes": rows * width}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))

"""The Parquet bench's data, and pyarrow's own server of it; the start bench's files.

parquet.py wide FOLDER BYTES      write files of about so many decoded bytes: rows of 480 floats
parquet.py table FOLDER BYTES     the same, rows of integers, floats with nulls, and strings
parquet.py small FOLDER COUNT     write so many files of 200 rows
parquet.py serve FOLDER ROWS      scan the files with pyarrow and stream them with its C++ Flight server in batches
                                  of at most so many rows (0: the scanner's default); print "listening URI"

All writer options are pyarrow's defaults.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.flight as fl
import pyarrow.parquet as pq

FILES = 4
WIDTH = 480  # floats in x: a window of 10 s at 48 Hz
SMALL = 200  # rows of a small file
COUNTRIES = pa.array([f"country-{i:03}" for i in range(200)])
PAGES = pa.array([f"https://example.com/item/{i:04}" for i in range(2000)])


def wide_rows(rng: np.random.Generator, first: int, rows: int) -> pa.Table:
    """Make x fixed_size_list<float32>[480], id int64, label int32."""
    ids = np.arange(first, first + rows)
    x = pa.FixedSizeListArray.from_arrays(pa.array(rng.standard_normal(rows * WIDTH, dtype=np.float32)), WIDTH)
    return pa.table({"x": x, "id": ids, "label": (ids % 1000).astype("int32")})


def table_rows(rng: np.random.Generator, first: int, rows: int) -> pa.Table:
    """Make what logs and features look like: nine columns, about 80 bytes a row."""
    ids = np.arange(first, first + rows)
    return pa.table(
        {
            "id": ids,
            "time": pa.array(1_700_000_000_000_000 + ids * 1000 + rng.integers(0, 1000, rows), pa.timestamp("us")),
            "user": rng.zipf(1.3, rows).clip(max=1_000_000).astype("int32"),
            "item": rng.integers(0, 50_000, rows, dtype="int32"),
            "price": pa.array(rng.lognormal(3, 1, rows).round(2), mask=rng.random(rows) < 0.1),
            "score": pa.array(rng.standard_normal(rows, dtype=np.float32), mask=rng.random(rows) < 0.02),
            "country": COUNTRIES.take(rng.integers(0, len(COUNTRIES), rows)),
            "page": PAGES.take(rng.integers(0, len(PAGES), rows)),
            "label": rng.random(rows) < 0.3,
        }
    )


def write(make: Callable[[np.random.Generator, int, int], pa.Table], folder: str, files: int, rows: int) -> None:
    """Write files of so many rows each."""
    Path(folder).mkdir(parents=True)
    rng = np.random.default_rng(1)
    for i in range(files):
        pq.write_table(make(rng, i * rows, rows), f"{folder}/part-{i:05}.parquet")


def wide(folder: str, size: str) -> None:
    """Write the wide data set."""
    write(wide_rows, folder, FILES, max(1, int(size) // FILES // (4 * WIDTH + 12)))


def table(folder: str, size: str) -> None:
    """Write the tabular data set."""
    write(table_rows, folder, FILES, max(1, int(size) // FILES // 80))


def small(folder: str, count: str) -> None:
    """Write many small files."""
    write(table_rows, folder, int(count), SMALL)


class Server(fl.FlightServerBase):  # type: ignore[misc]
    """Streams what a scanner reads, without Python in the loop."""

    def __init__(self, folder: str, rows: int) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.dataset = ds.dataset(folder, format="parquet")
        self.options = {"batch_size": rows} if rows else {}

    def do_get(self, context: fl.ServerCallContext, ticket: fl.Ticket) -> fl.RecordBatchStream:
        """Scan all files, in order."""
        return fl.RecordBatchStream(self.dataset.scanner(**self.options).to_reader())


def serve(folder: str, rows: str) -> None:
    """Serve until killed."""
    server = Server(folder, int(rows))
    print(f"listening grpc://127.0.0.1:{server.port}", flush=True)
    server.serve()


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {"wide": wide, "table": table, "small": small, "serve": serve}
    commands[sys.argv[1]](*sys.argv[2:])

"""The wire bench's data, and pyarrow's own server of it.

wire.py make FOLDER BYTES   write wire.arrow of about so many bytes into a new folder
wire.py serve FILE [ROWS]   serve it with pyarrow's C++ Flight server, memory mapped, in batches as stored or of at
                            most so many rows; print "listening URI"
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

WIDTH = 480  # floats in x: a window of 10 s at 48 Hz
ROW = 4 * WIDTH + 8 + 4
BATCH_ROWS = 2032  # 3,925,824 bytes: one block, and a message under 4 MiB


def make(folder: str, size: str) -> None:
    """Write batches of x fixed_size_list<float32>[480], id int64, label int32."""
    Path(folder).mkdir(parents=True)
    rng = np.random.default_rng(1)
    x = rng.standard_normal(BATCH_ROWS * WIDTH, dtype=np.float32)
    schema = pa.schema([("x", pa.list_(pa.float32(), WIDTH)), ("id", pa.int64()), ("label", pa.int32())])
    with pa.OSFile(f"{folder}/wire.arrow", "wb") as f, pa.ipc.new_file(f, schema) as w:
        for i in range(max(1, round(int(size) / (ROW * BATCH_ROWS)))):
            ids = np.arange(i * BATCH_ROWS, (i + 1) * BATCH_ROWS)
            values = pa.FixedSizeListArray.from_arrays(pa.array(np.roll(x, i)), WIDTH)
            w.write_batch(
                pa.record_batch([values, pa.array(ids), pa.array((ids % 1000).astype("int32"))], schema=schema)
            )


class Server(fl.FlightServerBase):  # type: ignore[misc]
    """Streams a table without Python in the loop."""

    def __init__(self, table: pa.Table) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.table = table

    def do_get(self, context: fl.ServerCallContext, ticket: fl.Ticket) -> fl.RecordBatchStream:
        """Send the whole table, batches as they are."""
        return fl.RecordBatchStream(self.table)


def serve(path: str, rows: str = "") -> None:
    """Serve a mapped file."""
    table = pa.ipc.open_file(pa.memory_map(path)).read_all()
    run(pa.Table.from_batches(table.to_batches(max_chunksize=int(rows))) if rows else table)


def run(table: pa.Table) -> None:
    """Serve a table until killed."""
    server = Server(table)
    print(f"listening grpc://127.0.0.1:{server.port}", flush=True)
    server.serve()


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {"make": make, "serve": serve}
    commands[sys.argv[1]](*sys.argv[2:])

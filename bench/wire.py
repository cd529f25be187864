"""The Python half of the wire bench: the data, pyarrow's own server, and the client that is measured.

wire.py make FILE BYTES     write an Arrow file of about so many bytes
wire.py serve FILE          serve it with pyarrow's C++ Flight server, memory mapped; print "listening URI"
wire.py read URI [NAME]     read the data set NAME (else whatever the server has), touch every byte,
                            print {"seconds", "cpu", "bytes", "batches", "sum"} as JSON
"""

import json
import resource
import sys
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

WIDTH = 480  # floats in x: a window of 10 s at 48 Hz
ROW = 4 * WIDTH + 8 + 4
BATCH_ROWS = 2032  # 3,925,824 bytes: one block, and a message under 4 MiB


def make(path: str, size: str) -> None:
    """Write batches of x fixed_size_list<float32>[480], id int64, label int32."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal(BATCH_ROWS * WIDTH, dtype=np.float32)
    schema = pa.schema([("x", pa.list_(pa.float32(), WIDTH)), ("id", pa.int64()), ("label", pa.int32())])
    with pa.OSFile(path, "wb") as f, pa.ipc.new_file(f, schema) as w:
        for i in range(max(1, round(int(size) / (ROW * BATCH_ROWS)))):
            ids = np.arange(i * BATCH_ROWS, (i + 1) * BATCH_ROWS)
            values = pa.FixedSizeListArray.from_arrays(pa.array(np.roll(x, i)), WIDTH)
            w.write_batch(
                pa.record_batch([values, pa.array(ids), pa.array((ids % 1000).astype("int32"))], schema=schema)
            )


class Server(fl.FlightServerBase):  # type: ignore[misc]
    """Streams a table without Python in the loop."""

    def __init__(self, path: str) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.table = pa.ipc.open_file(pa.memory_map(path)).read_all()

    def do_get(self, context: fl.ServerCallContext, ticket: fl.Ticket) -> fl.RecordBatchStream:
        """Send the whole table, batches as stored."""
        return fl.RecordBatchStream(self.table)


def serve(path: str) -> None:
    """Serve until killed."""
    server = Server(path)
    print(f"listening grpc://127.0.0.1:{server.port}", flush=True)
    server.serve()


def touch(array: pa.Array) -> int:
    """Add up all buffers as 64-bit integers, so that each byte is read."""
    total = 0
    for buffer in array.buffers():
        if buffer is not None:
            total += int(np.frombuffer(buffer, np.int64, buffer.size // 8).sum(dtype=np.int64))
    return total


def cpu() -> float:
    """CPU seconds of this process, user and system."""
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


def read(uri: str, name: str = "") -> None:
    """Read one stream and report."""
    client = fl.connect(uri)
    ticket = fl.Ticket(b"all")
    if name:
        ticket = client.get_flight_info(fl.FlightDescriptor.for_path(name)).endpoints[0].ticket
    total = size = batches = 0
    began, used = time.perf_counter(), cpu()
    for chunk in client.do_get(ticket):
        size += sum(b.size for column in chunk.data.columns for b in column.buffers() if b is not None)
        total += sum(touch(column) for column in chunk.data.columns)
        batches += 1
    took, used = time.perf_counter() - began, cpu() - used
    print(json.dumps({"seconds": took, "cpu": used, "bytes": size, "batches": batches, "sum": total % 2**64}))


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {"make": make, "serve": serve, "read": read}
    commands[sys.argv[1]](*sys.argv[2:])

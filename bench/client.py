"""The client that is measured: stock pyarrow, one stream at a time. A server without data set names needs no NAME;
a request as JSON may stand in its place.

client.py read URI [NAME]          read everything, touch every byte; print
                                   {"seconds", "cpu", "rows", "bytes", "batches", "sum"} as JSON
client.py shared URI NAME          the same by headrace's own client, in memory that it shares with the gateway
client.py wired URI NAME           the same without that
client.py train URI [NAME]         the same, but the sum is one of rows, in whatever order and batches they come
client.py first URI COUNT [NAME]   on one warm connection, call DoGet COUNT times and wait for the first batch;
                                   print the seconds of each as a JSON list
client.py borders URI COUNT [NAME] read over so many borders of epochs, touch every byte; print the seconds that batches
                                   were waited for, {"first": [after each border]} and of the others {"usual": median,
                                   "behind": 95th percentile, "far": 99th, "longest", "late": which part of them waited
                                   for more than three times their 95th percentile}, as JSON
client.py shared-borders URI COUNT NAME    the same by headrace's own client, in memory that it shares with the gateway
client.py waits URI COUNT [NAME]   read everything COUNT times, touch every byte; print of all batches but the first of
                                   each time what borders prints of the others
client.py fresh URI [NAME]         wait for the first batch of one DoGet; print the seconds as JSON
client.py check URI FOLDER [NAME]  read everything, compare it with what pyarrow reads from the Parquet files in
                                   FOLDER; print {"rows", "bytes"} of the decoded table as JSON
"""

import json
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.flight as fl


def find(client: fl.FlightClient, name: str) -> fl.Ticket:
    """Return the ticket of a whole data set, or of a request, as one stream."""
    if not name:
        return fl.Ticket(b"all")
    request = name if name.startswith("{") else json.dumps({"dataset": name})
    return client.get_flight_info(fl.FlightDescriptor.for_command(request)).endpoints[0].ticket


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
    ticket = find(client, name)
    touch_all(lambda: (chunk.data for chunk in client.do_get(ticket)))


def shared(uri: str, name: str, *, shared_memory: bool = True) -> None:
    """Read one stream and report."""
    import headrace

    with headrace.connect(uri, shared_memory=shared_memory) as client:
        touch_all(lambda: client.stream(name))


def wired(uri: str, name: str) -> None:
    """Read one stream and report."""
    shared(uri, name, shared_memory=False)


def touch_all(read: Callable[[], Iterable[pa.RecordBatch]]) -> None:
    """Read batches, touch every byte, and report."""
    total = rows = size = batches = 0
    began, used = time.perf_counter(), cpu()
    for batch in read():
        rows += batch.num_rows
        size += sum(b.size for column in batch.columns for b in column.buffers() if b is not None)
        total += sum(touch(column) for column in batch.columns)
        batches += 1
    took, used = time.perf_counter() - began, cpu() - used
    report = {"seconds": took, "cpu": used, "rows": rows, "bytes": size, "batches": batches, "sum": total % 2**64}
    print(json.dumps(report))


def numbers(batch: pa.RecordBatch) -> list[np.ndarray]:
    """Return columns of numbers, and of equal lists of them, as arrays with a row for each row; nothing is copied."""
    out = []
    for column in batch.columns:
        while pa.types.is_fixed_size_list(column.type):
            column = column.flatten()
        out.append(column.to_numpy(zero_copy_only=True).reshape(batch.num_rows, -1))
    return out


def row_sum(rows: np.ndarray) -> int:
    """Add up numbers as integers of their own width, or of 64 bits where rows are whole ones of those."""
    return int(rows.view("int64" if rows[0].nbytes % 8 == 0 else "int32").sum(dtype=np.int64))


def report(batches: Iterable[list[np.ndarray]]) -> None:
    """Read batches of numbers and report; the sum is the same in whatever order the rows come."""
    total = rows = size = count = 0
    began, used = time.perf_counter(), cpu()
    for columns in batches:
        rows += len(columns[0])
        size += sum(column.nbytes for column in columns)
        total += sum(row_sum(column) for column in columns)
        count += 1
    took, used = time.perf_counter() - began, cpu() - used
    print(
        json.dumps({"seconds": took, "cpu": used, "rows": rows, "bytes": size, "batches": count, "sum": total % 2**64})
    )


def train(uri: str, name: str = "") -> None:
    """Read one stream and report."""
    client = fl.connect(uri)
    reader = client.do_get(find(client, name))
    report(numbers(chunk.data) for chunk in reader)


def first(uri: str, count: str, name: str = "") -> None:
    """Time DoGet up to its first batch; the first call warms the connection and is left out."""
    client = fl.connect(uri)
    ticket = find(client, name)
    times = []
    for _ in range(int(count) + 1):
        began = time.perf_counter()
        reader = client.do_get(ticket)
        if reader.read_chunk().data.num_rows == 0:
            raise SystemExit("the first batch is empty")
        times.append(time.perf_counter() - began)
        reader.cancel()
    print(json.dumps(times[1:]))


def borders(uri: str, count: str, name: str = "") -> None:
    """Time every batch of a stream of many epochs."""
    client = fl.connect(uri)
    reader = client.do_get(find(client, name))
    chunks = iter(reader.read_chunk, None)
    over(((chunk.data, json.loads(chunk.app_metadata.to_pybytes())["epoch"]) for chunk in chunks), int(count))
    reader.cancel()


def shared_borders(uri: str, count: str, name: str) -> None:
    """Time every batch of a stream of many epochs."""
    import headrace

    with headrace.connect(uri) as client, client.stream(**json.loads(name)) as stream:
        over(((batch, stream.epoch) for batch in stream), int(count))


def over(batches: Iterator[tuple[pa.RecordBatch, int]], count: int) -> None:
    """Read batches and their epochs over so many borders, and report what was waited for each."""
    waits: list[float] = []
    firsts: list[float] = []
    epoch = None
    while len(firsts) < count:
        began = time.perf_counter()
        batch, now = next(batches)
        took = time.perf_counter() - began
        sum(touch(column) for column in batch.columns)
        if epoch is not None:
            (waits if now == epoch else firsts).append(took)
        epoch = now
    print(json.dumps({"first": firsts} | spread(waits)))


def spread(waits: list[float]) -> dict[str, float]:
    """Tell how long batches were waited for."""
    usual, behind, far, longest = np.percentile(waits, [50, 95, 99, 100])
    late = float(np.mean(np.array(waits) > 3 * behind))
    return {"usual": usual, "behind": behind, "far": far, "longest": longest, "late": late}


def waits(uri: str, count: str, name: str = "") -> None:
    """Time every batch of several reads, but the first of each, which takes a call."""
    client = fl.connect(uri)
    ticket = find(client, name)
    times: list[float] = []
    for _ in range(int(count)):
        reader = client.do_get(ticket)
        chunk = reader.read_chunk()
        while True:
            sum(touch(column) for column in chunk.data.columns)
            began = time.perf_counter()
            try:
                chunk = reader.read_chunk()
            except StopIteration:
                break
            times.append(time.perf_counter() - began)
    print(json.dumps(spread(times)))


def fresh(uri: str, name: str = "") -> None:
    """Time one DoGet up to its first batch, on a connection that has planned it."""
    client = fl.connect(uri)
    ticket = find(client, name)
    began = time.perf_counter()
    reader = client.do_get(ticket)
    reader.read_chunk()
    print(json.dumps(time.perf_counter() - began))
    reader.cancel()


def check(uri: str, folder: str, name: str = "") -> None:
    """Compare a stream with the files, read without any server."""
    client = fl.connect(uri)
    got = client.do_get(find(client, name)).read_all()
    want = ds.dataset(folder, format="parquet").to_table()
    if not got.equals(want):
        raise SystemExit(f"{uri} sent {got.num_rows} rows that are not those of the files, {want.num_rows}")
    print(json.dumps({"rows": want.num_rows, "bytes": want.nbytes}))


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {
        "read": read,
        "shared": shared,
        "wired": wired,
        "train": train,
        "first": first,
        "borders": borders,
        "shared-borders": shared_borders,
        "waits": waits,
        "fresh": fresh,
        "check": check,
    }
    commands[sys.argv[1]](*sys.argv[2:])

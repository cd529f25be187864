"""What `headrace demo` does in Python: makes data, and reads it as a training job would.

usage: demo.py make FOLDER
       demo.py read|refused|crash|rank URI DATASET TOKEN
"""

import dataclasses
import json
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq

WIDTH = 256  # floats of an embedding
WORDS = "a the red green old small house river dog sleeping running under over near bright".split()


def make(folder: str) -> None:
    """Writes a data set for each of two tenants."""
    random = np.random.default_rng(7)
    photos, clips = Path(folder, "vision", "photos"), Path(folder, "speech", "clips")
    for path in (photos, clips):
        path.mkdir(parents=True, exist_ok=True)
    for shard in range(4):
        table = photo_table(random, 15_000)
        pq.write_table(table, photos / f"part-{shard:03}.parquet", row_group_size=5_000)
        table = clip_table(random, 25_000)
        with pa.ipc.new_file(clips / f"part-{shard:03}.arrow", table.schema) as writer:
            writer.write_table(table, max_chunksize=3_500)
    for path, kind in ((photos, "Parquet"), (clips, "Arrow")):
        files = list(path.iterdir())
        size = sum(f.stat().st_size for f in files) / 1e6
        print(f"{path.relative_to(folder)}: {len(files)} {kind} files, {size:.0f} MB")


def photo_table(random: np.random.Generator, rows: int) -> pa.Table:
    words = random.choice(WORDS, (rows, 6))
    return pa.table(
        {
            "caption": [" ".join(w) for w in words],
            "label": pa.array(random.integers(0, 1000, rows), pa.int32()),
            "embedding": vectors(random, rows),
        }
    )


def clip_table(random: np.random.Generator, rows: int) -> pa.Table:
    seconds = pa.array(random.random(rows, np.float32) * 10)
    return pa.table({"seconds": seconds, "features": vectors(random, rows)})


def vectors(random: np.random.Generator, rows: int) -> pa.Array:
    flat = random.random(rows * WIDTH, np.float32)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat), WIDTH)


def options(token: str) -> fl.FlightCallOptions:
    return fl.FlightCallOptions(headers=[(b"authorization", b"Bearer " + token.encode())])


def read(uri: str, dataset: str, token: str) -> None:
    """Reads a whole data set with stock pyarrow."""
    with fl.connect(uri) as client:
        request = json.dumps({"dataset": dataset}).encode()
        descriptor = fl.FlightDescriptor.for_command(request)
        began, rows, size = time.perf_counter(), 0, 0
        info = client.get_flight_info(descriptor, options(token))
        for chunk in client.do_get(info.endpoints[0].ticket, options(token)):
            rows, size = rows + chunk.data.num_rows, size + chunk.data.nbytes
        took = time.perf_counter() - began
        if rows != info.total_records:
            raise SystemExit(f"{rows} rows came, {info.total_records} were promised")
        print(f"{dataset}: {rows:,} rows, {rows / took:,.0f} rows/s, {size / took / 1e6:,.0f} MB/s")


def refused(uri: str, dataset: str, token: str) -> None:
    """Asks for another tenant's data, which must look as if it did not exist."""
    with fl.connect(uri) as client:
        try:
            client.get_schema(fl.FlightDescriptor.for_path(dataset), options(token))
        except KeyError as error:
            print("refused:", str(error.args[0]).split(". gRPC")[0].split("message: ")[-1])
            return
    raise SystemExit(f"{dataset} could be read with another tenant's token")


def crash(uri: str, dataset: str, token: str) -> None:
    """Reads slowly, so that there is time to kill the gateway; counts every row."""
    import headrace

    with headrace.connect(uri, token=token) as client:
        seen: list[np.ndarray] = []
        stream = client.stream(dataset, batch_size=512, row_id=True)
        for batch in stream:
            seen.append(batch.column("__row_id").to_numpy())
            time.sleep(0.01)
            if len(seen) == 30:
                print("now", flush=True)  # the gateway is killed while the loop goes on
    ids = np.concatenate(seen)
    want = next(d.rows for d in headrace.connect(uri, token=token).datasets() if d.name == dataset)
    missing, repeated = want - len(np.unique(ids)), len(ids) - len(np.unique(ids))
    in_order = bool(np.all(np.diff(ids) == 1))
    print(f"{len(ids):,} rows, missing {missing}, repeated {repeated}, in order: {in_order}")
    if missing or repeated or not in_order:
        raise SystemExit(1)


def rank(uri: str, dataset: str, token: str) -> None:
    """Is one rank of a job: takes a step of its stream for each line, of a new one if the line is a request."""
    import headrace

    with headrace.connect(uri, token=token) as client:
        for line in sys.stdin:
            if line.strip():
                request = {name: value for name, value in json.loads(line).items() if value != ""}
                stream = client.stream(dataset, **request)
            batch = next(stream, None)
            if batch is None:
                print(json.dumps({"end": True}), flush=True)
                continue
            account = {"epoch": 0, "rows": stream.stats().rows, "sum": stream.sum}
            if stream.receipt:  # the epoch's last batch
                account = dataclasses.asdict(stream.receipt)
            rows = batch.column("__row_id").to_pylist()
            taken = {"rows": rows, "cursor": stream.cursor, "snapshot": stream.snapshot, "receipt": account}
            print(json.dumps(taken), flush=True)


if __name__ == "__main__":
    try:
        commands = {"make": make, "read": read, "refused": refused, "crash": crash, "rank": rank}
        commands[sys.argv[1]](*sys.argv[2:])
    except OSError as error:  # such as a full disk
        sys.exit(f"{sys.argv[1]}: {error}")

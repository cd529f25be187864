"""The stock client of the codec's tests: makes data, and compares what a Flight server or a file gives with it.

client.py make DIR        writes one Arrow IPC stream per kind of column
client.py check DIR       reads DIR/jobs.jsonl, one job a line:
                          {"ticket", "file", "from", "n", "uri"?, "aligned"?, "stream"?}
                          prints one JSON line per fault and "done COUNT ROWS" at the end
"""

import decimal
import json
import os
import sys

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

ROWS = 3000


def nulled(values, every=7):
    """Put a null in every so many values."""
    return [None if i % every == 3 else v for i, v in enumerate(values)]


def numbers(rng):
    """Columns of integers and floats."""
    out = {}
    for name in ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]:
        kind = np.dtype(name)
        lo, hi = np.iinfo(kind).min, np.iinfo(kind).max
        values = rng.integers(lo, hi, ROWS, dtype=kind, endpoint=True)
        out[name] = pa.array(values)
        out[name + "_null"] = pa.array(values, mask=rng.random(ROWS) < 0.2)
    for name in ["float16", "float32", "float64"]:
        out[name] = pa.array(rng.standard_normal(ROWS).astype(name))
    return out


def scalars(rng):
    """Columns of the other types of fixed width."""
    ints = [int(v) for v in rng.integers(0, 10**8, ROWS)]
    days = [v % 20000 for v in ints]
    out = {
        "null": pa.nulls(ROWS),
        "bool": pa.array(rng.random(ROWS) < 0.5),
        "bool_null": pa.array(nulled([bool(v & 1) for v in ints])),
        "date32": pa.array(nulled(days), pa.date32()),
        "date64": pa.array([d * 86400000 for d in days], pa.date64()),
        "time32": pa.array(nulled([v % 86400 for v in ints]), pa.time32("s")),
        "time64": pa.array(ints, pa.time64("ns")),
        "timestamp": pa.array(nulled(ints), pa.timestamp("us", tz="Europe/Zurich")),
        "duration": pa.array(ints, pa.duration("ms")),
        "interval": pa.array(nulled([(v % 9, v % 31, v) for v in ints]), pa.month_day_nano_interval()),
        "fixed_binary": pa.array(nulled([v.to_bytes(4, "big") * 3 for v in ints]), pa.binary(12)),
        "all_null": pa.nulls(ROWS, pa.int32()),
    }
    for bits, digits in ((32, 9), (64, 18), (128, 38), (256, 76)):
        kind = getattr(pa, f"decimal{bits}")(digits, 2)
        out[f"decimal{bits}"] = pa.array(nulled([decimal.Decimal(v) / 100 for v in ints]), kind)
    return out


def strings(rng):
    """Columns of strings and binaries of every layout."""
    words = ["" if v % 11 == 0 else f"{v:x}" * int(1 + v % 4) for v in rng.integers(0, 2**40, ROWS)]
    raw = [w.encode() for w in words]
    out = {}
    for name in ["string", "large_string", "string_view"]:
        out[name] = pa.array(nulled(words), getattr(pa, name)())
        out[name + "_full"] = pa.array(words, getattr(pa, name)())
    for name in ["binary", "large_binary", "binary_view"]:
        out[name] = pa.array(nulled(raw), getattr(pa, name)())
    out["view_inline"] = pa.array([w[:12] for w in words], pa.string_view())
    plain = out["string_view_full"].buffers()
    views = np.frombuffer(plain[1], np.uint8)[: 16 * ROWS].reshape(ROWS, 16)[rng.permutation(ROWS)]
    out["view_shuffled"] = pa.Array.from_buffers(
        pa.string_view(), ROWS, [None, pa.py_buffer(views.tobytes()), *plain[2:]]
    )
    out["view_repeated"] = pa.array(["long enough to lie outside"] * ROWS, pa.string_view())
    return out


def lists(rng):
    """Columns of lists and maps of every layout."""
    rows = [list(range(int(v) % 5)) for v in rng.integers(0, 1000, ROWS)]
    texts = [[f"row {i} item {j}" for j in r] for i, r in enumerate(rows)]
    out = {}
    for name in ["list_", "large_list", "list_view", "large_list_view"]:
        kind = getattr(pa, name)
        out[name] = pa.array(nulled(rows), kind(pa.int32()))
        out[name + "_text"] = pa.array(texts, kind(pa.string()))
    out["list_string_view"] = pa.array(texts, pa.list_(pa.string_view()))
    out["nested_list"] = pa.array([[r, r[:1]] for r in rows], pa.list_(pa.list_(pa.int64())))
    out["fixed_list"] = pa.array(rng.standard_normal(ROWS * 6).astype("float32"))
    out["fixed_list"] = pa.FixedSizeListArray.from_arrays(out["fixed_list"], 6)
    out["fixed_list_null"] = pa.array(nulled([[i, i + 1, None] for i in range(ROWS)]), pa.list_(pa.int16(), 3))
    out["fixed_list_text"] = pa.array([[f"a{i}", f"b{i}"] for i in range(ROWS)], pa.list_(pa.string(), 2))
    out["map"] = pa.array(
        nulled([[(f"k{j}", i) for j in r] for i, r in enumerate(rows)]), pa.map_(pa.string(), pa.int64())
    )
    backwards = pa.array([3 * (ROWS - 1 - i) for i in range(ROWS)], pa.int32())
    out["list_view_backwards"] = pa.ListViewArray.from_arrays(
        backwards, pa.array([2] * ROWS, pa.int32()), pa.array(range(3 * ROWS))
    )
    return out


def nested(rng):
    """Columns of structs, unions and runs."""
    ints = pa.array(rng.integers(0, 10**9, ROWS))
    texts = pa.array([f"text of row {i}" for i in range(ROWS)])
    flags = pa.array(rng.random(ROWS) < 0.3)
    types = pa.array(rng.integers(0, 3, ROWS), pa.int8())
    out = {
        "struct": pa.StructArray.from_arrays([ints, texts, flags], ["i", "t", "f"], mask=flags),
        "sparse_union": pa.UnionArray.from_sparse(types, [ints, texts, flags], ["i", "t", "f"], [0, 1, 2]),
        "list_of_struct": pa.array([[{"a": i, "b": f"{i}"}] * (i % 3) for i in range(ROWS)]),
    }
    counts = [0, 0, 0]
    offsets = []
    for t in types.to_pylist():
        offsets.append(counts[t])
        counts[t] += 1
    dense = pa.UnionArray.from_dense(
        types, pa.array(offsets, pa.int32()), [ints, texts, flags], ["i", "t", "f"], [0, 1, 2]
    )
    out["dense_union"] = dense
    gaps = pa.array([2 * (o // 2) for o in offsets], pa.int32())
    out["dense_union_gaps"] = pa.UnionArray.from_dense(types, gaps, [ints, texts, flags], ["i", "t", "f"], [0, 1, 2])
    last = pa.array([*range(7, ROWS, 7), ROWS], pa.int32())
    out["run_ends"] = pa.RunEndEncodedArray.from_arrays(last, texts.slice(0, len(last)))
    out["list_of_union"] = pa.ListArray.from_arrays(pa.array(range(ROWS + 1), pa.int32()), dense)
    out["struct_of_list_view"] = pa.StructArray.from_arrays(
        [pa.array([[i] * (i % 4) for i in range(ROWS)], pa.list_view(pa.int64()))], ["v"]
    )
    return out


def make(folder):
    """Write one file per kind of column, and some of several."""
    rng = np.random.default_rng(7)
    columns = {**numbers(rng), **scalars(rng), **strings(rng), **lists(rng), **nested(rng)}
    batches = {name: pa.record_batch([array], names=[name]) for name, array in columns.items()}
    batches["all_of_them"] = pa.record_batch(list(columns.values()), names=list(columns))
    batches["no_columns"] = pa.table({"x": range(ROWS)}).select([]).to_batches()[0]
    big = 300_000
    batches["big"] = pa.record_batch(
        {
            "id": pa.array(range(big)),
            "f": pa.array(rng.random(big, "float32")),
            "s": pa.array([str(i) for i in range(big)]),
        }
    )
    for name, batch in batches.items():
        with pa.OSFile(os.path.join(folder, name + ".arrows"), "wb") as f, pa.ipc.new_stream(f, batch.schema) as w:
            w.write_batch(batch)


def buffers(array):
    """List the buffers that have bytes."""
    return [b for b in array.buffers() if b is not None and b.size > 0]


def faults(job, want, got):
    """Tell what is wrong with a batch."""
    if got.schema != want.schema:
        yield f"schema {got.schema} is not {want.schema}"
        return
    if got.num_rows != want.num_rows:
        yield f"{got.num_rows} rows, want {want.num_rows}"
        return
    got.validate(full=True)
    if not got.equals(want):  # some kinds, such as month intervals, have no Python form
        for name, a, b in zip(want.schema.names, want.columns, got.columns, strict=True):
            if not b.equals(a) and b.to_pylist() != a.to_pylist():
                yield f"column {name} differs"
    if job.get("aligned"):
        for name, column in zip(want.schema.names, got.columns, strict=True):
            odd = [b.size for b in buffers(column) if b.address % 16]
            if odd:
                yield f"column {name}: {len(odd)} of {len(buffers(column))} buffers not on 16 bytes: {odd[:4]}"


def check(folder):
    """Do the jobs."""
    files, clients, count, rows = {}, {}, 0, 0
    with open(os.path.join(folder, "jobs.jsonl")) as f:
        jobs = [json.loads(line) for line in f]
    for job in jobs:
        path = os.path.join(folder, job["file"])
        if path not in files:
            files[path] = pa.ipc.open_stream(pa.OSFile(path)).read_next_batch()
        want = files[path].slice(job["from"], job["n"])
        try:
            if job.get("uri"):
                client = clients.setdefault(job["uri"], flight.connect(job["uri"]))
                chunks = list(client.do_get(flight.Ticket(json.dumps(job["ticket"]).encode())))
                meta = [bytes(c.app_metadata) for c in chunks]
                if meta != [b"meta"]:
                    print(json.dumps({"job": job, "fault": f"metadata {meta}"}))
                got = chunks[0].data
            else:
                got = pa.ipc.open_stream(pa.OSFile(os.path.join(folder, job["stream"]))).read_next_batch()
            for fault in faults(job, want, got):
                print(json.dumps({"job": job, "fault": fault}))
            rows += got.num_rows
        except Exception as e:  # any failure is a fault of the job
            print(json.dumps({"job": job, "fault": f"{type(e).__name__}: {e}"}))
        count += 1
    print("done", count, rows)


if __name__ == "__main__":
    {"make": make, "check": check}[sys.argv[1]](sys.argv[2])

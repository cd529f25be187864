"""Writes the data files that the tests of this package copy into their folders."""

import pathlib
import sys

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

out = pathlib.Path(sys.argv[1])


def table(start: int, rows: int) -> pa.Table:
    """Column x counts on from start; column s says the same in words."""
    x = np.arange(start, start + rows, dtype=np.int64)
    return pa.table({"x": x, "s": pa.array([f"row {v}" for v in x], pa.string())})


for i in range(4):
    pq.write_table(table(100 * i, 100), out / f"p{i}.parquet", row_group_size=40)
    with ipc.new_file(out / f"a{i}.arrow", table(0, 0).schema) as w:
        w.write_table(table(100 * i, 100), max_chunksize=40)
with ipc.new_stream(out / "stream.arrow", table(0, 0).schema) as w:
    w.write_table(table(400, 100), max_chunksize=40)
feather.write_feather(table(500, 10), out / "f.feather", compression="lz4")

# One row group and one record batch of several blocks each.
big = pa.table({"x": np.arange(2_000_000, dtype=np.int64)})
pq.write_table(big, out / "big.parquet", row_group_size=2_000_000, use_dictionary=False, compression="none")
with ipc.new_file(out / "big.arrow", big.schema) as w:
    w.write_table(big)
noise = pa.table({"x": np.random.default_rng(7).integers(0, 2**62, 2_000_000)})  # which no codec makes smaller
with ipc.new_file(out / "packed.arrow", noise.schema, options=ipc.IpcWriteOptions(compression="lz4")) as w:
    w.write_table(noise)
pq.write_table(noise, out / "noise.parquet", row_group_size=2_000_000)
pq.write_table(noise, out / "doubled.parquet", row_group_size=100_000)  # each value in a dictionary of its group

ints = pa.array([1, 2, 3], pa.int64())
required = pa.schema([pa.field("x", pa.int64(), nullable=False)])
pq.write_table(pa.table([ints], schema=required), out / "required.parquet")
pq.write_table(pa.table([pa.array([4, None], pa.int64())], ["x"]), out / "optional.parquet")
noted = pa.schema([pa.field("x", pa.int64(), metadata={"unit": "m"})], metadata={"made": "later"})
pq.write_table(pa.table([ints], schema=noted), out / "noted.parquet")
pq.write_table(pa.table({"x": ["one", "two"]}), out / "text.parquet")
twice = pa.table([ints, ints], names=["x", "x"])
with ipc.new_file(out / "twice.arrow", twice.schema) as w:
    w.write_table(twice)


# One column in several types, for contracts; x counts on over the files of a set.
def typed(name: str, table: pa.Table) -> None:
    pq.write_table(table, out / f"{name}.parquet", row_group_size=40)
    with ipc.new_file(out / f"{name}.arrow", table.schema) as w:
        w.write_table(table, max_chunksize=40)


def counting(typ: pa.DataType, start: int) -> pa.Array:
    return pa.array(range(start, start + 100), typ)


def structs(rows: list[dict], **fields: pa.DataType) -> pa.Array:
    return pa.array(rows, pa.struct(list(fields.items())))


words = pa.array([f"word {i}" for i in range(100)], pa.string())
ab = structs([{"a": i, "b": "x"} for i in range(100)], a=pa.int8(), b=pa.string())
ac = structs([{"a": i, "c": 0.5} for i in range(100)], a=pa.int32(), c=pa.float32())
typed("null", pa.table({"x": pa.array([None] * 100, pa.null()), "y": counting(pa.int64(), 0)}))
typed("words", pa.table({"x": words, "y": counting(pa.int64(), 100)}))
typed("narrow", pa.table({"x": counting(pa.int8(), 0), "s": ab}))
typed("wide", pa.table({"more": words, "x": counting(pa.int64(), 100), "s": ac}))

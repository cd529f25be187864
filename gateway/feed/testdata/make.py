"""Writes the data sets of the feed's tests: column id counts the rows of a data set in the order of its files."""
import os, sys
import numpy as np, pyarrow as pa, pyarrow.ipc as ipc, pyarrow.parquet as pq

root = sys.argv[1]

def table(first, rows, pad):
    ids = np.arange(first, first + rows)
    columns = {
        "id": pa.array(ids),
        "text": pa.array([None if i % 11 == 0 else f"row {i}" * (1 + i % 3) for i in ids], pa.string()),
        "list": pa.array([list(range(i % 4)) for i in ids], pa.list_(pa.int16())),
    }
    if pad:  # makes blocks of few rows, in files of few bytes, and is not read
        columns["pad"] = pa.array([b"x" * pad] * rows, pa.binary(pad))
    return pa.table(columns)

def path(dataset, name):
    os.makedirs(os.path.join(root, dataset), exist_ok=True)
    return os.path.join(root, dataset, name)

def parquet(dataset, files, pad=0):
    first = 0
    for number, groups in enumerate(files):
        name = path(dataset, f"{number}.parquet")
        writer = None
        for rows in groups:
            t = table(first, rows, pad)
            writer = writer or pq.ParquetWriter(name, t.schema, write_page_index=True)
            writer.write_table(t, row_group_size=max(rows, 1))
            first += rows
        writer.close()

def arrow(dataset, files):
    first = 0
    for number, batches in enumerate(files):
        with ipc.new_file(path(dataset, f"{number}.arrow"), table(0, 0, 0).schema) as writer:
            for rows in batches:
                writer.write_table(table(first, rows, 0), max_chunksize=max(rows, 1))
                first += rows

parquet("segments", [[800], [3, 500, 1], [240, 240]], pad=16384)   # of up to 4 blocks
parquet("long", [[2400]], pad=16384)                               # one of 10 blocks
arrow("batches", [[50, 1, 0, 130], [7], [90, 90, 90, 25], [400]])  # a block each
arrow("alike", [[100] * 10] * 4)                                   # as large as each other, and decoded without other memory
arrow("one", [[1]])

# Numbers only, a block in each file.
def numbers(dataset, rows):
    for number, n in enumerate(rows):
        t = pa.table({"id": pa.array(np.arange(n) + sum(rows[:number]))})
        with ipc.new_file(path(dataset, f"{number}.arrow"), t.schema) as writer:
            writer.write_table(t)

numbers("uneven", [10, 10, 100_000, 10])
numbers("even", [100_000] * 8)

# Strings that take a thousand times what the file says: every row points at one of three.
schema = pa.schema([("id", pa.int64()), ("text", pa.dictionary(pa.int32(), pa.string())), ("bytes", pa.dictionary(pa.int32(), pa.binary()))])
words = [letter * 40_000 for letter in "abc"]
for dataset, rows in ("liars", 300), ("giant", 1800):  # the second as one block, which is more than a frame
    with ipc.new_file(path(dataset, "0.arrow"), schema) as writer:
        for first in range(0, 1800, rows):
            ids = np.arange(first, first + rows)
            text, raw = (pa.DictionaryArray.from_arrays(pa.array(ids % 3, pa.int32()), pa.array(words, f.type.value_type)) for f in list(schema)[1:])
            writer.write_batch(pa.record_batch([pa.array(ids), text, raw], schema=schema))

# Lists of 40,000 bytes, in blocks of some hundred rows.
schema = pa.schema([("id", pa.int64()), ("series", pa.list_(pa.int8()))])
with ipc.new_file(path("series", "0.arrow"), schema) as writer:
    for first in range(0, 1800, 600):
        ids = np.arange(first, first + 600)
        values = pa.array(np.repeat((ids % 3).astype("int8"), 40_000))
        series = pa.ListArray.from_arrays(pa.array(np.arange(601) * 40_000, pa.int32()), values)
        writer.write_batch(pa.record_batch([pa.array(ids), series], schema=schema))

# One page of 32 MB, whose column chunk is as large: a decoder needs it whole, and its file does not say so.
pq.write_table(pa.table({"id": pa.array(np.arange(4_000_000))}), path("page", "0.parquet"),
               use_dictionary=False, compression="zstd", data_page_size=1 << 30, max_rows_per_page=1 << 30, row_group_size=1 << 30)

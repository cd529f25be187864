"""Wrote testdata/golden/*.parquet and bytes.json, once: Segment.Bytes must never change.

The sizes in bytes.json do not come from the reader under test: they are the
documented formula over pyarrow's view of the footer and over the data itself.
"""
import json
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq

WIDTH = {"INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12, "BOOLEAN": 0, "BYTE_ARRAY": 0}


def text_bytes(column):
    """The bytes of all strings of a column, at any depth."""
    count = lambda v: len(v.encode()) if isinstance(v, str) else len(v) if isinstance(v, bytes) else sum(map(count, v)) if isinstance(v, list) else 0
    return sum(count(v) for v in column.to_pylist())


def size(group, i, table):
    c = group.column(i)
    name = c.path_in_schema.split(".")[0]
    kind = table.schema.field(name).type
    width = kind.byte_width if c.physical_type == "FIXED_LEN_BYTE_ARRAY" else WIDTH[c.physical_type]
    text = text_bytes(table[name]) if c.physical_type == "BYTE_ARRAY" else 0
    return max(c.total_uncompressed_size, c.num_values * width, text)


def main(folder):
    n = 5000
    tables = {
        "dictionaries": pa.table({"i": [7] * n, "f": pa.array([1.5] * n, pa.float32()), "s": ["a string that repeats"] * n, "l": [["twice"] * 2] * n, "x": pa.array([b"0123456789"] * n, pa.binary(10))}),
        "plain": pa.table({"i": range(n), "d": [i / 3 for i in range(n)], "b": [i % 3 == 0 for i in range(n)], "s": [f"row {i}" for i in range(n)], "t": pa.array(range(n), pa.timestamp("ms"))}),
        "empty": pa.table({"i": pa.array([], pa.int64())}),
    }
    out = {}
    for name, table in tables.items():
        path = os.path.join(folder, name + ".parquet")
        pq.write_table(table, path, row_group_size=3000)
        md = pq.ParquetFile(path).metadata
        sizes, at = [], 0
        for g in range(md.num_row_groups):
            group = md.row_group(g)
            rows = table.slice(at, group.num_rows)
            sizes.append([group.num_rows, sum(size(group, i, rows) for i in range(group.num_columns))])
            at += group.num_rows
        out[name] = sizes
    with open(os.path.join(folder, "bytes.json"), "w") as f:
        json.dump(out, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])

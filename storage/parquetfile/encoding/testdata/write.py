"""Writes Parquet files with columns in every encoding that pyarrow writes: write.py DIRECTORY."""
import random
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

N = 7000
rng = random.Random(7)


def some(make):
    """N values, some of them None, and whole stretches without any None or with nothing else."""
    out = []
    while len(out) < N:
        odds = rng.choice([0, 0, 0.1, 0.5, 1])
        out += [None if rng.random() < odds else make() for _ in range(rng.randrange(1, 900))]
    return out[:N]


def some_of(make):
    return [make() for _ in range(rng.choice([0, 1, 5, 80]))]


def word():
    return "".join(rng.choice("ab") for _ in range(rng.choice([0, 3, 12, 40])))


def wide():
    return rng.choice([rng.randrange(-2**63, 2**63), rng.randrange(1000), 2**63 - 1, -2**63])


def steps(times):
    x, out = 0, []
    for _ in range(N):
        x += rng.randrange(10)
        out.append(x * times % 2**40)
    return out


columns, encodings, dictionary = {}, {}, []


def column(name, encoding, values, type):
    columns[name] = pa.array(values, type)
    if encoding == "dictionary":
        dictionary.append(name)
    elif encoding:
        encodings[name] = encoding


kinds = {
    "i32": (pa.int32(), lambda: rng.randrange(-2**31, 2**31)),
    "i64": (pa.int64(), wide),
    "f32": (pa.float32(), lambda: np.float32(rng.gauss(0, 1))),
    "f64": (pa.float64(), lambda: rng.gauss(0, 1)),
    "f16": (pa.float16(), lambda: np.float16(rng.gauss(0, 1))),
    "fixed": (pa.binary(7), lambda: bytes(rng.choice([b"abcdefg", b"abcdxyz", b"bbbbbbb"]))),
    "text": (pa.string(), word),
}
for name, (type, make) in kinds.items():
    column("plain_" + name, "PLAIN", some(make), type)
    few = [make() for _ in range(rng.choice([3, 300]))]
    column("dict_" + name, "dictionary", some(lambda few=few: rng.choice(few)), type)
    if name != "text":
        column("split_" + name, "BYTE_STREAM_SPLIT", some(make), type)
for name in ("i32", "i64"):
    type, make = kinds[name]
    column("delta_" + name, "DELTA_BINARY_PACKED", some(make), type)
    column("delta_steps_" + name, "DELTA_BINARY_PACKED", [x % 2**31 for x in steps(1)], type)
    column("delta_even_" + name, "DELTA_BINARY_PACKED", list(range(0, 3 * N, 3)), type)
column("delta_far_i64", "DELTA_BINARY_PACKED", steps(2**34), pa.int64())
column("length_text", "DELTA_LENGTH_BYTE_ARRAY", some(word), pa.string())
column("front_text", "DELTA_BYTE_ARRAY", sorted(word() for _ in range(N)), pa.string())
column("front_nulls", "DELTA_BYTE_ARRAY", some(word), pa.string())
column("front_fixed", "DELTA_BYTE_ARRAY", columns["plain_fixed"], pa.binary(7))
column("plain_bool", "PLAIN", some(lambda: rng.random() < 0.3), pa.bool_())
column("rle_bool", "RLE", some(lambda: rng.random() < 0.03), pa.bool_())
column("one", "dictionary", ["same"] * N, pa.string())
column("none", "dictionary", [None] * N, pa.string())
column("falls_back", "dictionary", [f"{i:09}" for i in range(N)], pa.string())
column("list", "", some(lambda: some_of(lambda: rng.choice([None, 1, 2]))), pa.list_(pa.int32()))
column("tokens", "", [[1] * rng.randrange(1, 90) for _ in range(N)], pa.list_(pa.int32()))
column("tensor", "", [[1.0] * 3] * N, pa.list_(pa.float32(), 3))
column("required", "PLAIN", list(range(N)), pa.int64())

schema = pa.schema([pa.field(n, a.type, nullable=n != "required") for n, a in columns.items()])
table = pa.table(columns, schema)
for version in ("1.0", "2.0"):
    pq.write_table(
        table, f"{sys.argv[1]}/v{version[0]}.parquet", row_group_size=4000, data_page_size=2000, data_page_version=version,
        compression="none", use_dictionary=dictionary, column_encoding=encodings, dictionary_pagesize_limit=20000,
        write_batch_size=300,
    )

"""Writes Parquet files and, beside each, what pyarrow reads from it as an IPC stream of plain types.

usage: write.py DIRECTORY            test files
       write.py DIRECTORY FOLDER...  links to the files of others, where pyarrow can read them
"""
import base64
import datetime
import decimal
import os
import random
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

rng = random.Random(7)


def some(make, n, nulls=0.2):
    """n values, some of them None."""
    return [None if rng.random() < nulls else make(i) for i in range(n)]


def word(i):
    return "".join(rng.choice("abcdeé火") for _ in range(rng.randrange(0, 12)))


def plain(a):
    """a as the gateway serves it: values for dictionaries, storage for extensions, no views."""
    t = a.type
    if isinstance(t, pa.BaseExtensionType):
        return plain(a.storage)
    if pa.types.is_dictionary(t):
        return plain(a.dictionary_decode())
    if pa.types.is_string_view(t):
        return a.cast(pa.string())
    if pa.types.is_binary_view(t):
        return a.cast(pa.binary())
    if pa.types.is_decimal32(t) or pa.types.is_decimal64(t):
        return a.cast(pa.decimal128(t.precision, t.scale))
    if pa.types.is_list_view(t):
        return pa.array(a.to_pylist(), pa.list_(t.value_field))
    mask = a.is_null() if a.null_count else None
    if pa.types.is_struct(t):
        kids = [plain(a.field(i)) for i in range(t.num_fields)]
        return pa.StructArray.from_arrays(kids, fields=[t.field(i).with_type(k.type) for i, k in enumerate(kids)], mask=mask)
    if pa.types.is_map(t):
        keys, items = plain(a.keys), plain(a.items)
        kind = pa.map_(t.key_field.with_type(keys.type), t.item_field.with_type(items.type), t.keys_sorted)
        if kind == t:
            return a
        return pa.MapArray.from_arrays(a.offsets, keys, items, type=kind, mask=mask)
    if pa.types.is_fixed_size_list(t):
        kid = plain(a.values)
        kind = pa.list_(t.value_field.with_type(kid.type), t.list_size)
        return a if kind == t else pa.FixedSizeListArray.from_arrays(kid, type=kind, mask=mask)
    if pa.types.is_list(t) or pa.types.is_large_list(t):
        kid = plain(a.values)
        cls, make = (pa.LargeListArray, pa.large_list) if pa.types.is_large_list(t) else (pa.ListArray, pa.list_)
        kind = make(t.value_field.with_type(kid.type))
        return a if kind == t else cls.from_arrays(a.offsets, kid, type=kind, mask=mask)
    return a


def plain_field(f, array):
    """f with the type of array; an extension's name goes under a key that no library looks at."""
    md = dict(f.metadata or {})
    if isinstance(f.type, pa.BaseExtensionType):
        md[b"test:extension:name"] = f.type.extension_name.encode()
    return pa.field(f.name, array.type, f.nullable, md or None)


def save(folder, name, table, **options):
    path = os.path.join(folder, name + ".parquet")
    pq.write_table(table, path, **options)
    expect(path)


def expect(path, out=None):
    file = pq.ParquetFile(path)
    back = file.read().combine_chunks()
    # pyarrow forgets that the values of a dictionary were large; we do not.
    fix = lambda name, a: a.cast(pa.large_string()) if name == "cat_large" and b"ARROW:schema" in (file.metadata.metadata or {}) else a
    arrays = [plain(pa.concat_arrays(c.chunks) if c.num_chunks else pa.array([], c.type)) for c in back.columns]
    arrays = [fix(f.name, a) for f, a in zip(back.schema, arrays)]
    schema = pa.schema([plain_field(f, a) for f, a in zip(back.schema, arrays)], back.schema.metadata)
    with pa.ipc.new_stream(out or path[: -len(".parquet")] + ".arrow", schema) as w:
        w.write_table(pa.table(arrays, schema=schema))


N = 1000
EPOCH = datetime.datetime(1970, 1, 1)


def flat(n, nulls):
    """A column of every flat type."""
    big = lambda i: rng.randrange(-(1 << 62), 1 << 62)
    return pa.table(
        {
            "null": pa.nulls(n),
            "bool": pa.array(some(lambda i: rng.random() < 0.5, n, nulls), pa.bool_()),
            **{
                f"{s}{b}": pa.array(some(lambda i: rng.randrange(0 if s == "uint" else -(1 << (b - 1)), (1 << b) if s == "uint" else 1 << (b - 1)), n, nulls), f"{s}{b}")
                for s in ("int", "uint")
                for b in (8, 16, 32, 64)
            },
            "float16": pa.array(some(lambda i: np.float16(i / 3), n, nulls), pa.float16()),
            "float32": pa.array(some(lambda i: i / 7, n, nulls), pa.float32()),
            "float64": pa.array(some(lambda i: i / 7, n, nulls), pa.float64()),
            "string": pa.array(some(word, n, nulls), pa.string()),
            "large_string": pa.array(some(word, n, nulls), pa.large_string()),
            "string_view": pa.array(some(word, n, nulls), pa.string_view()),
            "binary": pa.array(some(lambda i: rng.randbytes(i % 9), n, nulls), pa.binary()),
            "large_binary": pa.array(some(lambda i: rng.randbytes(i % 9), n, nulls), pa.large_binary()),
            "binary_view": pa.array(some(lambda i: rng.randbytes(i % 30), n, nulls), pa.binary_view()),
            "fixed": pa.array(some(lambda i: rng.randbytes(5), n, nulls), pa.binary(5)),
            "decimal32": pa.array(some(lambda i: decimal.Decimal(i - 500) / 100, n, nulls), pa.decimal32(5, 2)),
            "decimal64": pa.array(some(lambda i: decimal.Decimal(i - 500) / 100, n, nulls), pa.decimal64(12, 2)),
            "decimal128": pa.array(some(lambda i: decimal.Decimal(big(i)), n, nulls), pa.decimal128(38, 0)),
            "decimal256": pa.array(some(lambda i: decimal.Decimal(big(i)) * 10**30, n, nulls), pa.decimal256(60, 0)),
            "decimal256s": pa.array(some(lambda i: decimal.Decimal(i - 500), n, nulls), pa.decimal256(20, 0)),
            "date32": pa.array(some(lambda i: i - 500, n, nulls), pa.date32()),
            "date64": pa.array(some(lambda i: (i - 500) * 86400000, n, nulls), pa.date64()),
            "time32s": pa.array(some(lambda i: i, n, nulls), pa.time32("s")),
            "time32ms": pa.array(some(lambda i: i, n, nulls), pa.time32("ms")),
            "time64us": pa.array(some(lambda i: i, n, nulls), pa.time64("us")),
            "time64ns": pa.array(some(lambda i: i, n, nulls), pa.time64("ns")),
            **{f"ts_{u}": pa.array(some(lambda i: i - 500, n, nulls), pa.timestamp(u)) for u in ("s", "ms", "us", "ns")},
            **{f"tz_{u}": pa.array(some(lambda i: i - 500, n, nulls), pa.timestamp(u, "Europe/Berlin")) for u in ("s", "ms", "us", "ns")},
            **{f"duration_{u}": pa.array(some(lambda i: i - 500, n, nulls), pa.duration(u)) for u in ("s", "ms", "us", "ns")},
            "cat": pa.array(some(lambda i: f"c{i % 5}", n, nulls), pa.string()).dictionary_encode(),
            "cat8": pa.array(some(lambda i: f"c{i % 5}", n, nulls), pa.string()).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())),
            "cat_int": pa.array(some(lambda i: i % 5, n, nulls), pa.int64()).dictionary_encode(),
            "cat_large": pa.array(some(lambda i: f"c{i % 5}", n, nulls), pa.large_string()).dictionary_encode(),
            "uuid": pa.array(some(lambda i: rng.randbytes(16), n, nulls), pa.uuid()),
            "json": pa.array(some(lambda i: f'{{"i": {i}}}', n, nulls), pa.json_()),
            "bool8": pa.ExtensionArray.from_storage(pa.bool8(), pa.array(some(lambda i: i % 2, n, nulls), pa.int8())),
            "opaque": pa.ExtensionArray.from_storage(pa.opaque(pa.binary(), "t", "v"), pa.array(some(lambda i: b"x", n, nulls), pa.binary())),
        }
    )


def nested(n, nulls):
    ints = lambda i: some(lambda j: i * 10 + j, rng.randrange(0, 4), nulls)
    words = lambda i: some(word, rng.randrange(0, 4), nulls)
    pair = pa.struct([("a", pa.int32()), ("b", pa.string()), ("c", pa.struct([("d", pa.int64()), ("e", pa.list_(pa.string()))]))])
    make = lambda i: {"a": i, "b": word(i) if rng.random() > nulls else None, "c": None if rng.random() < nulls else {"d": i, "e": words(i)}}
    return pa.table(
        {
            "ints": pa.array(some(ints, n, nulls), pa.list_(pa.int32())),
            "words": pa.array(some(words, n, nulls), pa.list_(pa.string())),
            "large": pa.array(some(words, n, nulls), pa.large_list(pa.large_string())),
            "view": pa.array(some(words, n, nulls), pa.list_view(pa.string())),
            "lists": pa.array(some(lambda i: some(ints, rng.randrange(0, 3), nulls), n, nulls), pa.list_(pa.list_(pa.int32()))),
            "pair": pa.array(some(make, n, nulls), pair),
            "pairs": pa.array(some(lambda i: some(make, rng.randrange(0, 3), nulls), n, nulls), pa.list_(pair)),
            "map": pa.array(some(lambda i: [(f"k{j}", j) for j in range(rng.randrange(0, 3))], n, nulls), pa.map_(pa.string(), pa.int32())),
            "map_lists": pa.array(some(lambda i: [(f"k{j}", ints(j)) for j in range(rng.randrange(0, 3))], n, nulls), pa.map_(pa.string(), pa.list_(pa.int32()))),
            "durations": pa.array(some(ints, n, nulls), pa.list_(pa.duration("us"))),
            "times": pa.array(some(lambda i: {"t": i, "d": i % 7}, n, nulls), pa.struct([("t", pa.timestamp("us", "Asia/Tokyo")), ("d", pa.date32())])),
            "decimals": pa.array(some(lambda i: [decimal.Decimal(i)], n, nulls), pa.list_(pa.decimal128(20, 0))),
            "last": pa.array(range(n), pa.int64()),
        }
    )


def fixed_lists(n, nulls):
    f = lambda k: lambda i: [i * k + j + 0.5 for j in range(k)]
    holes = lambda k: lambda i: some(lambda j: float(i * k + j), k, nulls)
    return pa.table(
        {
            "embedding": pa.array(some(f(8), n, nulls), pa.list_(pa.float32(), 8)),
            "holes": pa.array(some(holes(3), n, nulls), pa.list_(pa.float64(), 3)),
            "required": pa.array([f(2)(i) for i in range(n)], pa.list_(pa.field("item", pa.float32(), False), 2)),
            "words": pa.array(some(lambda i: some(word, 2, nulls), n, nulls), pa.list_(pa.string(), 2)),
            "bools": pa.array(some(lambda i: some(lambda j: j % 2 == 0, 3, nulls), n, nulls), pa.list_(pa.bool_(), 3)),
            "fixed": pa.array(some(lambda i: some(lambda j: rng.randbytes(4), 3, nulls), n, nulls), pa.list_(pa.binary(4), 3)),
            "one": pa.array(some(lambda i: [i], n, nulls), pa.list_(pa.int64(), 1)),
            "in_struct": pa.array(some(lambda i: {"v": f(4)(i) if rng.random() > nulls else None, "w": i}, n, nulls), pa.struct([("v", pa.list_(pa.float32(), 4)), ("w", pa.int32())])),
            "in_list": pa.array(some(lambda i: some(f(2), rng.randrange(0, 3), nulls), n, nulls), pa.list_(pa.list_(pa.float32(), 2))),
            "of_struct": pa.array(some(lambda i: [{"x": i, "y": word(i)}, {"x": None, "y": word(i)}], n, nulls), pa.list_(pa.struct([("x", pa.int32()), ("y", pa.string())]), 2)),
            "of_list": pa.array(some(lambda i: [[i] * rng.randrange(0, 3), []], n, nulls), pa.list_(pa.list_(pa.int32()), 2)),
            "of_fixed": pa.array(some(lambda i: [f(2)(i), f(2)(i + 1)], n, nulls), pa.list_(pa.list_(pa.float32(), 2), 2)),
            "in_map": pa.array(some(lambda i: [("k", f(2)(i))] * rng.randrange(0, 2), n, nulls), pa.map_(pa.string(), pa.list_(pa.float32(), 2))),
            "tensor": pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float32(), [2, 2]), pa.array([f(4)(i) for i in range(n)], pa.list_(pa.float32(), 4))),
        }
    )


def deltas(n, nulls):
    return pa.table(
        {
            "i32": pa.array(some(lambda i: rng.randrange(-1000, 1000), n, nulls), pa.int32()),
            "i64": pa.array(some(lambda i: i * 1000 + rng.randrange(-9, 9), n, nulls), pa.int64()),
            "s": pa.array(some(word, n, nulls)),
            "p": pa.array(some(lambda i: f"prefix/{i // 10}/{i}", n, nulls)),
            "f": pa.array(some(lambda i: i / 3, n, nulls), pa.float32()),
            "d": pa.array(some(lambda i: i / 3, n, nulls), pa.float64()),
            "b": pa.array(some(lambda i: rng.random() < 0.1, n, nulls)),
            "l": pa.array(some(lambda i: some(lambda j: j * i, i % 4, nulls), n, nulls), pa.list_(pa.int64())),
        }
    )


DELTA = {
    "use_dictionary": False,
    "column_encoding": {
        "i32": "DELTA_BINARY_PACKED",
        "i64": "DELTA_BINARY_PACKED",
        "s": "DELTA_LENGTH_BYTE_ARRAY",
        "p": "DELTA_BYTE_ARRAY",
        "f": "BYTE_STREAM_SPLIT",
        "d": "BYTE_STREAM_SPLIT",
        "b": "RLE",
        "l.list.element": "DELTA_BINARY_PACKED",
    },
}


def main(folder):
    for page in ("1.0", "2.0"):
        v = "v" + page[0]
        small = {"data_page_version": page, "data_page_size": 300, "write_batch_size": 16}
        for name, make in (("flat", flat), ("nested", nested), ("fixed_lists", fixed_lists)):
            save(folder, f"{name}_{v}", make(N, 0.2), row_group_size=333, **small)
            save(folder, f"{name}_{v}_full", make(300, 0), row_group_size=77, **small)
            save(folder, f"{name}_{v}_nulls", make(150, 1), row_group_size=77, **small)
            save(folder, f"{name}_{v}_large_pages", make(N, 0.1), row_group_size=600, data_page_version=page, write_page_index=True)
            save(folder, f"{name}_{v}_plain", make(200, 0.3), row_group_size=99, use_dictionary=False, **small)
            save(folder, f"{name}_{v}_bare", make(100, 0.3), store_schema=False, **small)
        for n in (10, 3000, 100_000 if page == "1.0" else 5000):
            save(folder, f"delta_{v}_{n}", deltas(n, 0.25), data_page_version=page, data_page_size=2000, **DELTA)
            save(folder, f"delta_{v}_{n}_full", deltas(n, 0), data_page_version=page, data_page_size=2000, **DELTA)
        for codec in ("none", "snappy", "gzip", "brotli", "zstd", "lz4"):
            t = pa.table({"i": range(2000), "s": [f"value {i % 50}" for i in range(2000)], "l": [[i] * (i % 3) for i in range(2000)]})
            save(folder, f"codec_{codec}_{v}", t, compression=codec, **small)
    others(folder)


def across(n):
    """Columns of one level of lists, and structs, whose pages are full at different rows, mostly in the middle of one."""
    cells = lambda i: [{"a": i + j, "b": word(i)} for j in range(rng.randrange(0, 9))]
    return pa.table(
        {
            "x": pa.FixedSizeListArray.from_arrays(pa.array(np.random.default_rng(3).standard_normal(n * 37, dtype=np.float32)), 37),
            "ints": pa.array(some(lambda i: some(lambda j: i * 100 + j, rng.randrange(0, 60)), n), pa.list_(pa.int64())),
            "flags": pa.array([[True] * (i % 90) for i in range(n)], pa.list_(pa.bool_())),
            "map": pa.array(some(lambda i: [(f"k{j}", i * j) for j in range(rng.randrange(0, 20))], n), pa.map_(pa.string(), pa.int32())),
            "cells": pa.array(some(cells, n), pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())]))),
            "image": pa.array(some(lambda i: {"bytes": rng.randbytes(rng.randrange(300)), "path": f"{i}.png"}, n), pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
            "must": pa.array([{"n": i, "w": word(i), "l": [i] * (i % 5)} for i in range(n)], pa.struct([pa.field("n", pa.int64(), False), pa.field("w", pa.string(), False), ("l", pa.list_(pa.int16()))])),
            "n": pa.array(range(n), pa.int64()),
            "times": pa.array([[datetime.datetime(2000, 1, 1)] * (i % 40) for i in range(n)], pa.list_(pa.timestamp("ns"))),
        }
    )


def others(folder):
    for codec in ("none", "snappy", "zstd", "gzip", "brotli", "lz4"):
        save(folder, f"across_{codec}", across(1500), compression=codec, data_page_size=3000, write_batch_size=50, use_dictionary=["image.path"])
    save(folder, "across_dictionaries", across(1500), data_page_size=1000, write_batch_size=50, row_group_size=800, use_deprecated_int96_timestamps=True)
    save(folder, "across_v2", across(1500), data_page_size=1000, write_batch_size=50, data_page_version="2.0")
    save(folder, "zero_rows", flat(0, 0).append_column("l", pa.array([], pa.list_(pa.int32()))))
    w = pq.ParquetWriter(os.path.join(folder, "zero_groups.parquet"), pa.schema([("i", pa.int32()), ("s", pa.dictionary(pa.int32(), pa.string()))]))
    w.close()
    expect(os.path.join(folder, "zero_groups.parquet"))
    save(folder, "empty_group", pa.table({"i": pa.array([], pa.int64())}))
    # B09: one chunk of a dictionary column has many pages.
    t = pa.table({"s": pa.array([f"c{i % 100}" for i in range(20_000)]).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string()))})
    save(folder, "dictionary_pages", t, data_page_size=1000, write_batch_size=500)
    cats = pa.array(some(lambda i: [f"c{j}" for j in range(rng.randrange(0, 3))], N), pa.list_(pa.string()))
    save(folder, "dictionary_lists", pa.table({"cats": cats.cast(pa.list_(pa.dictionary(pa.int32(), pa.string())))}))
    # B13: a dictionary of one value has indices of no bits.
    for page in ("1.0", "2.0"):
        for codec in ("snappy", "none"):
            save(folder, f"constant_v{page[0]}_{codec}", pa.table({"s": ["x"] * 5000, "i": [7] * 5000, "n": pa.array([None, "x"] * 2500)}), data_page_version=page, compression=codec)
    # B12: pages of nothing but nulls between pages of a dictionary's indices.
    holes = pa.array([None if 1000 <= i < 3000 else f"c{i % 9}" for i in range(5000)])
    for page in ("1.0", "2.0"):
        save(folder, f"holes_v{page[0]}", pa.table({"s": holes, "i": holes.is_valid().cast(pa.int32()).filter(pa.array([True] * 5000)), "l": pa.array([[v, v] for v in holes.to_pylist()])}), data_page_version=page, data_page_size=100, write_batch_size=100)
        save(folder, f"checksums_v{page[0]}", pa.table({"i": range(3000), "s": [f"value {i % 50}" for i in range(3000)], "l": [[i] * (i % 3) for i in range(3000)], "d": [{"a": [[i], [i, i]], "b": [[f"{i}"]]} for i in range(3000)]}), data_page_version=page, data_page_size=2000, write_page_checksum=True)
    # Images: a head that is much the same in all of them, and a body that does not compress.
    image = lambda i: (b"\xff\xd8\xff\xe0JFIF" + bytes(range(200)) + b"head " * 20) * (i % 3) + rng.randbytes(rng.randrange(4000, 30_000))
    for page in ("1.0", "2.0"):
        save(folder, f"blobs_v{page[0]}", pa.table({
            "x": pa.array(some(image, 60)),
            "must": pa.array([image(i) for i in range(60)]),
            "large": pa.array([image(i) for i in range(60)], pa.large_binary()),
            "list": pa.array(some(lambda i: [image(j) for j in range(i % 3)], 60)),
            "image": pa.array(some(lambda i: {"bytes": image(i), "path": f"{i}.png"}, 60)),
        }, schema=pa.schema([("x", pa.binary()), pa.field("must", pa.binary(), False), ("large", pa.large_binary()), ("list", pa.list_(pa.binary())), ("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())]))])),
            data_page_version=page, data_page_size=90_000, write_batch_size=3, dictionary_pagesize_limit=20_000)
    # A dictionary that gives way to plain pages in mid-chunk.
    save(folder, "fallback", pa.table({"s": [f"{i:040d}" for i in range(30_000)], "l": [[i, i + 1] for i in range(30_000)]}), dictionary_pagesize_limit=10_000, data_page_size=20_000)
    save(folder, "int96", pa.table({"t": pa.array(some(lambda i: i * 1001, N), pa.timestamp("us")), "z": pa.array(some(lambda i: i * 1001, N), pa.timestamp("ns", "Europe/Berlin"))}), use_deprecated_int96_timestamps=True)
    save(folder, "decimal_ints", pa.table({"a": pa.array(some(lambda i: decimal.Decimal(i), N), pa.decimal128(5, 0)), "b": pa.array(some(lambda i: decimal.Decimal(i), N), pa.decimal128(15, 0))}), store_decimal_as_integer=True)
    s = pa.schema(
        [
            pa.field("id", pa.int64(), False, {"PARQUET:field_id": "7", "unit": "one"}),
            pa.field("s", pa.struct([pa.field("k", pa.string(), True, {"z": "1"})]), True, {"deep": "yes"}),
            pa.field("m", pa.map_(pa.field("key", pa.string(), False, {"k": "v"}), pa.field("value", pa.int32(), False, {"k2": "v2"}))),
            pa.field("l", pa.list_(pa.field("item", pa.int32(), False, {"li": "1"}))),
        ],
        {"owner": "tests"},
    )
    save(folder, "metadata", pa.table([[1, 2], [{"k": "a"}, None], [[("a", 1)], []], [[1], [2, 3]]], schema=s))
    t = pa.table({"n": range(60_000), "s": [f"row {i} " + "x" * (i % 40) for i in range(60_000)], "v": pa.array([[i, i + 1, i + 2, i + 3] for i in range(60_000)], pa.list_(pa.float32(), 4))})
    save(folder, "long", t, row_group_size=25_000, data_page_size=20_000)
    save(folder, "long_v2", t.append_column("l", pa.array([[i] * (i % 3) for i in range(60_000)])), row_group_size=25_000, data_page_size=20_000, data_page_version="2.0")
    save(folder, "long_index", t.append_column("l", pa.array([[i] * (i % 3) for i in range(60_000)])), row_group_size=25_000, data_page_size=20_000, write_page_index=True)


class Vault(pe.KmsClient):
    """Wraps keys so that anybody can unwrap them."""

    def __init__(self, config):
        pe.KmsClient.__init__(self)

    def wrap_key(self, key, name):
        return base64.b64encode(key)

    def unwrap_key(self, key, name):
        return base64.b64decode(key)


def encrypted(folder):
    """Encrypted files are not in the list of files that can be read: they end in .encrypted."""
    table = pa.table({"open": [1, 2, 3], "secret": ["a", "b", "c"]})
    factory = pe.CryptoFactory(Vault)
    for name, plaintext in (("footer", False), ("columns", True)):
        config = pe.EncryptionConfiguration(footer_key="f", column_keys={"c": ["secret"]}, plaintext_footer=plaintext)
        with pq.ParquetWriter(
            os.path.join(folder, name + ".encrypted"),
            table.schema,
            encryption_properties=factory.file_encryption_properties(pe.KmsConnectionConfig(), config),
        ) as w:
            w.write_table(table)


def failing(folder):
    """What other readers get wrong or nobody can serve; these end in .bad."""
    text = [f"row {i} ".encode() * (i % 3) for i in range(5000)]
    text[4321] = b"caf\xe9"
    data = pa.array(text, pa.binary())
    lying = pa.StringArray.from_buffers(len(data), data.buffers()[1], data.buffers()[2])
    table = pa.table({"id": range(5000), "text": lying})
    for name, options in {
        "plain": {"use_dictionary": False},
        "dictionary": {"use_dictionary": True},
        "dlba": {"use_dictionary": False, "column_encoding": {"text": "DELTA_LENGTH_BYTE_ARRAY"}},
        "dba": {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}},
    }.items():
        pq.write_table(table, os.path.join(folder, f"utf8_{name}.bad"), **options)
    days = pa.array([0, None, 400_000 * 86_400_000_000, 5], pa.timestamp("us"))
    pq.write_table(pa.table({"id": range(4), "when": days}), os.path.join(folder, "int96.bad"), use_deprecated_int96_timestamps=True)
    digits = pa.table({"d": pa.array([b"", b"\x01\x00", None, b"\xff"]), "m": pa.array([[("a", 1)]] * 4, pa.map_(pa.string(), pa.int32()))})
    pq.write_table(digits, os.path.join(folder, "digits.bad"), store_schema=False)


def huge(path):
    """One row group of about 100 MB with lists, strings and a dictionary."""
    n = 200_000
    table = pa.table(
        {
            "n": pa.array(range(n), pa.int64()),
            "x": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(n * 100, dtype=np.float32)), 100),
            "s": pa.array([f"row {i}" * 8 for i in range(n)]),
            "c": pa.array([f"c{i % 100}" for i in range(n)]).dictionary_encode(),
        }
    )
    pq.write_table(table, path, row_group_size=n, use_dictionary=["c"])


def blobs(path):
    """A dictionary of 20 MB: pyarrow looks how large it is once in 1,024 values."""
    pq.write_table(pa.table({"b": [np.random.default_rng(i).bytes(40 << 10) for i in range(500)]}), path)


def link(folder, source):
    """Links the files below source that pyarrow reads into folder, with what it reads."""
    for at, _, files in os.walk(source):
        for name in files:
            path = os.path.join(at, name)
            flat = os.path.relpath(path, source).replace(os.sep, "__").removesuffix(".parquet")
            out = os.path.join(folder, flat + ".arrow")
            try:
                expect(path, out)
                os.symlink(path, os.path.join(folder, flat + ".parquet"))
            except Exception:
                if os.path.exists(out):
                    os.remove(out)


if __name__ == "__main__":
    for source in sys.argv[2:]:
        link(sys.argv[1], source)
    if len(sys.argv) == 2:
        main(sys.argv[1])
        encrypted(sys.argv[1])
        huge(os.path.join(sys.argv[1], "huge.one"))
        blobs(os.path.join(sys.argv[1], "blobs.one"))
        failing(sys.argv[1])

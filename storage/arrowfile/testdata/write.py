"""Writes Arrow IPC files and streams into a folder, and beside each file X what
a reader must see of it as X.expect: a plain, uncompressed stream with the same
batches, dictionaries decoded, extension types as storage.

write.py FOLDER             writes all test files
write.py FOLDER golden      the few small ones that are kept: see testdata/golden
write.py FOLDER FILE...     only the expectations of these files, numbered
"""

import decimal
import os
import sys

import pyarrow as pa

for name in ("arrow.uuid", "arrow.json", "arrow.bool8", "arrow.opaque", "arrow.fixed_shape_tensor"):
    try:
        pa.unregister_extension_type(name)
    except (KeyError, pa.ArrowKeyError):
        pass


def children(t):
    if pa.types.is_map(t):
        return [pa.field("entries", pa.struct([t.key_field, t.item_field]), nullable=False)]
    return [t.field(i) for i in range(t.num_fields)]


def encoded(t):
    return pa.types.is_dictionary(t) or any(encoded(f.type) for f in children(t))


def plain_type(t):
    if not encoded(t):
        return t
    if pa.types.is_dictionary(t):
        return plain_type(t.value_type)
    kids = [f.with_type(plain_type(f.type)) for f in children(t)]
    if pa.types.is_struct(t):
        return pa.struct(kids)
    if pa.types.is_map(t):
        pair = kids[0].type
        return pa.map_(pair.field(0), pair.field(1), t.keys_sorted)
    if pa.types.is_union(t):
        return pa.union(kids, t.mode, t.type_codes)
    if pa.types.is_fixed_size_list(t):
        return pa.list_(kids[0], t.list_size)
    if pa.types.is_large_list(t):
        return pa.large_list(kids[0])
    if pa.types.is_list_view(t):
        return pa.list_view(kids[0])
    if pa.types.is_run_end_encoded(t):
        return pa.run_end_encoded(kids[0].type, kids[1].type)
    return pa.list_(kids[0])


def kid_arrays(a):
    t = a.type
    if pa.types.is_map(t):
        return [pa.StructArray.from_arrays([a.keys, a.items], fields=[t.key_field, t.item_field])]
    if pa.types.is_struct(t) or pa.types.is_union(t):
        return [a.field(i) for i in range(t.num_fields)]
    return [a.values]


def plain(a):
    t = a.type
    if not encoded(t):
        return a
    if pa.types.is_dictionary(t):
        try:
            return plain(a.dictionary).take(a.indices)
        except pa.ArrowNotImplementedError:
            return pa.array(a.to_pylist(), plain_type(t))
    own = 3 if pa.types.is_union(t) and t.mode == "dense" else 3 if pa.types.is_list_view(t) else 2
    if pa.types.is_struct(t) or pa.types.is_fixed_size_list(t):
        own = 1
    buffers = a.buffers()[:own]
    return pa.Array.from_buffers(plain_type(t), len(a), buffers, a.null_count, 0, children=[plain(k) for k in kid_arrays(a)])


def batches(path):
    with pa.OSFile(path, "rb") as f:
        data = f.read()
    if data[:6] == b"ARROW1":
        r = pa.ipc.open_file(pa.BufferReader(data))
        return r.schema, [r.get_batch(i) for i in range(r.num_record_batches)]
    r = pa.ipc.open_stream(pa.BufferReader(data))
    return r.schema, list(r)


def expect(path, out):
    schema, got = batches(path)
    fields = [f.with_type(plain_type(f.type)) for f in schema]
    schema = pa.schema(fields, schema.metadata)
    with pa.OSFile(out, "wb") as f, pa.ipc.new_stream(f, schema) as w:
        for b in got:
            if b.num_columns == 0:
                w.write_batch(b)
                continue
            w.write_batch(pa.RecordBatch.from_arrays([plain(c) for c in b.columns], schema=schema))


class Files:
    def __init__(self, folder):
        self.folder = folder

    def write(self, name, schema, bs, *, stream, codec=None, expected=True, **options):
        path = os.path.join(self.folder, name)
        options = pa.ipc.IpcWriteOptions(compression=codec, **options)
        new = pa.ipc.new_stream if stream else pa.ipc.new_file
        with pa.OSFile(path, "wb") as f, new(f, schema, options=options) as w:
            for b in bs:
                w.write_batch(b)
        if expected:
            expect(path, path + ".expect")

    def all_forms(self, name, bs, **options):
        for form, stream in (("file", False), ("stream", True)):
            for codec in (None, "lz4", "zstd"):
                self.write(f"{name}-{codec or 'none'}.{form}", bs[0].schema, bs, stream=stream, codec=codec, **options)


def cycle(values, n):
    return [values[i % len(values)] for i in range(n)]


def leaves(n):
    """One column of every type without children."""
    ints = cycle([1, None, -3, 7, 100, 0, None], n)
    units = cycle([0, 1, None, 200, 5], n)
    days = cycle([0, 86400000, None, -86400000], n)
    texts = cycle(["", "a", None, "twelve bytes", "thirteen bytes", "ünï¢ødé", "x" * 300], n)
    raw = [None if s is None else s.encode() + b"\x00\xff" for s in texts]
    D = decimal.Decimal
    decs = cycle([D("1.25"), None, D("-99.99"), D("0.00")], n)
    cols = {"null": pa.nulls(n), "bool": pa.array(cycle([True, None, False, True, True], n), pa.bool_())}
    for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()):
        cols[str(t)] = pa.array(ints, t)
    cols["half"] = pa.array(cycle([1.5, None, -2.0], n), pa.float16())
    for t in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()):
        cols[str(t)] = pa.array(units, t)
    for t in (pa.date32(), pa.time32("s"), pa.time32("ms"), pa.duration("us"), pa.timestamp("s"), pa.timestamp("ns", "Europe/Berlin"), pa.time64("us"), pa.time64("ns"), pa.duration("s")):
        cols[str(t)] = pa.array(units, pa.int32() if t.bit_width == 32 else pa.int64()).cast(t)
    cols["date64"] = pa.array(days, pa.int64()).cast(pa.date64())
    cols["month_day_nano"] = pa.array(cycle([pa.MonthDayNano([1, -2, 3]), None], n), pa.month_day_nano_interval())
    for t in (pa.decimal32(5, 2), pa.decimal64(12, 2), pa.decimal128(20, 2), pa.decimal256(50, 2)):
        cols[str(t)] = pa.array(decs, t)
    for t in (pa.string(), pa.large_string(), pa.string_view()):
        cols[str(t)] = pa.array(texts, t)
    for t in (pa.binary(), pa.large_binary(), pa.binary_view()):
        cols[str(t)] = pa.array(raw, t)
    cols["fixed"] = pa.array(cycle([b"abc", None, b"xyz"], n), pa.binary(3))
    cols["no nulls"] = pa.array(range(n), pa.int64())
    return pa.RecordBatch.from_pydict(cols)


def nested(n):
    """Lists, structs, maps, unions and runs of one another."""
    lists = cycle([[1, 2], None, [], [3, None, 5]], n)
    pair = pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.string(), metadata={"k": "v"})])
    pairs = cycle([{"x": 1, "y": "a"}, None, {"x": None, "y": "long enough to matter"}], n)
    types = pa.array(cycle([0, 1, 1, 0], n), pa.int8())
    numbers, words = pa.array(range(n), pa.int64()), pa.array([f"word {i}" for i in range(n)], pa.string())
    slots, seen = [], [0, 0]
    for code in types.to_pylist():
        slots.append(seen[code])
        seen[code] += 1
    cols = {
        "list": pa.array(lists, pa.list_(pa.int64())),
        "large_list": pa.array(lists, pa.large_list(pa.int32())),
        "list_view": pa.array(lists, pa.list_view(pa.int64())),
        "large_list_view": pa.array(lists, pa.large_list_view(pa.int64())),
        "fixed": pa.array(cycle([[1, 2], None, [3, None]], n), pa.list_(pa.float32(), 2)),
        "struct": pa.array(pairs, pair),
        "list of struct": pa.array(cycle([pairs[:2], None, pairs[2:3]], n), pa.list_(pair)),
        "list of list": pa.array(cycle([[["a"], None, []], None, [["b", "c"]]], n), pa.list_(pa.list_(pa.string()))),
        "struct of struct": pa.array(cycle([{"in": {"x": 5, "y": "z"}, "out": [True]}, None], n), pa.struct({"in": pair, "out": pa.list_(pa.bool_())})),
        "map": pa.array(cycle([[("a", 1), ("b", None)], None, []], n), pa.map_(pa.string(), pa.int32())),
        "sparse": pa.UnionArray.from_sparse(types, [numbers, words]),
        "dense": pa.UnionArray.from_dense(types, pa.array(slots, pa.int32()), [numbers[: max(seen[0], 1)], words[: max(seen[1], 1)]]),
        "runs": pa.RunEndEncodedArray.from_arrays(pa.array([max(n // 2, 1), n] if n > 1 else [n], pa.int32()), pa.array(["first", None][: 2 if n > 1 else 1])) if n else pa.RunEndEncodedArray.from_arrays(pa.array([], pa.int32()), pa.array([], pa.string())),
        "views": pa.array(cycle([["short", "a view that is longer"], None], n), pa.list_(pa.string_view())),
    }
    return pa.RecordBatch.from_pydict(cols)


def with_metadata():
    """Extension types that are known, with bad parameters, and unknown."""
    fields = [
        pa.field("uuid", pa.binary(16), metadata={"ARROW:extension:name": "arrow.uuid", "ARROW:extension:metadata": ""}),
        pa.field("json", pa.string(), metadata={"ARROW:extension:name": "arrow.json", "ARROW:extension:metadata": ""}),
        pa.field("tensor", pa.list_(pa.float32(), 4), metadata={"ARROW:extension:name": "arrow.fixed_shape_tensor", "ARROW:extension:metadata": '{"shape":[2,2]}'}),
        pa.field("bad", pa.int64(), metadata={"ARROW:extension:name": "arrow.uuid", "ARROW:extension:metadata": "no uuid at all"}),
        pa.field("unknown", pa.int32(), nullable=False, metadata={"ARROW:extension:name": "example.unknown", "ARROW:extension:metadata": "\x00\xff", "more": "yes"}),
        pa.field("map", pa.map_(pa.field("key", pa.string(), nullable=False, metadata={"a": "b"}), pa.field("value", pa.int32(), nullable=False, metadata={"c": "d"}))),
    ]
    schema = pa.schema(fields, {"about": "everything", "pandas": "{}"})
    cols = [[b"0123456789abcdef"] * 3, ["{}", None, "[1]"], [[1, 2, 3, 4]] * 3, [1, 2, 3], [4, 5, 6], [[("k", 1)], None, []]]
    return pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(cols, fields)], schema=schema)


def dictionary_batch(words, n, index=pa.int32()):
    codes = pa.array([None if i % 5 == 4 else i % len(words) for i in range(n)], index)
    return pa.RecordBatch.from_arrays([pa.DictionaryArray.from_arrays(codes, words)], ["word"])


def deep_dictionaries():
    """Dictionaries below lists, structs and maps, and within other dictionaries."""
    inner = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 1], pa.int8()), pa.array(["red", "green"]))
    pairs = pa.StructArray.from_arrays([inner, pa.array([1, 2, 3, 4])], ["colour", "n"])
    outer = pa.DictionaryArray.from_arrays(pa.array([3, 0, None, 1, 2, 3], pa.uint16()), pairs)
    listed = pa.ListArray.from_arrays(pa.array([0, 2, 2, 3, 4, 4, 4], pa.int32()), inner)
    lists = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1, None, 2, 0], pa.int64()), listed.slice(0, 4))
    keyed = pa.MapArray.from_arrays(pa.array([0, 2, 2, 3, 4, 4, 4], pa.int32()), pa.array(["a", "b", "a", "c"]), inner)
    return pa.RecordBatch.from_arrays([outer, listed, lists, keyed, pa.array(range(6))], ["outer", "listed", "lists", "keyed", "n"])


def dictionaries(files):
    words = pa.array(["zero", "one", "a word longer than twelve bytes", None])
    types = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()]
    cols = [dictionary_batch(words, 100, t).column(0) for t in types]
    files.all_forms("dictionary-indices", [pa.RecordBatch.from_arrays(cols, [str(t) for t in types])])
    values = [pa.array([1.5, 2.5, None]), pa.array([True, False]), pa.array([b"ab", b"cd"], pa.binary(2)), pa.array([1, 2], pa.timestamp("us", "UTC")), pa.array(["v", "view of many bytes"], pa.string_view()), pa.array([None, None], pa.null())]
    cols = [dictionary_batch(v, 50).column(0) for v in values]
    files.all_forms("dictionary-values", [pa.RecordBatch.from_arrays(cols, [f"c{i}" for i in range(len(values))])])
    deep = deep_dictionaries()
    files.all_forms("dictionary-deep", [deep, deep.slice(2, 3), deep.slice(0, 0)])
    first, second, third = pa.array(["a", "b"]), pa.array(["a", "b", "c", "d"]), pa.array(["x"])
    grow = [dictionary_batch(first, 10), dictionary_batch(second, 11), dictionary_batch(second, 3)]
    for form, stream in (("file", False), ("stream", True)):
        files.write(f"dictionary-delta.{form}", grow[0].schema, grow, stream=stream, emit_dictionary_deltas=True)
    replace = [dictionary_batch(first, 10), dictionary_batch(third, 7), dictionary_batch(second, 5), dictionary_batch(first, 4)]
    for codec in (None, "zstd"):
        files.write(f"dictionary-replace-{codec}.stream", replace[0].schema, replace, stream=True, codec=codec, emit_dictionary_deltas=True)
    big = pa.array(["small", "L" * (1 << 20)])
    files.write("dictionary-wide.stream", pa.schema([("word", pa.dictionary(pa.int32(), pa.string()))]), [dictionary_batch(big, 300)], stream=True, expected=False)


def golden(folder):
    """Files whose numbers are frozen; another version of pyarrow may write others."""
    files = Files(folder)
    small = leaves(5).select(["bool", "int32", "string", "binary_view", "decimal128(20, 2)", "no nulls"])
    files.write("leaves.file", small.schema, [small, small.slice(0, 0), small.slice(1, 3)], stream=False, expected=False)
    files.write("leaves-zstd.stream", small.schema, [small, small], stream=True, codec="zstd", expected=False)
    tree = nested(4)
    files.write("nested-lz4.file", tree.schema, [tree], stream=False, codec="lz4", expected=False)
    files.write("nested.stream", tree.schema, [tree], stream=True, expected=False)
    deep = deep_dictionaries()
    files.write("dictionaries.file", deep.schema, [deep], stream=False, expected=False)
    one, two = dictionary_batch(pa.array(["a", "b"]), 6), dictionary_batch(pa.array(["a", "b", "c"]), 9)
    files.write("deltas.stream", one.schema, [one, two, one], stream=True, expected=False, emit_dictionary_deltas=True)
    files.write("v4.stream", tree.schema, [tree], stream=True, expected=False, use_legacy_format=True, metadata_version=pa.ipc.MetadataVersion.V4)
    none = pa.RecordBatch.from_struct_array(pa.array([{}] * 7, pa.struct([])))
    files.write("no-columns.file", none.schema, [none], stream=False, expected=False)


def in_order(t):
    """Whether rows of type t lie in order, one after the other, in every buffer."""
    scattered = (pa.types.is_binary_view, pa.types.is_string_view, pa.types.is_list_view, pa.types.is_large_list_view, pa.types.is_union, pa.types.is_run_end_encoded)
    return not any(test(t) for test in scattered) and all(in_order(f.type) for f in children(t))


def in_place(n):
    """The columns of leaves and nested whose rows can be served from where they lie."""
    batches = (leaves(n), nested(n))
    return pa.RecordBatch.from_pydict({f"{i} {f.name}": b.column(f.name) for i, b in enumerate(batches) for f in b.schema if in_order(f.type)})


def main(folder):
    files = Files(folder)
    files.all_forms("leaves", [leaves(0), leaves(1), leaves(1000), leaves(7)])
    files.all_forms("nested", [nested(0), nested(1), nested(500), nested(13)])
    files.all_forms("metadata", [with_metadata()])
    files.write("v4.file", leaves(10).schema, [leaves(10)], stream=False, metadata_version=pa.ipc.MetadataVersion.V4)
    files.write("v4.stream", nested(10).schema, [nested(10)], stream=True, metadata_version=pa.ipc.MetadataVersion.V4)
    files.write("legacy.stream", leaves(10).schema, [leaves(10)], stream=True, use_legacy_format=True)
    files.write("legacy.file", nested(10).schema, [nested(10)], stream=False, use_legacy_format=True)
    dictionaries(files)
    empty = pa.schema([])
    rows = pa.RecordBatch.from_struct_array(pa.array([{}] * 7, pa.struct([])))
    files.all_forms("no-columns", [rows, rows])
    wide = pa.RecordBatch.from_pydict({f"c{i}": pa.array([i, None], pa.int32()) for i in range(3000)})
    files.write("wide.file", wide.schema, [wide], stream=False)
    files.write("no-batches.file", leaves(1).schema, [], stream=False)
    files.write("no-batches.stream", empty, [], stream=True)
    large = pa.RecordBatch.from_pydict({"id": pa.array(range(300_000)), "text": pa.array([f"row {i} " + "y" * (i % 50) for i in range(300_000)]), "vec": pa.array([[i, i + 1] for i in range(300_000)], pa.list_(pa.float32(), 2))})
    files.write("large-none.file", large.schema, [large], stream=False)
    files.write("large-lz4.stream", large.schema, [large], stream=True, codec="lz4")
    mapped = in_place(60_000)
    files.write("mapped.arrow", mapped.schema, [mapped], stream=False)
    huge = pa.RecordBatch.from_pydict({"id": pa.array(range(10)), "blob": pa.array([bytes([i]) * (8 << 20) for i in range(10)])})
    files.write("huge-none.file", huge.schema, [huge], stream=False, expected=False)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        main(sys.argv[1])
    elif sys.argv[2:] == ["golden"]:
        golden(sys.argv[1])
    else:
        for i, path in enumerate(sys.argv[2:]):
            out = os.path.join(sys.argv[1], str(i))
            try:
                expect(path, out)
            except (KeyError, pa.ArrowException):  # what pyarrow cannot do has no expectation
                os.path.exists(out) and os.remove(out)

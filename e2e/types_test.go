package e2e

import "testing"

// everyType writes a table of every type that pyarrow writes to each format, with field metadata and extensions.
const everyType = `
import datetime, decimal, uuid

class Unknown(pa.ExtensionType):
    def __init__(self):
        super().__init__(pa.int32(), "example.unknown")
    def __arrow_ext_serialize__(self):
        return b"parameters"
    @classmethod
    def __arrow_ext_deserialize__(cls, storage, data):
        return cls()

def columns(n, arrow):
    """One column of each type; arrow says whether those that Parquet does not know are wanted."""
    some = lambda f: [None if i % 5 == 3 else f(i) for i in range(n)]
    yield "bool", pa.array(some(lambda i: i % 3 == 0))
    for t in (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64()):
        yield str(t), pa.array(some(lambda i: i % 100), t)
    yield "half", pa.array(some(lambda i: np.float16(i)), pa.float16())
    yield "string", pa.array(some(lambda i: "ü" * (i % 7)))
    yield "large_string", pa.array(some(lambda i: f"l{i}"), pa.large_string())
    yield "binary", pa.array(some(lambda i: bytes([i % 256]) * (i % 4)))
    yield "large_binary", pa.array(some(lambda i: b"x" * (i % 4)), pa.large_binary())
    yield "fixed", pa.array(some(lambda i: b"%04d" % i), pa.binary(4))
    yield "date32", pa.array(some(lambda i: datetime.date(2020, 1, 1 + i % 28)))
    for unit in ("ms", "us", "ns"):
        yield "ts" + unit, pa.array(some(lambda i: i * 1000), pa.timestamp(unit))
    yield "tstz", pa.array(some(lambda i: i), pa.timestamp("us", "Europe/Berlin"))
    yield "time32", pa.array(some(lambda i: i), pa.time32("ms"))
    yield "time64", pa.array(some(lambda i: i), pa.time64("us"))
    yield "duration", pa.array(some(lambda i: i), pa.duration("ms"))
    yield "decimal128", pa.array(some(lambda i: decimal.Decimal(i) / 100), pa.decimal128(20, 2))
    yield "decimal256", pa.array(some(lambda i: decimal.Decimal(i) / 100), pa.decimal256(50, 2))
    yield "list", pa.array(some(lambda i: [None if j == 1 else j for j in range(i % 4)]))
    yield "large_list", pa.array(some(lambda i: [j for j in range(i % 4)]), pa.large_list(pa.int16()))
    yield "fsl", pa.array(some(lambda i: [i, None, i + 2]), pa.list_(pa.int32(), 3))
    yield "lists", pa.array(some(lambda i: [[f"{j}"] * j for j in range(i % 3)]))
    yield "struct", pa.array(some(lambda i: {"a": i, "b": None if i % 2 else f"{i}", "c": {"d": [i]}}))
    yield "map", pa.array(some(lambda i: [(f"k{j}", j) for j in range(i % 3)]), pa.map_(pa.string(), pa.int64()))
    yield "null", pa.nulls(n)
    yield "dictionary", pa.array(some(lambda i: f"d{i % 4}")).dictionary_encode()
    yield "uuid", pa.ExtensionArray.from_storage(pa.uuid(), pa.array(some(lambda i: uuid.UUID(int=i).bytes), pa.binary(16)))
    yield "json", pa.ExtensionArray.from_storage(pa.json_(), pa.array(some(lambda i: json.dumps({"i": i}))))
    yield "tensor", pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float32(), [2, 2]), pa.array([[i] * 4 for i in range(n)], pa.list_(pa.float32(), 4)))
    yield "unknown", pa.ExtensionArray.from_storage(Unknown(), pa.array(some(lambda i: i), pa.int32()))
    if arrow:
        yield "date64", pa.array(some(lambda i: datetime.date(2020, 1, 1 + i % 28)), pa.date64())
        yield "interval", pa.array(some(lambda i: (i, i, i * 1000)), pa.month_day_nano_interval())
        yield "string_view", pa.array(some(lambda i: "long enough to be apart " * (i % 3)), pa.string_view())
        yield "binary_view", pa.array(some(lambda i: b"0123456789abcdef" * (i % 3)), pa.binary_view())
        yield "list_view", pa.array(some(lambda i: list(range(i % 4))), pa.list_view(pa.int32()))
        yield "dense", pa.UnionArray.from_dense(pa.array([i % 2 for i in range(n)], pa.int8()), pa.array([i // 2 for i in range(n)], pa.int32()), [pa.array(range(n)), pa.array([f"{i}" for i in range(n)])])
        yield "sparse", pa.UnionArray.from_sparse(pa.array([i % 2 for i in range(n)], pa.int8()), [pa.array(range(n)), pa.array([f"{i}" for i in range(n)])])

def table(n, arrow):
    names, arrays = zip(*columns(n, arrow))
    fields = [pa.field(name, a.type, metadata={"about": name}) for name, a in zip(names, arrays)]
    return pa.table(list(arrays), pa.schema(fields, metadata={"owner": "tests"}))

def plain(t):
    return t.value_type if pa.types.is_dictionary(t) else t
`

// B30, B32: every type, nested or an extension, known or not, with its metadata, whole and in batches of odd sizes.
func TestB30B32EveryType(t *testing.T) {
	dir := t.TempDir()
	python(t, everyType+`
root = Path(sys.argv[1])
for name in ("parquet", "file", "stream", "lz4", "zstd"):
    (root / name).mkdir()
for shard in range(2):
    pq.write_table(table(1_000, False), root / "parquet" / f"{shard}.parquet", row_group_size=300, store_schema=True)
    for name, make, codec in (("file", pa.ipc.new_file, None), ("stream", pa.ipc.new_stream, None), ("lz4", pa.ipc.new_file, "lz4"), ("zstd", pa.ipc.new_stream, "zstd")):
        t = table(1_000, True)
        with make(root / name / f"{shard}.arrow", t.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as w:
            w.write_table(t, max_chunksize=300)
`, dir)
	s := serve(t, dir)
	python(t, everyType+`
client = fl.connect(sys.argv[1])
def same(got, want, name):
    assert got.schema.metadata is not None and got.schema.metadata[b"owner"] == b"tests", got.schema.metadata
    for column in want.column_names:
        field, stored = got.schema.field(column), want.schema.field(column)
        meta = {k: v for k, v in (field.metadata or {}).items() if k != b"PARQUET:field_id"}
        if column == "unknown":  # this process knows the type only as the storage with metadata
            assert meta[b"ARROW:extension:name"] == b"example.unknown" and meta[b"ARROW:extension:metadata"] == b"parameters", meta
            stored = stored.with_type(pa.int32())
        assert field.type == plain(stored.type), (name, column, field.type, stored.type)
        assert meta[b"about"] == column.encode(), (name, column, meta)
        a, b = got[column].to_pylist(), want[column].to_pylist()
        if b and isinstance(b[0], float):
            a, b = [str(x) for x in a], [str(x) for x in b]
        assert str(a) == str(b), (name, column)
for name in ("parquet", "file", "stream", "lz4", "zstd"):
    arrow = name != "parquet"
    want = table(1_000, arrow)
    want = pa.concat_tables([want, want])
    same(read(client, dataset=name), want, name)
    for size in (1, 7, 301, 1999):
        req = {"dataset": name, "batch_size": size}
        if size == 1:
            req["shards"] = "0:1"
        got = read(client, **req)
        got.validate(full=True)
        same(got, want.slice(0, 1_000) if size == 1 else want, f"{name}/{size}")
    for codec in ("lz4", "zstd"):
        same(read(client, dataset=name, batch_size=333, compression=codec), want, f"{name}/{codec}")
    some = read(client, dataset=name, columns=[["struct", "c", "d"], "map"])
    assert some.column_names == ["struct", "map"] and some["struct"].type == pa.struct([("c", pa.struct([("d", pa.list_(pa.int64()))]))]), some.schema
`, s.uri)
}

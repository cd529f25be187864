package e2e

import "testing"

// Strings that are no text are told by file, column and row, whichever way they are read; other columns stay readable.
func TestTextThatIsNotUTF8(t *testing.T) {
	dir := t.TempDir()
	python(t, `
root = Path(sys.argv[1])
n, bad = 50_000, 44_321
words = [b"word %d" % i for i in range(n)]
words[bad] = b"na\xefve"
text = pa.array(words, pa.binary()).view(pa.string())
large = pa.array(words, pa.large_binary()).view(pa.large_string())
table = pa.table({
    "id": range(n),
    "text": text,
    "large": large,
    "list": pa.ListArray.from_arrays(pa.array(range(n + 1), pa.int32()), text),
    "struct": pa.StructArray.from_arrays([pa.FixedSizeListArray.from_arrays(text, 1)], ["f"]),
})
class_ = pa.DictionaryArray.from_arrays(pa.array([i % 3 for i in range(n)], pa.int8()), pa.array([b"a", b"b", b"\xff"]).view(pa.string()))
view = pa.table({"id": range(n), "class": class_, "view": large.cast(pa.large_binary()).cast(pa.binary_view()).view(pa.string_view())})
for name in ("parquet", "plain", "arrow", "zstd", "few", "other"):
    (root / name).mkdir()
pq.write_table(table, root / "parquet" / "x.parquet", row_group_size=30_000)
pq.write_table(table, root / "plain" / "x.parquet", row_group_size=30_000, use_dictionary=False, compression="none")
for name, t, rows, codec in (("arrow", table, 30_000, None), ("zstd", table, 30_000, "zstd"), ("few", table, 100, None), ("other", view, 30_000, None)):
    with pa.ipc.new_file(root / name / "x.arrow", t.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as w:
        w.write_table(t, max_chunksize=rows)
`, dir)
	s := serve(t, dir)
	python(t, `
client = fl.connect(sys.argv[1])
def refused(name, column, *words):
    try:
        read(client, dataset=name, columns=[column])
        raise SystemExit(f"{name}: {column} was served")
    except pa.ArrowException as e:
        for word in ("data loss", "not UTF-8", *words):
            assert word in str(e), (name, column, word, str(e))
for name in ("parquet", "plain", "arrow", "zstd", "few"):
    file = "x.parquet" if name in ("parquet", "plain") else "x.arrow"
    row = "row 21:" if name == "few" else "row 14321:"  # within the row group or record batch
    for column, path in (("text", "text"), ("large", "large"), ("list", "list."), ("struct", "struct.f.")):
        refused(name, column, file, f'column "{path}', row)
    assert read(client, dataset=name, columns=["id"]).num_rows == 50_000
refused("other", "view", "x.arrow", 'column "view"', "row 14321:")
refused("other", "class", "x.arrow", 'column "class"', "row 2:")  # of its dictionary
assert read(client, dataset="other", columns=["id"]).num_rows == 50_000
`, s.uri)
}

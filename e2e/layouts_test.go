package e2e

import (
	"testing"

	"github.com/headrace/headrace/storage/buckettest"
)

// place is a kind of store that the matrix of this file puts its files in. What is served must be the same everywhere.
type place struct {
	name string
	// put brings the files of a local folder there and returns the URL that they are served from.
	put func(t *testing.T, folder string) string
}

// places are all of them; what runs for one ends with the test.
func places(t *testing.T) []place {
	all := []place{{"local", func(_ *testing.T, folder string) string { return "file://" + folder }}}
	if testing.Short() {
		return all
	}
	s3 := buckettest.S3(t)
	return append(all, place{"S3", func(t *testing.T, folder string) string {
		prefix := t.Name()
		s3.Upload(t, prefix, folder)
		return s3.URL(prefix)
	}})
}

// layouts write the same 3,000 rows, x from 0 on, in folders that people make.
const layouts = `
root, format, layout = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
def write(key, start, rows):
    path = root / (key + "." + format)
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"x": pa.array(range(start, start + rows), pa.int64()), "text": [f"row {i}" for i in range(start, start + rows)]})
    if format == "parquet":
        pq.write_table(table, path, row_group_size=300)
    else:
        with (pa.ipc.new_file if format == "arrow" else pa.ipc.new_stream)(str(path), table.schema) as w:
            w.write_table(table, max_chunksize=300)
for i in range(10):
    write({"flat": f"part-{i}", "odd": f"a+b %23&=/ü {i}", "hive": f"year={2020 + i // 4}/tag=t%2F{i}/part", "list": f"_{i}"}[layout], 300 * i, 300)
(root / "_SUCCESS").touch()
if layout == "list":
    (root / "files.txt").write_text("".join(f"_{i}.{format}\n" for i in range(10)))
`

// Every format in every layout, on every kind of store, in every order: the same rows, and the same after a resume.
func TestLayoutsFormatsAndOrders(t *testing.T) {
	at := places(t)
	for _, layout := range []struct{ name, keys string }{
		{"flat", "schema: strict"}, {"odd", "schema: strict"}, {"hive", "partitioning: hive"}, {"list", `files: ["@files.txt"]`},
	} {
		for _, format := range []string{"parquet", "arrow", "arrows"} {
			dir := t.TempDir()
			python(t, layouts, dir, format, layout.name)
			for _, p := range at {
				if p.name != "local" && (layout.name == "flat" || format == "arrows") {
					continue // plain folders on every store have a test of their own
				}
				t.Run(layout.name+" "+format+" "+p.name, func(t *testing.T) {
					s := serveKeyed(t, p.put(t, dir), layout.keys)
					python(t, readInEveryOrder, s.uri, layout.name)
				})
			}
		}
	}
}

const readInEveryOrder = `
client = fl.connect(sys.argv[1])
hive = sys.argv[2] == "hive"
def check(table, order=None):
    x = table.column("x").to_pylist()
    assert order is None or x == order, (x[:10], order[:10])
    for row in table.to_pylist():
        assert row["text"] == f"row {row['x']}"
        if hive:
            i = row["x"] // 300
            assert (row["year"], row["tag"]) == (2020 + i // 4, f"t/{i}"), row
    return x
whole = read(client, dataset="d")
if hive:
    assert whole.schema.field("year").type == pa.int64() and whole.schema.field("tag").type == pa.string()
check(whole, list(range(3000)))
for shuffle in ["window", "full"]:
    options = dict(dataset="d", shuffle=shuffle, seed=7, batch_size=64, tail="keep")
    info = client.get_flight_info(request(**options))
    batches = [(c.data, json.loads(c.app_metadata.to_pybytes())) for c in client.do_get(info.endpoints[0].ticket)]
    x = check(pa.Table.from_batches([b for b, _ in batches]))
    assert sorted(x) == list(range(3000)) and x != sorted(x)
    snapshot = json.loads(info.app_metadata)["snapshot"]
    rest = read(client, **options, snapshot=snapshot, after=batches[19][1]["cursor"])
    check(rest, x[20 * 64:])
    ranks = [check(read(client, **{**options, "batch_size": 32}, snapshot=snapshot, world_size=2, rank=r)) for r in range(2)]
    assert sorted(sum(ranks, [])) == list(range(3000))
if hive:
    only = read(client, dataset="d", columns=["year"], shards="0:4")
    assert only.column("year").to_pylist() == [2020] * 1200
`

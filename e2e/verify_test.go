package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestVerify walks datasets: a good one in each format, and one with a page and a footer that were damaged. What verify
// prints makes a config of it with which all the rest is good.
func TestVerify(t *testing.T) {
	dir := t.TempDir()
	python(t, `
import os, sys
import pyarrow as pa, pyarrow.parquet as pq
root = sys.argv[1]
os.makedirs(root + "/bad"); os.makedirs(root + "/good")
for i in range(4):
    t = pa.table({"i": range(50_000), "s": [f"row {j % 100}" for j in range(50_000)]})
    pq.write_table(t, f"{root}/bad/part-{i} [x].parquet", write_page_checksum=True)
with pa.ipc.new_file(root + "/good/a.arrow", t.schema) as w:
    w.write_table(t)
`, dir)
	damage := func(name string, change func([]byte) []byte) {
		path := filepath.Join(dir, "bad", name)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, change(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	damage("part-1 [x].parquet", func(b []byte) []byte { b[1000] ^= 1; return b })
	damage("part-3 [x].parquet", func(b []byte) []byte { return b[:len(b)-10] })
	out, errOut, err := run(t, "verify", "good", "--folder", dir)
	if err != nil || !strings.Contains(out, "50,000 rows read") || !strings.Contains(out, "0 of 1 shard ") {
		t.Errorf("%v %s\n%s", err, errOut, out)
	}
	out, errOut, err = run(t, "verify", "bad", "--folder", dir)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(errOut, "2 of 4 shards") {
		t.Errorf("%v %s\n%s", err, errOut, out)
	}
	const exclude = `exclude: ["part-1 \\[x].parquet", "part-3 \\[x].parquet"]`
	for _, want := range []string{"100,000 rows read", "CRC-32", "does not end in PAR1", exclude} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "rpc error") {
		t.Errorf("gRPC's own words:\n%s", out)
	}
	out, _, _ = run(t, "verify", "bad", "--folder", dir, "--json")
	var found struct {
		Rows, Shards int64
		Bad          []struct{ Shard, Error string }
	}
	if err := json.Unmarshal([]byte(out), &found); err != nil || found.Rows != 100_000 || found.Shards != 4 || len(found.Bad) != 2 || found.Bad[1].Shard != "part-3 [x].parquet" {
		t.Errorf("--json: %v\n%s", err, out)
	}
	config := filepath.Join(dir, "c.yaml")
	text := "auth: {mode: none}\ndatasets:\n  - name: bad\n    url: " + dir + "/bad\n    " + exclude + "\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errOut, err = run(t, "verify", "bad", "--config", config)
	if err != nil || !strings.Contains(out, "100,000 rows read") || !strings.Contains(out, "0 of 2 shards") {
		t.Errorf("without what is to be left out: %v %s\n%s", err, errOut, out)
	}
	if out, errOut, err = run(t, "verify", "good", "--memory", "1GiB"); err == nil || !strings.Contains(errOut, "--memory is of a gateway in process") {
		t.Errorf("%v %s\n%s", err, errOut, out)
	}
	if out, errOut, err = run(t, "verify", "nothing", "--folder", dir); err == nil || !strings.Contains(errOut, `no dataset "nothing"`) {
		t.Errorf("%v %s\n%s", err, errOut, out)
	}
}

// TestVerifyTellsWhatIsTooLarge: shards that take more memory than there is are not told to be bad; with more they are read.
func TestVerifyTellsWhatIsTooLarge(t *testing.T) {
	dir := t.TempDir()
	python(t, `
root = Path(sys.argv[1]) / "large"
root.mkdir()
for name, codec, size in ("p", None, 60), ("z", "zstd", 60), ("y", "zstd", 33):
    table = pa.table({"s": ["x" * (size << 20), name]})
    with pa.ipc.new_file(root / f"{name}.arrow", table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as w:
        w.write_table(table)
whole = (root / "p.arrow").read_bytes()
(root / "bad.arrow").write_bytes(whole[:-20])
`, dir)
	out, errOut, err := run(t, "verify", "large", "--folder", dir, "--memory", "128MiB")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(out, "would be needed for 3 shards, which says nothing") ||
		!strings.Contains(out, "1 of 4 shards cannot be read") || !strings.Contains(out, `exclude: ["bad.arrow"]`) {
		t.Errorf("%v %s\n%s", err, errOut, out)
	}
	if err := os.Remove(filepath.Join(dir, "large", "bad.arrow")); err != nil {
		t.Fatal(err)
	}
	out, errOut, err = run(t, "verify", "large", "--folder", dir, "--memory", "128MiB")
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || strings.Contains(out, "exclude") || !strings.Contains(errOut, "give more by --memory") {
		t.Errorf("%v %s\n%s", err, errOut, out)
	}
	if out, errOut, err = run(t, "verify", "large", "--folder", dir, "--memory", "2GiB"); err != nil || !strings.Contains(out, "6 rows read") {
		t.Errorf("with more memory: %v %s\n%s", err, errOut, out)
	}
}

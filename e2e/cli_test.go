package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestListAndPeek(t *testing.T) {
	dir, key := folders(t), secret(t)
	s := withTokens(t, dir, key)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(mint(t, key, "t", "--grant", "words")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errOut, err := run(t, "ls", "--server", s.uri, "--token", "@"+token)
	if err != nil || !strings.Contains(out, "words") || strings.Contains(out, "vectors") || !strings.Contains(out, "60,021") {
		t.Errorf("ls: %v %s\n%s", err, errOut, out)
	}
	out, _, err = run(t, "ls", "--folder", dir, "--json", "v")
	var listed struct {
		Name   string
		Rows   int64
		Shards int64
		Format string
	}
	if err != nil || json.Unmarshal([]byte(out), &listed) != nil || listed.Name != "vectors" || listed.Rows != 60_021 || listed.Shards != 3 || listed.Format != "arrow" {
		t.Errorf("ls --json: %v %s", err, out)
	}
	out, errOut, err = run(t, "peek", "words", "--server", s.uri, "--token", "@"+token, "--rows", "2")
	for _, want := range []string{"60,021 rows", "fixed_size_list", "part-2.parquet", "row 1", "SEGMENTS", "NULLABLE"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("peek has no %q: %v %s\n%s", want, err, errOut, out)
		}
	}
	out, errOut, err = run(t, "warm", "words", "--server", s.uri, "--token", "@"+token, "--shuffle", "window", "--batch-size", "100")
	if err != nil || !strings.Contains(out, "in memory: 12 of 12 blocks, ") {
		t.Errorf("warm: %v %s\n%s", err, errOut, out)
	}
	out, errOut, err = run(t, "ls", "--cache", "--server", s.uri, "--token", "@"+token)
	if err != nil || !strings.Contains(out, "policy auto (pinned), ") || !strings.Contains(out, "memory") || !strings.Contains(out, "store") {
		t.Errorf("ls --cache: %v %s\n%s", err, errOut, out)
	}
	out, _, err = run(t, "peek", "vectors", "--folder", dir, "--json")
	var peeked struct {
		Rows   int64
		Schema []struct{ Name, Type string }
		First  []map[string]any `json:"first_rows"`
	}
	if err != nil || json.Unmarshal([]byte(out), &peeked) != nil || peeked.Rows != 60_021 || len(peeked.First) != 5 || peeked.First[1]["text"] != "row 1" {
		t.Errorf("peek --json: %v %s", err, out)
	}
}

// TestATokenWithoutGrants: it is good, and its holder sees an empty listing.
func TestATokenWithoutGrants(t *testing.T) {
	args := []string{"token", "--key", secret(t), "--algorithm", "HS256", "--issuer", "a", "--audience", "b", "--tenant", "t"}
	out, errOut, err := run(t, args...)
	if err != nil || strings.Count(out, "\n") != 1 || !strings.Contains(errOut, "without a --grant this token may read nothing") {
		t.Errorf("%v %s\n%s", err, errOut, out)
	}
	if _, errOut, err = run(t, append(args, "--grant", "words")...); err != nil || errOut != "" {
		t.Errorf("with one: %v %s", err, errOut)
	}
}

func TestCommandsUsedWrongly(t *testing.T) {
	dir, key := folders(t), secret(t)
	s := withTokens(t, dir, key)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	config := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(config, []byte("lissten: 127.0.0.1:1\nauth: {mode: jwt}\nmemory: lots\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	astray := filepath.Join(t.TempDir(), "astray.yaml")
	const elsewhere = "auth: {mode: jwt, issuer: a, audience: b, keys: [{algorithm: HS256, file: /no/such/key}]}\ndatasets: [{name: d, url: /no/such/folder}]\n"
	if err := os.WriteFile(astray, []byte(elsewhere), 0o600); err != nil {
		t.Fatal(err)
	}
	types := filepath.Join(t.TempDir(), "types.yaml")
	const wrong = "auth: {mode: none}\ndatasets: [{name: d, url: /no/such/folder, schema: {a: int65}}, {name: e, url: /, schema: {b: int66}}]\n"
	if err := os.WriteFile(types, []byte(wrong), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"ls --server " + s.uri, 1, "--token @FILE"},
		{"ls --server " + s.uri + " --token nonsense", 1, "token"},
		{"peek nothing --folder " + dir, 1, "nothing"},
		{"peek --folder " + dir, 2, "name a DATASET"},
		{"ls --server " + s.uri + " --token @/nowhere", 2, "--token: open /nowhere"},
		{"ls --server ftp://x", 2, "grpc://"},
		{"ls --server " + s.uri + " --folder " + dir, 1, "folder"},
		{"serve", 2, "FOLDER"},
		{"serve /no/such/folder --listen 127.0.0.1:0 --admin 127.0.0.1:0", 1, "/no/such/folder"},
		{"serve " + dir + " --admin 127.0.0.1:0 --listen " + taken.Addr().String(), 1, "in use"},
		{"serve s3:bucket/x", 2, "did you mean s3://bucket/x?"},
		{"ls --folder gs:/bucket", 2, "did you mean gs://bucket?"},
		{"serve " + dir + " --memory 1MiB", 2, "memory"},
		{"serve " + dir + " --memry 1GiB", 2, "memry"},
		{"serve " + dir + " --key " + key, 2, "--algorithm"},
		{"serve " + dir + " --auth jwt", 2, "\n  --issuer: must be set\n  --audience: must be set\n  --key: must be set"},
		{"serve " + dir + " --auth jwt --key /no/key --algorithm HS256 --issuer a --audience b --listen 127.0.0.1:0 --admin 127.0.0.1:0", 1, "/no/key"},
		{"serve --config " + config, 2, "listen"},
		{"config check " + config, 2, "memory"},
		{"config check " + astray, 1, "/no/such/key"},
		{"config check " + astray, 1, "/no/such/folder"},
		{"config check " + types, 2, "int65"},
		{"config check " + types, 2, "int66"},
		{"config check " + types, 2, "/no/such/folder"},
		{"ls --tls-ca /no/such/ca --server grpc+tls://127.0.0.1:1", 2, "/no/such/ca"},
		{"ls --tls-ca " + key + " --server grpc+tls://127.0.0.1:1", 2, "PEM"},
		{"ls --tls-ca " + key + " --server " + s.uri, 2, "grpc+tls://"},
		{"token --key " + key + " --algorithm HS999 --issuer a --audience b --tenant t", 1, "HS256"},
		{"plan --server " + s.uri, 2, "DATASET"},
		{"plan words --request {} --server " + s.uri, 2, "leave out words"},
		{"plan words --batch-size many --server " + s.uri, 2, "headrace: --batch-size: must be an integer, not \"many\"\n"},
		{"plan words --batch-size 1,\"rank\":2 --server " + s.uri, 2, "--batch-size: must be an integer"},
		{"plan words --row-id=maybe --server " + s.uri, 2, "--row-id: must be true or false, not \"maybe\"\n"},
		{"warm words --shuffle windows --server " + s.uri, 2, "headrace: --shuffle: must be one of [\"none\" \"window\" \"full\"], not \"windows\"\n"},
		{"plan words --seed -1 --server " + s.uri, 2, "headrace: --seed: must lie in 0 to 18446744073709551615, not \"-1\"\n"},
		{"plan words --split 0:9000 --server " + s.uri, 2, "--split: must be SEED,FROM,TO, such as 1,0,9000 for nine tenths of the rows, not \"0:9000\"\n"},
		{"plan words --split 1,2,many --server " + s.uri, 2, "--split: must be SEED,FROM,TO"},
		{"plan words --split 1,2,10001 --server " + s.uri, 2, "headrace: --split: must lie in 0 to 10000, not \"10001\"\n"},
		{"plan a//b --server " + s.uri, 2, "headrace: DATASET: "},
		{"plan --request {\"dataset\":\"words\"] --server " + s.uri, 2, "(at byte 18)\n"},
		{"ls --server " + strings.Replace(s.uri, "grpc://", "grpc+tls://", 1), 1, "it speaks plaintext: --server grpc://"},
		{"ls --cache --folder " + dir, 1, "cache"},
		{"warm words --folder " + dir, 2, "folder"},
		{"frobnicate", 1, "frobnicate"},
	} {
		out, errOut, err := run(t, strings.Fields(c.args)...)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != c.code || !strings.Contains(errOut, c.want) || out != "" {
			t.Errorf("%s: %v, want code %d and %q\n%s%s", c.args, err, c.code, c.want, out, errOut)
		}
		if strings.Contains(errOut, "goroutine ") {
			t.Errorf("%s: a stack trace:\n%s", c.args, errOut)
		}
	}
}

func TestPlanIsShown(t *testing.T) {
	dir := folders(t)
	s := serve(t, dir)
	shuffled := "plan words --shuffle window --seed 5 --window-blocks 3 --batch-size 4096 --world-size 4"
	out, errOut, err := run(t, append(strings.Fields(shuffled), "--server", s.uri)...)
	for _, want := range []string{"rows           49,152", "dropped        10,869", "3 blocks", "for a window", "seed 5", "brings it to 2", "0 to 3  12,288  3"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("plan has no %q: %v %s\n%s", want, err, errOut, out)
		}
	}
	request := filepath.Join(t.TempDir(), "request.json")
	text := `{"dataset": "words", "shuffle": "window", "seed": 5, "window_blocks": 3, "batch_size": 4096, "world_size": 4}`
	if err := os.WriteFile(request, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		Plan, Snapshot                              string
		Rows, Steps, Dropped, Blocks, Bytes, Memory int64
		GoodWindow                                  int64 `json:"good_window"`
		Ranks                                       []struct{ Rank, Rows, Steps int64 }
	}
	var a, b, c answer
	out, _, err = run(t, append(strings.Fields(shuffled), "--server", s.uri, "--json")...)
	if err != nil || json.Unmarshal([]byte(out), &a) != nil {
		t.Fatalf("%v %s", err, out)
	}
	out, _, err = run(t, "plan", "--request", "@"+request, "--server", s.uri, "--json")
	if err != nil || json.Unmarshal([]byte(out), &b) != nil || b.Plan != a.Plan || len(b.Ranks) != 4 || b.Ranks[3].Rows != 12_288 {
		t.Errorf("by JSON: %v %s", err, out)
	}
	out = python(t, `
client = fl.connect(sys.argv[1])
[result] = client.do_action(("headrace.plan", Path(sys.argv[2]).read_bytes()))
meta = json.loads(result.body.to_pybytes())
info = json.loads(client.get_flight_info(fl.FlightDescriptor.for_command(Path(sys.argv[2]).read_bytes())).app_metadata)
assert {**meta, "flight": ""} == {**info, "flight": ""}, (meta, info)
print(json.dumps(meta))
`, s.uri, request)
	if err := json.Unmarshal([]byte(out), &c); err != nil || c.Plan != a.Plan || c.Rows != 49_152 || c.Dropped != 10_869 || c.Blocks == 0 || c.Memory == 0 || c.Bytes == 0 || c.GoodWindow <= 3 {
		t.Errorf("the action: %v %+v", err, c)
	}
	out, _, err = run(t, "plan", "words", "--folder", dir, "--split", "1,0,5000", "--shards", "0:2", "--columns", "id,text", "--row-id")
	if err != nil || !strings.Contains(out, "shuffle   none") || strings.Contains(out, "RANK") {
		t.Errorf("in stored order: %v %s", err, out)
	}
}

func TestReceiptsAreChecked(t *testing.T) {
	s := serve(t, folders(t))
	dir := t.TempDir()
	python(t, `
import dataclasses, headrace
client = headrace.connect(sys.argv[1])
options = dict(shuffle=True, seed=5, window_blocks=3, world_size=2, batch_size=1000, num_epochs=2, columns=["id"])
lines = []
for rank in range(2):
    for worker in range(2):
        options |= dict(num_workers=2, worker_id=worker, rank=rank)
        stream = client.stream("words", **options)
        if (rank, worker) == (1, 1):  # stops in the first epoch and goes on in another process
            for _ in range(3):
                next(stream)
            lines.append(json.dumps({"epoch": 0, "rows": stream.stats().rows, "sum": stream.sum}))
            stream = client.stream("words", after=stream.cursor, snapshot=stream.snapshot, **options)
        receipts = []
        for batch in stream:
            if stream.receipt not in receipts and stream.receipt:
                receipts.append(stream.receipt)
        lines += [json.dumps(dataclasses.asdict(r)) for r in receipts]
assert len(lines) == 9
def write(name, lines):
    Path(sys.argv[2], name).write_text("\n".join(lines) + "\n")
write("first", lines[:4])
write("rest", lines[4:])
write("short", lines[5:])
write("twice", lines[4:] + lines[-1:])
write("other", [*lines[6:], json.dumps(json.loads(lines[4]) | {"sum": "0" * 32}), lines[5]])
write("bad", ['{"epoch": 0, "rows": 1, "sum": "x"}'])
`, s.uri, dir)
	command := strings.Fields("plan words --shuffle window --seed 5 --window-blocks 3 --batch-size 1000 --world-size 2 --num-epochs 2 --server " + s.uri)
	check := func(rest, want string, good bool, more ...string) {
		t.Helper()
		args := append(append(command, more...), "--receipts", filepath.Join(dir, "first"), "--receipts", filepath.Join(dir, rest))
		out, errOut, err := run(t, args...)
		if (err == nil) != good || !strings.Contains(out+errOut, want) {
			t.Errorf("%s: %v, want %q\n%s%s", rest, err, want, out, errOut)
		}
	}
	check("rest", "1      60,000  21       60,000  each once", true)
	check("short", "missing", false)
	check("twice", "too many", false)
	check("other", "not the same", false)
	check("bad", "32 hex digits", false)
	check("rest", "another request", false, "--split", "1,0,9000")
	check("rest", "name num_epochs", false, "--num-epochs", "-1")
}

func TestConfigIsExplained(t *testing.T) {
	out, _, err := run(t, "config", "check", "--explain")
	if err != nil || !strings.Contains(out, "auth.issuer") || !strings.Contains(out, "admission_timeout") {
		t.Errorf("%v\n%s", err, out)
	}
	_, errOut, err := run(t, "config", "check", "../configs/sample.yaml") // nothing but its files is missing here
	if err == nil || !strings.Contains(errOut, "keys/id.pem") || !strings.Contains(errOut, "/data/clicks") || strings.Contains(errOut, "line ") {
		t.Errorf("the sample: %v %s", err, errOut)
	}
	good := filepath.Join(t.TempDir(), "good.yaml")
	text := fmt.Sprintf("auth: {mode: jwt, issuer: a, audience: b, keys: [{algorithm: HS256, file: %s}]}\ndatasets: [{name: d, url: %s}]\n", secret(t), t.TempDir())
	if err := os.WriteFile(good, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errOut, err = run(t, "config", "check", good)
	if err != nil || !strings.Contains(out, "is fine: 1 dataset, ") {
		t.Errorf("a good one: %v %s%s", err, out, errOut)
	}
	out, _, err = run(t, "version")
	if err != nil || !strings.Contains(out, "arrow-go/v18 v18.8.0") || !strings.Contains(out, "grpc v1.85.0") {
		t.Errorf("version: %v %s", err, out)
	}
}

func TestUnixSocket(t *testing.T) {
	dir := t.TempDir()
	python(t, `pq.write_table(pa.table({"a": [1, 2]}), sys.argv[1] + "/x.parquet")`, dir)
	socket := filepath.Join(t.TempDir(), "h.sock")
	s := serveOn(t, "", dir, "--listen", "unix:"+socket, "--admin", "127.0.0.1:0")
	python(t, `assert read(fl.connect(sys.argv[1]), dataset=sys.argv[2]).num_rows == 2`, s.uri, filepath.Base(dir))
}

func TestEmptyFolder(t *testing.T) {
	s := serve(t, t.TempDir())
	python(t, `assert list(fl.connect(sys.argv[1]).list_flights()) == []`, s.uri)
	if !strings.Contains(s.log.String(), "no datasets") {
		t.Errorf("no warning:\n%s", s.log)
	}
}

func TestFoldersThatNoRequestCanName(t *testing.T) {
	dir := folders(t)
	for _, name := range []string{"a%20b", "new\nline", "gr\xf6sse"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(dir, "words"))); err != nil {
			t.Logf("%q cannot be here: %v", name, err)
		}
	}
	out, errOut, err := run(t, "ls", "--folder", dir)
	for _, want := range []string{"words", "60,021", "rename the folder \"a%20b\""} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("ls has no %q: %v %s\n%s", want, err, errOut, out)
		}
	}
}

func TestDemo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	cmd := exec.Command(binary, "demo", "--dir", dir)
	cmd.Env = append(os.Environ(), "HEADRACE_PYTHON="+interpreter(t), "PYTHONPATH=../python/src")
	out, err := cmd.CombinedOutput()
	for _, want := range []string{
		"MB/s", "no such dataset", "SIGKILL", "missing 0, repeated 0, in order: True",
		"60,000 rows: missing 0, repeated 0, order equal to the undisturbed run's", "each once", "import json",
		binary + " serve " + dir + "\n", "rm -r " + dir,
	} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("the demo does not say %q: %v\n%s", want, err, out)
		}
	}
	s := serve(t, dir) // as its last words say
	peeked, errOut, err := run(t, "peek", "vision/photos", "--server", s.uri)
	if err != nil || !strings.Contains(peeked, "embedding") {
		t.Errorf("%v %s\n%s", err, errOut, peeked)
	}
	_, errOut, err = run(t, "demo", "--dir", filepath.Join(dir, "vision", "photos"))
	if err == nil || !strings.Contains(errOut, "name a new folder") {
		t.Errorf("a folder with data in it: %v %s", err, errOut)
	}
}

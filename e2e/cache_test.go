package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// hoards makes two datasets: "small" of 12 MiB, which fits the memory of gateways with the least, and "big" of 90, which
// does not.
func hoards(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	python(t, `
random = np.random.default_rng(7)
for name, shards in (("small", 1), ("big", 8)):
    os.mkdir(f"{sys.argv[1]}/{name}")
    for shard in range(shards):
        x = pa.FixedSizeListArray.from_arrays(pa.array(random.random(12_000 * 250, np.float32)), 250)
        table = pa.table({"id": np.arange(12_000) + shard * 12_000, "x": x})
        pq.write_table(table, f"{sys.argv[1]}/{name}/{shard}.parquet", row_group_size=3_000, use_dictionary=False)
`, dir)
	return dir
}

// tenanted serves folders as datasets to tenants with tokens, by a config with more lines.
func tenanted(t *testing.T, dir, key string, names []string, more ...string) *server {
	t.Helper()
	lines := []string{
		"listen: 127.0.0.1:0", "admin: 127.0.0.1:0", "memory: 128MiB",
		fmt.Sprintf("auth: {mode: jwt, issuer: %q, audience: %s, keys: [{algorithm: HS256, file: %q}]}", issuer, audience, key), "datasets:",
	}
	for _, name := range names {
		lines = append(lines, fmt.Sprintf("  - {name: %s, url: %q}", name, filepath.Join(dir, name)))
	}
	config := filepath.Join(t.TempDir(), "headrace.yaml")
	if err := os.WriteFile(config, []byte(strings.Join(append(lines, more...), "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return serveOn(t, "", "--config", config)
}

// Two tenants, one of which reads more than fits, over and over: the other one's data stays where it was, within its share.
func TestSharesOfTenants(t *testing.T) {
	t.Parallel()
	dir, key := hoards(t), secret(t)
	s := tenanted(t, dir, key, []string{"small", "big"}, "tenants: {vision: {memory: 0.4}}")
	python(t, `
uri, vision, other = sys.argv[1:]
client = fl.connect(uri)

def epoch(token, name, number):
    fields = dict(dataset=name, shuffle="window", window_blocks=1, batch_size=500, epoch=number)
    info = client.get_flight_info(request(**fields), auth(token))
    return client.do_get(info.endpoints[0].ticket, auth(token)).read_all().num_rows

def served(token):
    [result] = client.do_action(("headrace.stats", b""), auth(token))
    counts = json.loads(result.body.to_pybytes())["cache"]["served"]
    return sum(sum(c["hits"].values()) for c in counts), sum(c["misses"] for c in counts)

assert epoch(vision, "small", 0) == 12_000
hits, misses = served(vision)
assert hits == 0 and misses > 2, (hits, misses)
for number in range(2):
    assert epoch(other, "big", number) == 96_000
assert served(other)[1] > 8 * misses, served(other)
assert epoch(vision, "small", 1) == 12_000
assert served(vision) == (misses, misses), (served(vision), misses)
`, s.uri, mint(t, key, "vision", "--grant", "*"), mint(t, key, "other", "--grant", "*"))

	out, errOut, err := run(t, "ls", "--cache", "--server", s.uri, "--token", mint(t, key, "vision", "--grant", "*"))
	for _, want := range []string{
		`policy auto \(pinned\), 1\d\.\d MiB of \d+\.\d MiB kept, share 0\.4, 4 blocks, 0 in use`, `0 streams, waiting for memory: 0`,
		`vision +pinned +memory +4 +50\.0 %`, `vision +pinned +store +4 +50\.0 % +1\d\.\d MiB`,
		`small +1 +1\d\.\d MiB +0 B +0 B`, `small +0 +(1\d\.\d MiB) +(1\d\.\d MiB) +0 B`,
	} {
		if err != nil || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("ls --cache has no %s: %v %s\n%s", want, err, errOut, out)
		}
	}
	if strings.Contains(out, "big") || strings.Contains(out, "other") {
		t.Errorf("ls --cache tells of another tenant:\n%s", out)
	}
	_, metrics := s.get("/metrics")
	for _, want := range []string{
		`headrace_cache_share{tenant="vision"} 0.4`,
		`headrace_cache_hits_total{policy="pinned",tenant="vision",tier="memory"} 4`,
		`headrace_cache_misses_total{policy="pinned",tenant="vision"} 4`,
		`headrace_cache_kept_bytes{policy="pinned",tenant="other",tier="memory"} `,
		`headrace_epoch_read_bytes_total{dataset="big",tenant="other"} `,
		`headrace_epoch_fetched_bytes_total{dataset="small",tenant="vision"} `,
		`headrace_epoch_least_bytes_total{dataset="small",tenant="vision"} 0`,
		`headrace_memory_lent_bytes `,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
}

// foreseenElsewhere asks a gateway of 144 MiB what requests would come to with another memory: what does not fit that is
// refused though it would fit this one, and the other way round. Windows may have half of what streams may use.
func foreseenElsewhere(t *testing.T, uri, dir string, block int64) {
	t.Helper()
	python(t, `
client = fl.connect(sys.argv[1])
def foresee(limit, **fields):
    body = json.dumps({"request": {"dataset": "d", "batch_size": 250, **fields}, "limit": limit})
    return json.loads(next(client.do_action(fl.Action("headrace.forecast", body.encode()))).body.to_pybytes())
def refused(limit, **fields):
    try:
        return not foresee(limit, **fields)
    except pa.ArrowInvalid as err:
        return "larger than the memory limit" in str(err)
assert refused(0, shuffle="full") and foresee(1 << 30, shuffle="full")["hits"] == 1
assert foresee(0, shuffle="window", window_blocks=8)["hot"] and refused(int(1.9 * 8 * int(sys.argv[2])), shuffle="window", window_blocks=8)
`, uri, fmt.Sprint(block))
	folder := []string{"plan", "big", "--folder", dir, "--shuffle", "full", "--batch-size", "250"}
	if _, errOut, err := run(t, append(folder, "--memory", "144MiB")...); err == nil || !strings.Contains(errOut, "larger than the memory limit") {
		t.Errorf("a full shuffle in 144 MiB: %v %s", err, errOut)
	}
	if out, errOut, err := run(t, append(folder, "--memory", "1TiB")...); err != nil || !strings.Contains(out, "100.0 %") {
		t.Errorf("a full shuffle in 1 TiB: %v %s\n%s", err, errOut, out)
	}
}

// What plan foresees of epochs is what they come to from the second on, with memory for about half of the data.
func TestForecastsComeTrue(t *testing.T) {
	t.Parallel()
	dir := hoards(t)
	for _, policy := range []string{"pinned", "lru"} {
		s := serveDataset(t, filepath.Join(dir, "big"), "memory: 144MiB", "cache: {policy: "+policy+"}")
		request := []string{"d", "--server", s.uri, "--shuffle", "window", "--window-blocks", "2", "--batch-size", "250"}
		var own, other struct {
			Blocks   int64
			Forecast struct {
				Hot, Limit, Reserved, Room, Fetched int64
				Policy                              string
				Hits                                float64
			}
		}
		decode(t, &own, append([]string{"plan", "--json"}, request...)...)
		f := own.Forecast
		block := f.Hot / own.Blocks
		if f.Policy != policy || f.Hits < .05 || f.Hits > .6 || f.Fetched != f.Hot-int64(f.Hits*float64(f.Hot)) || f.Room > f.Limit-f.Reserved {
			t.Errorf("%s: %+v", policy, f)
		}
		decode(t, &other, append([]string{"plan", "--json", "--memory", "144MiB", "--policy", policy}, request...)...)
		if other.Forecast != f {
			t.Errorf("by the size of the memory %+v, by the gateway itself %+v", other.Forecast, f)
		}
		python(t, `
client = fl.connect(sys.argv[1])
info = client.get_flight_info(request(dataset="d", shuffle="window", window_blocks=2, batch_size=250, num_epochs=6))
assert sum(chunk.data.num_rows for chunk in client.do_get(info.endpoints[0].ticket)) == 6 * 96_000
`, s.uri)
		var kept struct {
			Epochs []struct{ Epoch, Read, Fetched, Least int64 }
		}
		decode(t, &kept, "ls", "--cache", "--json", "--server", s.uri)
		decode(t, &own, append([]string{"plan", "--json"}, request...)...) // now that it is known what decoders take
		f = own.Forecast
		var fetched int64
		for _, e := range kept.Epochs {
			switch off := e.Fetched - f.Fetched; {
			case e.Read != f.Hot || e.Epoch == 0 && e.Fetched != f.Hot || e.Fetched < e.Least:
				t.Errorf("%s: %+v, foreseen %+v", policy, e, f)
			case e.Epoch > 1 && policy == "pinned" && (off < -3*block || off > 3*block):
				t.Errorf("%s: %+v, foreseen %+v: they differ by %d bytes, blocks have %d", policy, e, f, off, block)
			case e.Epoch > 1:
				fetched += e.Fetched
			}
		}
		if off := fetched/4 - f.Fetched; len(kept.Epochs) != 6 || off < -3*block || off > 3*block {
			t.Errorf("%s: %d bytes an epoch, foreseen %+v", policy, fetched/4, f)
		}

		decode(t, &other, append([]string{"plan", "--json", "--memory", "1GiB"}, request...)...)
		if other.Forecast.Hits != 1 || other.Forecast.Fetched != 0 || other.Forecast.Policy != policy {
			t.Errorf("with memory for everything %+v", other.Forecast)
		}
		foreseenElsewhere(t, s.uri, dir, block)
		out, errOut, err := run(t, append([]string{"plan"}, request...)...)
		for _, want := range []string{`hot data +96\.0 MiB; with \d+\.\d MiB of memory, \d\.\d times that, all of it stays`, `kept +\d+\.\d MiB of \d+\.\d MiB for streams, by policy ` + policy, `hits +\d+\.\d %`} {
			if err != nil || !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("plan has no %s: %v %s\n%s", want, err, errOut, out)
			}
		}
		for flag, want := range map[string]string{"--memory=1": "--memory: ", "--memory=lots": "--memory: ", "--policy=mru": "policy: there is none"} {
			if _, errOut, err := run(t, append([]string{"plan", flag}, request...)...); err == nil || !strings.Contains(errOut, want) {
				t.Errorf("%s: %v %s", flag, err, errOut)
			}
		}
	}
}

// With as much memory as plan says that it takes, all of the data stays.
func TestAsMuchMemoryAsPlanSaysIsEnough(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(hoards(t), "big")
	out, errOut, err := run(t, "plan", "big", "--folder", dir, "--shuffle", "window", "--window-blocks", "4", "--batch-size", "500")
	enough := regexp.MustCompile(`with (\d+\.\d MiB) of memory`).FindStringSubmatch(out)
	if err != nil || enough == nil {
		t.Fatalf("%v %s\n%s", err, errOut, out)
	}
	s := serveDataset(t, dir, "memory: "+enough[1])
	python(t, `
client = fl.connect(sys.argv[1])
info = client.get_flight_info(request(dataset="d", shuffle="window", window_blocks=4, batch_size=500, num_epochs=3))
assert sum(chunk.data.num_rows for chunk in client.do_get(info.endpoints[0].ticket)) == 3 * 96_000
`, s.uri)
	var kept struct {
		Epochs []struct{ Epoch, Fetched int64 }
	}
	decode(t, &kept, "ls", "--cache", "--json", "--server", s.uri)
	if len(kept.Epochs) != 3 || kept.Epochs[0].Fetched+kept.Epochs[1].Fetched != 0 {
		t.Errorf("%s: %+v", enough[1], kept)
	}
}

// A window that can never fit is refused as it is planned, by whichever way, with the numbers; the advice is good.
func TestWindowsThatNeverFitAreRefusedWhenPlanned(t *testing.T) {
	t.Parallel()
	s := serveDataset(t, filepath.Join(hoards(t), "big"), "memory: 128MiB")
	plan := func(blocks string, more ...string) (string, error) {
		_, errOut, err := run(t, append([]string{"plan", "d", "--server", s.uri, "--shuffle", "window", "--batch-size", "250", "--window-blocks", blocks}, more...)...)
		return errOut, err
	}
	refused, err := plan("30")
	advice := regexp.MustCompile(`windows of window_blocks 30, each of about \d+ bytes, in groups 1 need more than the \d+ bytes that can be: window_blocks may be (\d+) at most`).FindStringSubmatch(refused)
	if err == nil || advice == nil {
		t.Fatalf("%v %s", err, refused)
	}
	if errOut, err := plan(advice[1]); err != nil {
		t.Errorf("window_blocks %s is refused, too: %v %s", advice[1], err, errOut)
	}
	for memory, fits := range map[string]bool{"128MiB": false, "1GiB": true} { // in process: of a gateway that is not there yet
		_, errOut, err := run(t, "plan", "big", "--folder", hoards(t), "--shuffle", "window", "--batch-size", "250", "--window-blocks", "30", "--memory", memory)
		if (err == nil) != fits || !fits && !strings.Contains(errOut, "windows of window_blocks 30") {
			t.Errorf("with %s: %v %s", memory, err, errOut)
		}
	}
	if errOut, err := plan("8", "--memory", "129MiB", "--batch-size", "48000"); err == nil || !strings.Contains(errOut, "bytes needed, of ") {
		t.Errorf("batches that never fit: %v %s", err, errOut)
	}
	python(t, `
client = fl.connect(sys.argv[1])
fields = dict(dataset="d", shuffle="window", window_blocks=30, batch_size=250)
for call in (lambda: client.get_flight_info(request(**fields)), lambda: client.do_get(fl.Ticket(json.dumps(fields).encode())).read_all()):
    try:
        call()
        raise SystemExit("it was planned")
    except pa.ArrowInvalid as e:
        assert "window_blocks may be " + sys.argv[2] + " at most" in str(e), e
client.get_flight_info(request(**fields | {"window_blocks": int(sys.argv[2])}))
`, s.uri, advice[1])
}

// decode runs a command and reads the JSON that it prints.
func decode(t *testing.T, into any, args ...string) {
	t.Helper()
	out, errOut, err := run(t, args...)
	if err == nil {
		err = json.Unmarshal([]byte(out), into)
	}
	if err != nil {
		t.Fatalf("%v: %v %s\n%s", args, err, errOut, out)
	}
}

// The policy is changed in the config file of a gateway that runs: what is kept stays, and is hit; a file that is no good
// changes nothing.
func TestThePolicyChangesWhileTheGatewayRuns(t *testing.T) {
	t.Parallel()
	dir := hoards(t)
	lines := func(policy, more string) string {
		return fmt.Sprintf("auth: {mode: none}\nlisten: 127.0.0.1:0\nadmin: 127.0.0.1:0\nmemory: 128MiB\n"+
			"datasets: [{name: small, url: %q}]\ncache: {policy: %s}\n%s", filepath.Join(dir, "small"), policy, more)
	}
	config := filepath.Join(t.TempDir(), "headrace.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(config+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(config+".new", config); err != nil {
			t.Fatal(err)
		}
	}
	write(lines("lru", ""))
	s := serveOn(t, "", "--config", config)
	epoch := func(number int) {
		t.Helper()
		python(t, `
client = fl.connect(sys.argv[1])
info = client.get_flight_info(request(dataset="small", shuffle="window", window_blocks=1, batch_size=500, epoch=int(sys.argv[2])))
assert client.do_get(info.endpoints[0].ticket).read_all().num_rows == 12_000
`, s.uri, fmt.Sprint(number))
	}
	told := func(words string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !strings.Contains(s.log.String(), words); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the gateway did not say %s:\n%s", words, s.log)
			}
		}
	}
	kept := func(wants ...string) {
		t.Helper()
		out, errOut, err := run(t, "ls", "--cache", "--server", s.uri)
		for _, want := range wants {
			if err != nil || !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("ls --cache has no %s: %v %s\n%s", want, err, errOut, out)
			}
		}
	}
	epoch(0)
	kept(`policy lru, .* 4 blocks`, `local +lru +store +4 `)
	write(lines("pinned", ""))
	told(`"policy":"pinned","was":"lru"`)
	kept(`policy pinned, .* 4 blocks`)
	epoch(1)
	kept(`local +pinned +memory +4 +100\.0 %`)
	write(lines("mru", ""))
	told("the changed config is no good")
	write(lines("auto", "refresh: 10s"))
	told(`"policy":"auto","was":"pinned"`)
	told("changed in more than cache.policy")
	epoch(2)
	kept(`policy auto \(pinned\), .* 4 blocks`, `local +pinned +memory +8 +100\.0 %`)
}

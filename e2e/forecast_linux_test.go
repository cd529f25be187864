package e2e

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// foreseen is what of a plan's forecast is looked at.
type foreseen struct {
	Blocks   int64
	Forecast struct {
		Hot, Disk, Mapped, Fetched int64
		Hits                       float64
		DiskHits                   float64 `json:"disk_hits"`
	}
}

// cacheFolder is a folder on a disk that is memory: one that keeps up with streams.
func cacheFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "cache")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// readEpoch reads an epoch of d in windows of so many blocks, which has so many rows.
func readEpoch(t *testing.T, uri string, blocks, epoch, rows int) {
	t.Helper()
	python(t, `
client = fl.connect(sys.argv[1])
info = client.get_flight_info(request(dataset="d", shuffle="window", window_blocks=int(sys.argv[2]), batch_size=250, epoch=int(sys.argv[3])))
assert sum(chunk.data.num_rows for chunk in client.do_get(info.endpoints[0].ticket)) == int(sys.argv[4])
`, uri, fmt.Sprint(blocks), fmt.Sprint(epoch), fmt.Sprint(rows))
}

// What plan foresees of a cache on disk is what epochs come to from the second on: where it has room for three quarters of
// the data, and for all.
func TestForecastsOfADiskComeTrue(t *testing.T) {
	t.Parallel()
	dir := hoards(t)
	for _, limit := range []string{"72MiB", "1GiB"} {
		config := writeConfig(t, "listen: 127.0.0.1:0", "admin: 127.0.0.1:0", "memory: 144MiB",
			fmt.Sprintf("datasets: [{name: d, url: %q}]", filepath.Join(dir, "big")), fmt.Sprintf("cache: {policy: pinned, disk: {dir: %s, limit: %s}}", cacheFolder(t), limit))
		s := serveOn(t, "", "--config", config)
		request := []string{"plan", "d", "--shuffle", "window", "--window-blocks", "2", "--batch-size", "250"}
		var own, other foreseen
		decode(t, &own, append(request, "--json", "--server", s.uri)...)
		decode(t, &other, append(request, "--json", "--config", config)...)
		if own != other {
			t.Errorf("%s: by the config %+v, by the gateway itself %+v", limit, other, own)
		}
		f := own.Forecast
		seen := map[string]float64{"memory": s.metric("headrace_cache_hits_total", `tier="memory"`), "disk": s.metric("headrace_cache_hits_total", `tier="disk"`)}
		for epoch := range 4 {
			readEpoch(t, s.uri, 2, epoch, 96_000)
			s.written()
			for tier, part := range map[string]float64{"memory": f.Hits, "disk": f.DiskHits} {
				now := s.metric("headrace_cache_hits_total", `tier="`+tier+`"`)
				if hits, want := now-seen[tier], part*float64(own.Blocks); epoch > 1 && math.Abs(hits-want) > 3 {
					t.Errorf("%s, epoch %d: %v hits in %s, foreseen %.1f of %d", limit, epoch, hits, tier, want, own.Blocks)
				}
				seen[tier] = now
			}
			if epoch == 0 { // from now on it is known what decoders take
				decode(t, &own, append(request, "--json", "--server", s.uri)...)
				f = own.Forecast
			}
		}
		var kept struct {
			Epochs []struct{ Epoch, Read, Fetched int64 }
		}
		decode(t, &kept, "ls", "--cache", "--json", "--server", s.uri)
		for _, e := range kept.Epochs {
			// A block takes less where it is mapped than in a region of its own.
			if off := e.Fetched - f.Fetched; e.Read > f.Hot || e.Read < f.Hot*97/100 || e.Epoch > 1 && max(off, -off) > 3*f.Hot/own.Blocks {
				t.Errorf("%s: %+v, foreseen %+v", limit, e, f)
			}
		}
		if len(kept.Epochs) != 4 || f.Hits < .05 || f.DiskHits < .05 || (f.Fetched == 0) != (limit == "1GiB") {
			t.Errorf("%s: %+v, %+v", limit, kept, f)
		}
		decode(t, &other, append(request, "--json", "--server", s.uri, "--disk", "0")...)
		if other.Forecast.Disk != 0 || other.Forecast.DiskHits != 0 || other.Forecast.Hits > own.Forecast.Hits { // what is on disk needs no scanner
			t.Errorf("without a disk %+v, with it %+v", other.Forecast, own.Forecast)
		}
		out, errOut, err := run(t, append(request, "--server", s.uri, "--disk", "1TiB")...)
		if err != nil || !regexp.MustCompile(`on disk +96\.0 MiB of 1\.0 TiB\nhits +\d+\.\d % in memory, \d+\.\d % on disk, in later epochs, of which each fetches 0 B; the first one fetches 96\.0 MiB`).MatchString(out) {
			t.Errorf("%v %s\n%s", err, errOut, out)
		}
		if _, errOut, err := run(t, append(request, "--server", s.uri, "--disk", "lots")...); err == nil || !strings.Contains(errOut, "--disk: ") {
			t.Errorf("--disk lots: %v %s", err, errOut)
		}
	}
}

// Of segments of many blocks a scanner stays open in each lane of a window, and what it keeps of memory no block has: plan foresees
// that, once it is known. How many blocks are decoded at the same moment is chance, and worth a block or two.
func TestForecastsKnowWhatScannersKeep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	python(t, `
random = np.random.default_rng(7)
for shard in range(4):
    x = pa.FixedSizeListArray.from_arrays(pa.array(random.random(36_000 * 250, np.float32)), 250)
    pq.write_table(pa.table({"x": x}), f"{sys.argv[1]}/{shard}.parquet", row_group_size=36_000, use_dictionary=False)
`, dir)
	s := serveDataset(t, dir, "memory: 192MiB")
	var seen float64
	var own foreseen
	for epoch := range 4 {
		readEpoch(t, s.uri, 8, epoch, 144_000)
		now := s.metric("headrace_cache_hits_total", `tier="memory"`)
		if hits, want := now-seen, own.Forecast.Hits*float64(own.Blocks); epoch > 0 && (math.Abs(hits-want) > 3 || want < 2) {
			t.Errorf("epoch %d: %v hits, foreseen %.1f of %d: %+v", epoch, hits, want, own.Blocks, own.Forecast)
		}
		seen = now
		decode(t, &own, "plan", "d", "--json", "--server", s.uri, "--shuffle", "window", "--window-blocks", "8", "--batch-size", "250")
	}
}

// Of few blocks a few that are missing need few scanners, every other window has its stream's own memory, and what is asked for is
// not what blocks take: what is foreseen of large row groups, small ones, and compressed batches comes true on the average of some
// epochs, to a tenth of the blocks: in which window those lie that are missing, and which decoders are at their most at the same
// moment, is chance.
func TestForecastsOfFewBlocks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	python(t, `
random = np.random.default_rng(7)
for name in ("large", "small", "packed"):
    os.mkdir(f"{sys.argv[1]}/{name}")
for shard in range(4):
    x = pa.FixedSizeListArray.from_arrays(pa.array(random.random(36_000 * 250, np.float32)), 250)
    table = pa.table({"x": x})
    pq.write_table(table, f"{sys.argv[1]}/large/{shard}.parquet", row_group_size=36_000)
    pq.write_table(table, f"{sys.argv[1]}/small/{shard}.parquet", row_group_size=2_800)
    with pa.ipc.new_file(f"{sys.argv[1]}/packed/{shard}.arrow", table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as w:
        w.write_table(table, max_chunksize=3_600)
`, dir)
	for _, tt := range []struct {
		data             string
		window, decoders int
		memory           string
	}{
		{"large", 8, 2, "270MiB"}, {"large", 8, 1, "240MiB"}, {"large", 2, 2, "200MiB"}, {"small", 8, 2, "250MiB"}, {"small", 2, 1, "190MiB"}, {"packed", 8, 2, "220MiB"},
	} {
		s := serveDataset(t, filepath.Join(dir, tt.data), "memory: "+tt.memory, fmt.Sprintf("cache: {decoders: {min: %d, max: %[1]d}}", tt.decoders))
		readEpoch(t, s.uri, tt.window, 0, 144_000)
		seen := s.metric("headrace_cache_hits_total", `tier="memory"`)
		var own foreseen
		decode(t, &own, "plan", "d", "--json", "--server", s.uri, "--shuffle", "window", "--window-blocks", fmt.Sprint(tt.window), "--batch-size", "250")
		const epochs = 4
		for epoch := range epochs {
			readEpoch(t, s.uri, tt.window, 1+epoch, 144_000)
		}
		hits, want := (s.metric("headrace_cache_hits_total", `tier="memory"`)-seen)/epochs, own.Forecast.Hits*float64(own.Blocks)
		if t.Logf("%+v: %.1f hits an epoch, foreseen %.1f of %d", tt, hits, want, own.Blocks); math.Abs(hits-want) > float64(own.Blocks)/10 || want < 5 || want > float64(own.Blocks)-2 {
			t.Errorf("%+v: %.1f hits an epoch, foreseen %.1f of %d", tt, hits, want, own.Blocks)
		}
	}
}

// Of local Arrow files that are mapped plan foresees that nothing is fetched, and so it is; of those that are compressed, or
// hold dictionaries, what it foresees of all others.
func TestForecastsOfMappedFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	python(t, `
x = pa.FixedSizeListArray.from_arrays(pa.array(np.random.default_rng(7).random(24_000 * 250, np.float32)), 250)
plain = pa.table({"id": np.arange(24_000), "x": x})
words = plain.append_column("word", pa.array(np.arange(24_000) % 10).cast(pa.string()).dictionary_encode())
for name, table, options in (("plain", plain, {}), ("packed", plain, {"compression": "zstd"}), ("words", words, {})):
    os.mkdir(f"{sys.argv[1]}/{name}")
    with pa.ipc.new_file(f"{sys.argv[1]}/{name}/0.arrow", table.schema, options=pa.ipc.IpcWriteOptions(**options)) as w:
        w.write_table(table, max_chunksize=3_000)
`, dir)
	for name, mapped := range map[string]bool{"plain": true, "packed": false, "words": false} {
		s := serveDataset(t, filepath.Join(dir, name), "cache: {disk: {dir: "+cacheFolder(t)+", limit: 1GiB}}")
		request := []string{"--server", s.uri, "--shuffle", "window", "--window-blocks", "2", "--batch-size", "250"}
		var own foreseen
		decode(t, &own, append([]string{"plan", "d", "--json"}, request...)...)
		f := own.Forecast
		if f.Disk != 0 || f.DiskHits != 0 || f.Fetched != 0 || (f.Mapped > 23<<20) != mapped || (f.Hot > 23<<20) == mapped || (f.Hits == 1) == mapped {
			t.Errorf("%s: %+v", name, f)
		}
		var warmed struct{ Blocks, Kept, Mapped int64 }
		decode(t, &warmed, append([]string{"warm", "d", "--json"}, request...)...)
		if warmed.Blocks != own.Blocks || (warmed.Mapped == own.Blocks) != mapped || (warmed.Kept == own.Blocks) == mapped {
			t.Errorf("%s: %+v of %d blocks", name, warmed, own.Blocks)
		}
		out, errOut, err := run(t, append([]string{"plan", "d"}, request...)...)
		if err != nil || strings.Contains(out, "served where they lie: no epoch fetches them") != mapped || strings.Contains(out, "hot data") == mapped {
			t.Errorf("%s: %v %s\n%s", name, err, errOut, out)
		}
		if columns := append([]string{"plan", "d", "--json", "--columns", "x"}, request...); name == "words" {
			if decode(t, &own, columns...); own.Forecast.Mapped == 0 {
				t.Errorf("without dictionaries %+v", own.Forecast)
			}
		}
	}
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/headrace/headrace/storage/bucket"
)

const (
	// storeRequests is how many requests both may have in flight.
	storeRequests = 8
	storeLatency  = 20 // milliseconds before each answer
	// storeRows makes a row group of about one block.
	storeRows = "46000"
)

// stores measures reads of Parquet files from an S3 server on loopback: scans, beside pyarrow's own S3 file system; and
// shuffled epochs behind a network that is slow to answer, beside readers that take one row group after the other.
func stores(ctx context.Context, s settings) (string, error) {
	versions, err := s.versions(ctx)
	if err != nil {
		return "", err
	}
	size := fmt.Sprint(int64(s.scale * (1 << 30)))
	whole, err := s.generate(ctx, "table-"+size, func(part string) []string { return []string{s.script("parquet.py"), "table", part, size} })
	if err != nil {
		return "", err
	}
	blocks, err := s.generate(ctx, "blocks-"+size, func(part string) []string { return []string{s.script("stores.py"), "cut", whole, part, storeRows} })
	if err != nil {
		return "", err
	}
	near, far, end, err := s.startStores(ctx)
	defer end()
	if err != nil {
		return "", err
	}
	for prefix, folder := range map[string]string{"whole": whole, "blocks": blocks} {
		if err := upload(ctx, near, prefix, folder); err != nil {
			return "", err
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "## Stores: Parquet from an S3 server on loopback\n\nversitygw, %d requests in flight at most, %d interleaved rounds; the client touches every byte; medians (least–most).\nThe gateway is started again for each round, with no block in memory.\n%s\n",
		storeRequests, s.repeats, versions)
	for _, r := range []storeRace{
		{"Scan, large row groups", near, "whole", whole, `{"dataset":"whole"}`, []string{"scan"}, []string{"≥ 0.8"}},
		{
			fmt.Sprintf("Scan, row groups of a block, %d ms before each answer", storeLatency), far, "blocks", blocks,
			`{"dataset":"blocks"}`,
			[]string{"scan"},
			[]string{"≥ 0.8"},
		},
		{
			fmt.Sprintf("Shuffled epoch, row groups of a block, %d ms before each answer", storeLatency), far, "blocks", blocks,
			`{"dataset":"blocks","shuffle":"window","seed":1,"batch_size":46000}`,
			[]string{"blocks", "joined"},
			[]string{"≥ 5", "–"},
		},
	} {
		if err := s.raceStores(ctx, &b, r); err != nil {
			return "", fmt.Errorf("%s: %w", r.title, err)
		}
	}
	return b.String(), nil
}

// storeRace is one comparison: headrace's request against readers of stores.py.
type storeRace struct {
	title, endpoint, prefix, folder, request string
	others, wanted                           []string
}

var storeReaders = map[string]string{
	"scan": "pyarrow's S3 file system, scanned in one process", "blocks": "pyarrow, one row group after the other",
	"joined": "pyarrow, the same with near ranges joined",
}

func (s settings) raceStores(ctx context.Context, b *strings.Builder, r storeRace) error {
	admin, err := freePort()
	if err != nil {
		return err
	}
	url := fmt.Sprintf("s3://data/%s?endpoint=http://%s&requests=%d", r.prefix, r.endpoint, storeRequests)
	all, err := launch(ctx, command{title: "headrace, over gRPC", name: r.request, line: []string{s.headrace, "serve", url, "--listen", "127.0.0.1:0", "--admin", admin}}.anew())
	if err != nil {
		return err
	}
	defer stop(all)
	for _, name := range r.others {
		all = append(all, &contestant{command: command{title: storeReaders[name], name: name}, server: &server{cmd: exec.Command("true")}})
	}
	var gets, reads float64
	err = interleave(ctx, s.repeats, all, func(c *contestant, warm bool) error {
		var got reading
		var err error
		if c == all[0] {
			before, _ := storeGets(admin)
			got, err = s.measure(ctx, c, "read")
			after, failed := storeGets(admin)
			err = errors.Join(err, failed)
			gets, reads = gets+after-before, reads+1
		} else {
			var out []byte
			if out, err = output(ctx, s.python, s.script("stores.py"), c.name, r.endpoint, fmt.Sprint(storeRequests), "data/"+r.prefix); err == nil {
				err = json.Unmarshal(out, &got)
			}
		}
		if err == nil && warm {
			c.runs = append(c.runs, got)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := alike(all, "rows", func(r reading) uint64 { return uint64(r.Rows) }); err != nil {
		return err
	}
	rows := func(r reading) float64 { return float64(r.Rows) / r.Seconds / 1e6 }
	fmt.Fprintf(b, "\n**%s**: %d rows.\n\n| reader | million rows/s | headrace against it | wanted |\n|---|---|---|---|\n", r.title, all[0].runs[0].Rows)
	for i, c := range all {
		against, wanted := "", ""
		if i > 0 {
			against, wanted = fmt.Sprintf("%.2f", ratio(all[0].runs, c.runs, rows)), r.wanted[i-1]
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", c.title, spread(c.runs, rows), against, wanted)
	}
	gib, err := stored(r.folder)
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "\nGETs: %.0f an epoch, %.0f per GiB of files.\n", gets/reads, gets/reads/gib)
	return nil
}

// stored is how many GiB the files of a folder have.
func stored(folder string) (float64, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return 0, err
		}
		sum += info.Size()
	}
	return float64(sum) / (1 << 30), nil
}

var getsLine = regexp.MustCompile(`(?m)^headrace_store_requests_total\{.*verb="get".*\} (\S+)$`)

// storeGets is how many objects and ranges a gateway has asked for.
func storeGets(admin string) (float64, error) { return metric(admin, getsLine) }

// metric sums up the lines of a gateway's metrics that match.
func metric(admin string, lines *regexp.Regexp) (float64, error) {
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get("http://" + admin + "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	var sum float64
	for _, m := range lines.FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// startStores starts an S3 server with an empty bucket, and a slow way to it: the addresses of both. The credentials go
// into the environment, for all readers. What was started is ended by end.
func (s settings) startStores(ctx context.Context) (near, far string, end func(), err error) {
	var running []*exec.Cmd
	dir, err := os.MkdirTemp(s.data, "s3-")
	end = func() {
		for _, cmd := range running {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // "signal: killed"
		}
		_ = os.RemoveAll(dir)
	}
	if err != nil {
		return "", "", end, err
	}
	tools := os.Getenv("HEADRACE_STORES")
	if tools == "" {
		return "", "", end, errors.New("HEADRACE_STORES does not say where the object stores are: make bench sets it")
	}
	begin := func(address, name string, args ...string) error {
		cmd := exec.CommandContext(ctx, filepath.Join(tools, name), args...)
		if err := cmd.Start(); err != nil {
			return err
		}
		running = append(running, cmd)
		return listening(ctx, address)
	}
	var ports [3]string
	for i := range ports {
		if ports[i], err = freePort(); err != nil {
			return "", "", end, err
		}
	}
	near, far = ports[0], ports[1]
	for k, v := range map[string]string{
		"ROOT_ACCESS_KEY_ID": "bench", "ROOT_SECRET_ACCESS_KEY": "bench-secret", "AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench-secret",
		"AWS_REGION": "us-east-1", "LOG_LEVEL": "error",
	} {
		if err := os.Setenv(k, v); err != nil {
			return "", "", end, err
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o755); err != nil {
		return "", "", end, err
	}
	if err := begin(near, "versitygw", "--quiet", "--keep-alive", "--port", near, "posix", dir); err != nil {
		return "", "", end, err
	}
	host, port, _ := net.SplitHostPort(ports[2])
	if err := begin(ports[2], "toxiproxy", "-host", host, "-port", port); err != nil {
		return "", "", end, err
	}
	err = errors.Join(
		post(ports[2], "/proxies", fmt.Sprintf(`{"name":"s3","listen":%q,"upstream":%q,"enabled":true}`, far, near)),
		post(ports[2], "/proxies/s3/toxics", fmt.Sprintf(`{"type":"latency","stream":"downstream","attributes":{"latency":%d}}`, storeLatency)))
	return near, far, end, err
}

func post(address, path, body string) error {
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Post("http://"+address+path, "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	return nil
}

// listening waits until somebody listens.
func listening(ctx context.Context, address string) error {
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", address)
		if err == nil {
			return c.Close()
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return errors.Join(ctx.Err(), err)
		}
	}
}

// upload puts the files of a folder under a prefix of the bucket.
func upload(ctx context.Context, endpoint, prefix, folder string) error {
	b, err := bucket.Open("s3://data/" + prefix + "?endpoint=http://" + endpoint)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }() // all was written, or there is an error
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return err
		}
		if err := b.Put(ctx, e.Name(), data); err != nil {
			return err
		}
	}
	return nil
}

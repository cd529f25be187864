package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// wireBytes is the full size of the wire bench's data.
const wireBytes = 1e9

// wireServer is one of the servers that are compared; what is measured lies in runs, one for each round.
type wireServer struct {
	title string
	name  string // of the data set; "" if the server has but one
	*server
	runs []wireRun
}

// wireRun is one read of the whole data by a fresh client.
type wireRun struct {
	Seconds   float64
	CPU       float64 // of the client, seconds
	Bytes     int64
	Batches   int
	Sum       uint64
	serverCPU float64 // seconds
}

func (r wireRun) gb() float64             { return float64(r.Bytes) / 1e9 }
func (r wireRun) throughput() float64     { return r.gb() / r.Seconds }
func (r wireRun) clientPerGB() float64    { return r.CPU / r.gb() }
func (r wireRun) serverCPUPerGB() float64 { return r.serverCPU / r.gb() }

// wire sends uncompressed fixed-width Arrow data, just under 4 MiB a message, to one pyarrow client at a time, which
// touches every byte: headrace, pyarrow's C++ server and arrow-go's stock writer over the same file.
func wire(ctx context.Context, s settings) (string, error) {
	file, err := s.wireData(ctx)
	if err != nil {
		return "", err
	}
	servers, err := s.startWire(ctx, file)
	defer func() {
		for _, w := range servers {
			w.stop()
		}
	}()
	if err != nil {
		return "", err
	}
	for round := range s.repeats + 1 {
		order := rand.Perm(len(servers))
		for _, i := range order {
			run, err := s.measure(ctx, servers[i])
			if err != nil {
				return "", fmt.Errorf("%s: %w", servers[i].title, err)
			}
			if want := servers[order[0]].runs; round > 0 && (run.Sum != want[0].Sum || run.Bytes != want[0].Bytes) {
				return "", fmt.Errorf("%s sent other data than %s", servers[i].title, servers[order[0]].title)
			}
			servers[i].runs = append(servers[i].runs, run)
		}
	}
	for _, w := range servers {
		w.runs = w.runs[1:] // the first fills the page cache
	}
	return wireTable(ctx, s, servers)
}

// wireData makes the data unless it is there from an earlier run. It lies in a folder of its own: one data set.
func (s settings) wireData(ctx context.Context) (string, error) {
	size := int64(s.scale * wireBytes)
	dir := filepath.Join(s.data, fmt.Sprintf("wire-%d", size))
	file := filepath.Join(dir, "wire.arrow")
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	part := filepath.Join(s.data, "wire.part")
	if _, err := output(ctx, s.python, s.script(), "make", part, fmt.Sprint(size)); err != nil {
		return "", err
	}
	return file, os.Rename(part, file)
}

func (s settings) script() string { return filepath.Join(s.root, "bench", "wire.py") }

func (s settings) startWire(ctx context.Context, file string) ([]*wireServer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(file)
	var servers []*wireServer
	for _, w := range []struct {
		title, name string
		command     []string
	}{
		{"headrace", filepath.Base(dir), []string{s.headrace, "serve", dir, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}},
		{"pyarrow C++ server", "", []string{s.python, s.script(), "serve", file}},
		{"arrow-go stock writer", "", []string{self, stockCommand, file}},
	} {
		child, err := start(ctx, w.command[0], w.command[1:]...)
		if err != nil {
			return servers, fmt.Errorf("%s: %w", w.title, err)
		}
		servers = append(servers, &wireServer{title: w.title, name: w.name, server: child})
	}
	return servers, nil
}

// measure runs one client against a server that has nothing else to do.
func (s settings) measure(ctx context.Context, w *wireServer) (run wireRun, err error) {
	before, err := w.cpu()
	if err != nil {
		return run, err
	}
	out, err := output(ctx, s.python, s.script(), "read", w.uri, w.name)
	if err != nil {
		return run, err
	}
	after, err := w.cpu()
	if err != nil {
		return run, err
	}
	if err := json.Unmarshal(out, &run); err != nil {
		return run, err
	}
	if run.Bytes == 0 {
		return run, errors.New("no data came")
	}
	run.serverCPU = (after - before).Seconds()
	return run, nil
}

func wireTable(ctx context.Context, s settings, servers []*wireServer) (string, error) {
	versions, err := s.versions(ctx)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	first := servers[0].runs[0]
	fmt.Fprintf(&b, "## Wire: one stream of uncompressed Arrow to a pyarrow client that touches every byte\n\n")
	fmt.Fprintf(&b, "%.2f GB in %d messages, %d interleaved rounds, loopback, warm page cache; medians (least–most).\n%s\n\n",
		first.gb(), first.Batches, s.repeats, versions)
	b.WriteString("| server | GB/s | server CPU-s/GB | client CPU-s/GB |\n|---|---|---|---|\n")
	for _, w := range servers {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", w.title, spread(w.runs, wireRun.throughput), spread(w.runs, wireRun.serverCPUPerGB),
			spread(w.runs, wireRun.clientPerGB))
	}
	b.WriteString("\n| headrace against | throughput | server CPU per GB | wanted |\n|---|---|---|---|\n")
	for i, wanted := range []string{"throughput ≥ 0.95, CPU ≤ 1.1", "CPU ≤ 0.55"} {
		other := servers[i+1]
		fmt.Fprintf(&b, "| %s | %.2f | %.2f | %s |\n", other.title, ratio(servers[0].runs, other.runs, wireRun.throughput),
			ratio(servers[0].runs, other.runs, wireRun.serverCPUPerGB), wanted)
	}
	return b.String(), nil
}

func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

func spread(runs []wireRun, of func(wireRun) float64) string {
	var values []float64
	for _, r := range runs {
		values = append(values, of(r))
	}
	m := median(values)
	return fmt.Sprintf("%.2f (%.2f–%.2f)", m, values[0], values[len(values)-1])
}

// ratio is the median over the rounds of a's number to b's.
func ratio(a, b []wireRun, of func(wireRun) float64) float64 {
	var values []float64
	for i := range a {
		values = append(values, of(a[i])/of(b[i]))
	}
	return median(values)
}

// versions is one line about what was measured, where and when.
func (s settings) versions(ctx context.Context) (string, error) {
	own, err := output(ctx, s.headrace, "version")
	if err != nil {
		return "", err
	}
	py, err := output(ctx, s.python, "-c", "import platform, pyarrow; print('Python', platform.python_version()+', pyarrow', pyarrow.__version__)")
	if err != nil {
		return "", err
	}
	load, _ := os.ReadFile("/proc/loadavg")
	lines := strings.FieldsFunc(string(own), func(r rune) bool { return r == '\n' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return fmt.Sprintf("%s; %s; %s, %d processors, load at the end %s; %s.", strings.Join(lines, ", "), strings.TrimSpace(string(py)),
		cmp.Or(processor(), runtime.GOARCH), runtime.NumCPU(), strings.Join(strings.Fields(string(load))[:1], ""), time.Now().UTC().Format(time.DateOnly)), nil
}

// processor is the model that Linux reports; "" elsewhere.
func processor() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	_, rest, _ := strings.Cut(string(info), "model name\t: ")
	model, _, _ := strings.Cut(rest, "\n")
	return model
}

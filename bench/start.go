package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/headrace/headrace/gateway/client"
)

const (
	smallFiles = 1000 // at full scale
	smallRows  = 200  // in each; parquet.py writes them
	// startsPerRound: one start says little.
	startsPerRound = 3
	// firstsPerRound is how many calls of DoGet one client times.
	firstsPerRound = 11
)

// begin measures how long a user waits for the first answer: of a gateway that has just been started over many small
// files, and of one that runs.
func begin(ctx context.Context, s settings) (string, error) {
	files := max(1, int(s.scale*smallFiles))
	starts, err := s.starts(ctx, files)
	if err != nil {
		return "", fmt.Errorf("start: %w", err)
	}
	firsts, err := s.firsts(ctx)
	if err != nil {
		return "", fmt.Errorf("first batch: %w", err)
	}
	versions, err := s.versions(ctx)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "## Start: waiting for the first answer\n\nLoopback, warm page cache; medians (least–most).\n%s\n\n", versions)
	b.WriteString("| from | to | times | ms | wanted |\n|---|---|---|---|---|\n")
	fmt.Fprintf(&b, "| start of the process | right answer of GetFlightInfo on %d small Parquet files, at a Go client that runs already and connects in a tight loop | %d | %s | ≤ 300 |\n",
		files, len(starts), milliseconds(starts))
	for i, f := range firsts {
		fmt.Fprintf(&b, "| call of DoGet, %s | first batch (just under 4 MiB) of a local Arrow file, at a pyarrow client on a warm connection | %d | %s | %s |\n",
			f.title, len(f.seconds), milliseconds(f.seconds), []string{"≤ 20", "–"}[i])
	}
	return b.String(), nil
}

func milliseconds(seconds []float64) string {
	m := median(seconds)
	return fmt.Sprintf("%.1f (%.1f–%.1f)", 1e3*m, 1e3*seconds[0], 1e3*seconds[len(seconds)-1])
}

// starts measures the starts of fresh processes, in seconds.
func (s settings) starts(ctx context.Context, files int) (all []float64, err error) {
	count := fmt.Sprint(files)
	folder, err := s.generate(ctx, "small-"+count, func(part string) []string {
		return []string{s.script("parquet.py"), "small", part, count}
	})
	if err != nil {
		return nil, err
	}
	for i := range 1 + startsPerRound*s.repeats {
		took, err := s.startOnce(ctx, folder, int64(files)*smallRows)
		if err != nil {
			return nil, err
		}
		if i > 0 { // the first fills the page cache
			all = append(all, took.Seconds())
		}
	}
	return all, nil
}

// startOnce starts a gateway and asks it at once. An answer with other than so many rows is an error.
func (s settings) startOnce(ctx context.Context, folder string, rows int64) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	address, err := freePort()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, s.headrace, "serve", folder, "--listen", address, "--admin", "127.0.0.1:0")
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer (&server{cmd: cmd}).stop()
	info, err := ask(ctx, address, filepath.Base(folder))
	took := time.Since(began)
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, e := range info.Endpoints {
		sum += e.Meta.Rows
	}
	if info.Rows != rows || sum != rows {
		return 0, fmt.Errorf("the answer has %d rows, %d over its endpoints, not %d", info.Rows, sum, rows)
	}
	return took, nil
}

// ask connects as soon as somebody listens, and asks for a data set.
func ask(ctx context.Context, address, name string) (*client.Info, error) {
	for {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
			break
		}
		if ctx.Err() != nil {
			return nil, err
		}
		time.Sleep(200 * time.Microsecond) // a loop without it would take a processor from the one that starts
	}
	c, err := client.Dial("grpc://"+address, client.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	return c.Dataset(ctx, name)
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// waited is what clients of one server waited for first batches, in seconds.
type waited struct {
	title   string
	seconds []float64
}

// firsts measures the way to the first batch on servers that run: ours, then pyarrow's own.
func (s settings) firsts(ctx context.Context) ([]waited, error) {
	file, err := s.wireData(ctx)
	if err != nil {
		return nil, err
	}
	all, err := launch(ctx, s.headraceServing(filepath.Dir(file)), s.wireInCpp(file))
	if err != nil {
		return nil, err
	}
	defer stop(all)
	out := make([]waited, len(all))
	for i, c := range all {
		out[i].title = c.title
	}
	err = interleave(ctx, s.repeats, all, func(c *contestant, warm bool) error {
		printed, err := s.client(ctx, c, "first", fmt.Sprint(firstsPerRound))
		if err != nil || !warm {
			return err
		}
		var seconds []float64
		if err := json.Unmarshal(printed, &seconds); err != nil {
			return err
		}
		for i := range out {
			if all[i] == c {
				out[i].seconds = append(out[i].seconds, seconds...)
			}
		}
		return nil
	})
	return out, err
}

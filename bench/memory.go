package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/gateway/client"
)

// The full sizes of the memory bench's data, in bytes once decoded.
const (
	manySets   = 16
	manyBytes  = 96 << 20 // of each set
	slowBytes  = 3 << 30
	slowGroup  = 500_000_000
	groupBytes = 2 << 30
)

// limited holds gateways to a memory limit: many streams at once, clients that read slowly, a row group that is larger
// than the limit. What counts is the most anonymous memory that the process had.
func limited(ctx context.Context, s settings) (string, error) {
	var b strings.Builder
	about, err := s.versions(ctx)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&b, "## Memory\n\n%s\n\n", about)
	for _, part := range []func(context.Context, *strings.Builder) error{s.manyStreams, s.slowClients, s.largeGroup} {
		if err := part(ctx, &b); err != nil {
			return b.String(), err
		}
	}
	return b.String(), nil
}

func (s settings) sized(n int64) int64 { return int64(s.scale * float64(n)) }

// data makes data of the memory bench.
func (s settings) memoryData(ctx context.Context, what string, numbers ...int64) (string, error) {
	name, line := "memory-"+what, []string{}
	for _, n := range numbers {
		name += fmt.Sprintf("-%d", n)
		line = append(line, fmt.Sprint(n))
	}
	return s.generate(ctx, name, func(folder string) []string {
		return append([]string{s.script("memory.py"), what, folder}, line...)
	})
}

// gateway starts one on a folder with so much memory. Nobody is turned away.
func (s settings) gateway(ctx context.Context, folder, limit string) (*server, error) {
	return start(ctx, "env", "HEADRACE_LIMITS_ADMISSION_TIMEOUT=1h", s.headrace, "serve", folder,
		"--memory", limit, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
}

// manyStreams has four clients read each of 16 data sets at the same time, with little memory and with much.
func (s settings) manyStreams(ctx context.Context, b *strings.Builder) error {
	folder, err := s.memoryData(ctx, "many", manySets, s.sized(manyBytes))
	if err != nil {
		return err
	}
	b.WriteString("64 streams of 16 data sets (Parquet, page cache warm), all at once:\n\n")
	b.WriteString("| memory | GB/s | peak anonymous MiB |\n|---|---|---|\n")
	var rates [2][]float64
	for round := range max(s.repeats/3, 1) + 1 {
		for i, limit := range []string{"512MiB", "8GiB"} {
			r, err := s.readMany(ctx, folder, limit)
			if err != nil {
				return fmt.Errorf("%s: %w", limit, err)
			}
			if round == 0 { // it fills the page cache
				continue
			}
			rates[i] = append(rates[i], r.rate)
			fmt.Fprintf(b, "| %s | %.2f | %d |\n", limit, r.rate, r.peak>>20)
		}
	}
	var ratios []float64
	for i := range rates[0] {
		ratios = append(ratios, rates[0][i]/rates[1][i])
	}
	fmt.Fprintf(b, "\nThroughput with 512MiB is %.2f of that with 8GiB (wanted: 0.7).\n\n", median(ratios))
	return nil
}

// many is how reading with many streams went.
type many struct {
	rate float64 // GB/s
	peak int64   // bytes
}

func (s settings) readMany(ctx context.Context, folder, limit string) (m many, err error) {
	child, err := s.gateway(ctx, folder, limit)
	if err != nil {
		return m, err
	}
	defer child.stop()
	watch := watchMemory(ctx, child.cmd.Process.Pid)
	var group errgroup.Group
	var mu sync.Mutex
	var total int64
	began := time.Now()
	for i := range 64 {
		set := fmt.Sprintf("set-%02d", i%manySets)
		group.Go(func() error {
			n, err := readAll(ctx, child.uri, set, func(int64) {})
			mu.Lock()
			defer mu.Unlock()
			total += n
			return err
		})
	}
	err = group.Wait()
	m.rate = float64(total) / 1e9 / time.Since(began).Seconds()
	m.peak = watch()
	return m, err
}

// readAll reads a data set as stored, batch by batch, and returns its bytes.
func readAll(ctx context.Context, uri, dataset string, got func(bytes int64)) (total int64, err error) {
	c, err := client.Dial(uri, client.Options{})
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	request := fmt.Sprintf(`{"dataset": %q}`, dataset)
	stream, err := c.Stream(ctx, []byte(request))
	if err != nil {
		return 0, err
	}
	defer stream.Close()
	for {
		batch, _, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
		var n int64
		for _, column := range batch.Columns() {
			n += int64(column.Data().SizeInBytes())
		}
		total += n
		got(n)
	}
}

// slowRate is what a slow client takes, in bytes a second.
const slowRate = 48 << 20

// slowClients has eight clients read large row groups, and Arrow, more slowly than they could be served.
func (s settings) slowClients(ctx context.Context, b *strings.Builder) error {
	b.WriteString("8 slow clients, memory 512MiB:\n\n| data | GB/s | peak anonymous MiB | wanted |\n|---|---|---|---|\n")
	for _, d := range []struct {
		title, what string
		numbers     []int64
	}{
		{"Parquet, row groups of 500 MB", "groups", []int64{s.sized(slowBytes), s.sized(slowGroup)}},
		{"Arrow", "arrow", []int64{s.sized(slowBytes)}},
	} {
		folder, err := s.memoryData(ctx, d.what, d.numbers...)
		if err != nil {
			return err
		}
		child, err := s.gateway(ctx, folder, "512MiB")
		if err != nil {
			return err
		}
		watch := watchMemory(ctx, child.cmd.Process.Pid)
		total, took, err := readSlowly(ctx, child.uri, filepath.Base(folder), 8)
		peak := watch()
		child.stop()
		if err != nil {
			return fmt.Errorf("%s: %w", d.title, err)
		}
		fmt.Fprintf(b, "| %s | %.2f | %d | ≤ 700 |\n", d.title, float64(total)/1e9/took.Seconds(), peak>>20)
	}
	b.WriteString("\n")
	return nil
}

func readSlowly(ctx context.Context, uri, set string, clients int) (total int64, took time.Duration, err error) {
	var mu sync.Mutex
	var group errgroup.Group
	began := time.Now()
	for range clients {
		group.Go(func() error {
			var mine int64
			start := time.Now()
			n, err := readAll(ctx, uri, set, func(n int64) {
				mine += n
				due := time.Duration(float64(mine) / slowRate * float64(time.Second))
				time.Sleep(due - time.Since(start))
			})
			mu.Lock()
			defer mu.Unlock()
			total += n
			return err
		})
	}
	err = group.Wait()
	return total, time.Since(began), err
}

// largeGroup reads one row group that is many times the memory.
func (s settings) largeGroup(ctx context.Context, b *strings.Builder) error {
	folder, err := s.memoryData(ctx, "groups", s.sized(groupBytes), s.sized(groupBytes))
	if err != nil {
		return err
	}
	child, err := s.gateway(ctx, folder, "256MiB")
	if err != nil {
		return err
	}
	defer child.stop()
	watch := watchMemory(ctx, child.cmd.Process.Pid)
	began := time.Now()
	total, err := readAll(ctx, child.uri, filepath.Base(folder), func(int64) {})
	peak := watch()
	if err != nil {
		return fmt.Errorf("one row group of 2 GiB: %w", err)
	}
	fmt.Fprintf(b, "One row group of %.1f GB, memory 256MiB: %.2f GB/s, peak anonymous memory %d MiB.\n",
		float64(total)/1e9, float64(total)/1e9/time.Since(began).Seconds(), peak>>20)
	return nil
}

// watchMemory looks at a process's anonymous memory until the function it returns is called, which tells the most there was.
func watchMemory(ctx context.Context, pid int) (most func() int64) {
	ctx, cancel := context.WithCancel(ctx)
	var group errgroup.Group
	var peak int64
	group.Go(func() error {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			peak = max(peak, anonymous(pid))
			select {
			case <-tick.C:
			case <-ctx.Done():
				return nil
			}
		}
	})
	return func() int64 {
		cancel()
		_ = group.Wait()
		return peak
	}
}

// anonymous is a process's resident anonymous memory in bytes; 0 where it cannot be told.
func anonymous(pid int) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "RssAnon:" {
			var kib int64
			_, _ = fmt.Sscan(f[1], &kib)
			return kib << 10
		}
	}
	return 0
}

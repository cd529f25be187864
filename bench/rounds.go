package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
)

// command starts a server that is to be compared.
type command struct {
	title string
	name  string // of its data set; "" if the server has but one
	line  []string
	again bool   // it is started again for each round
	way   string // in which clients read; "": as stock ones do
}

// contestant is one of the servers that are compared; what is measured lies in runs, one for each round.
type contestant struct {
	command
	*server
	runs []reading
}

// reading is one read of the whole data by a fresh client.
type reading struct {
	Seconds   float64
	CPU       float64 // of the client, seconds
	Rows      int64
	Bytes     int64
	Batches   int
	Sum       uint64
	serverCPU float64 // seconds
}

func (r reading) gb() float64             { return float64(r.Bytes) / 1e9 }
func (r reading) throughput() float64     { return r.gb() / r.Seconds }
func (r reading) clientPerGB() float64    { return r.CPU / r.gb() }
func (r reading) serverCPUPerGB() float64 { return r.serverCPU / r.gb() }

// by is the same server, read in another way.
func (c *contestant) by(way, title string) *contestant {
	other := *c
	other.way, other.title = way, c.title+", "+title
	return &other
}

// headraceServing serves one folder of data as one data set.
func (s settings) headraceServing(folder string) command {
	return command{
		title: "headrace", name: filepath.Base(folder),
		line: []string{s.headrace, "serve", folder, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"},
	}
}

// forgetful keeps a gateway that goes on running from reading what it kept: it has memory for half of what a round reads
// at most, and keeps what came last. That is how a scan of more than fits goes.
func (c command) forgetful(size int64) command {
	const least = 160 << 20
	c.line = append([]string{"env", "HEADRACE_CACHE_POLICY=lru"}, append(c.line, "--memory", fmt.Sprint(max(size/2, least)))...)
	return c
}

// anew is the same command, started again for each round: what a gateway keeps in memory would spare it the work.
func (c command) anew() command {
	c.again = true
	return c
}

func (s settings) script(name string) string { return filepath.Join(s.root, "bench", name) }

// client runs the Python client and returns what it printed. URI and name are those of the contestant.
func (s settings) client(ctx context.Context, c *contestant, what string, args ...string) ([]byte, error) {
	line := append([]string{s.script("client.py"), what, c.uri}, args...)
	if c.name != "" {
		line = append(line, c.name)
	}
	return output(ctx, s.python, line...)
}

// launch starts all servers, or none.
func launch(ctx context.Context, commands ...command) ([]*contestant, error) {
	var all []*contestant
	for _, c := range commands {
		child, err := start(ctx, c.line[0], c.line[1:]...)
		if err != nil {
			stop(all)
			return nil, fmt.Errorf("%s: %w", c.title, err)
		}
		all = append(all, &contestant{command: c, server: child})
	}
	return all, nil
}

func stop(all []*contestant) {
	for _, c := range all {
		c.stop()
	}
}

// interleave lets the contestants take turns, in another order each round. The first round fills caches and does not count.
func interleave(ctx context.Context, rounds int, all []*contestant, turn func(c *contestant, warm bool) error) error {
	for round := range rounds + 1 {
		for _, i := range rand.Perm(len(all)) {
			c := all[i]
			if err := errors.Join(c.restart(ctx), turn(c, round > 0)); err != nil {
				return fmt.Errorf("%s: %w", c.title, err)
			}
		}
	}
	return nil
}

// restart starts the server again, if it is to be.
func (c *contestant) restart(ctx context.Context) error {
	if !c.again {
		return nil
	}
	c.stop()
	child, err := start(ctx, c.line[0], c.line[1:]...)
	if err == nil {
		c.server = child
	}
	return err
}

// race measures reads of the whole data.
func (s settings) race(ctx context.Context, all []*contestant) error {
	return interleave(ctx, s.repeats, all, func(c *contestant, warm bool) error {
		r, err := s.measure(ctx, c, cmp.Or(c.way, "read"))
		if err == nil && warm {
			c.runs = append(c.runs, r)
		}
		return err
	})
}

// measure runs one client, which does what is said (read or train), against a server that has nothing else to do.
func (s settings) measure(ctx context.Context, c *contestant, what string) (r reading, err error) {
	before, err := c.cpu()
	if err != nil {
		return r, err
	}
	out, err := s.client(ctx, c, what)
	if err != nil {
		return r, err
	}
	after, err := c.cpu()
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return r, err
	}
	if r.Bytes == 0 {
		return r, errors.New("no data came")
	}
	r.serverCPU = (after - before).Seconds()
	return r, nil
}

// alike tells whether all runs of all contestants agree in something.
func alike(all []*contestant, what string, of func(reading) uint64) error {
	want := of(all[0].runs[0])
	for _, c := range all {
		for _, r := range c.runs {
			if got := of(r); got != want {
				return fmt.Errorf("%s sent other data than %s: %s is %d, not %d", c.title, all[0].title, what, got, want)
			}
		}
	}
	return nil
}

// compare writes a table of all contestants, and one of the first against the others with what is wanted of it.
func compare(b *strings.Builder, all []*contestant, wanted ...string) {
	b.WriteString("| server | GB/s | server CPU-s/GB | client CPU-s/GB |\n|---|---|---|---|\n")
	for _, c := range all {
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", c.title, spread(c.runs, reading.throughput), spread(c.runs, reading.serverCPUPerGB),
			spread(c.runs, reading.clientPerGB))
	}
	fmt.Fprintf(b, "\n| %s against | throughput | server CPU per GB | wanted |\n|---|---|---|---|\n", all[0].title)
	for i, other := range all[1:] {
		fmt.Fprintf(b, "| %s | %.2f | %.2f | %s |\n", other.title, ratio(all[0].runs, other.runs, reading.throughput),
			ratio(all[0].runs, other.runs, reading.serverCPUPerGB), wanted[i])
	}
}

// median sorts the values.
func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

func spread(runs []reading, of func(reading) float64) string {
	var values []float64
	for _, r := range runs {
		values = append(values, of(r))
	}
	m := median(values)
	return fmt.Sprintf("%.2f (%.2f–%.2f)", m, values[0], values[len(values)-1])
}

// ratio is the median over the rounds of a's number to b's.
func ratio(a, b []reading, of func(reading) float64) float64 {
	var values []float64
	for i := range a {
		values = append(values, of(a[i])/of(b[i]))
	}
	return median(values)
}

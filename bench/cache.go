package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/headrace/headrace/gateway/client"
	"github.com/headrace/headrace/gateway/wire"
)

const (
	farRate    = 100e6 // bytes a second from the far store, over all connections
	farLatency = 20 * time.Millisecond
	farBatch   = 512 // rows, about 1 MB
	farPause   = 5   // milliseconds that the trainer takes for a batch
	farEpochs  = 3
)

// caching measures what is read again: from memory beside from a mapped file, and beside a store that is far away; from a
// disk beside all of them; how often half of the data is hit; and what a hit costs.
func caching(ctx context.Context, s settings) (string, error) {
	versions, err := s.versions(ctx)
	if err != nil {
		return "", err
	}
	size := fmt.Sprint(int64(s.scale * parquetBytes))
	folder, err := s.generate(ctx, "wide-"+size, func(part string) []string { return []string{s.script("parquet.py"), "wide", part, size} })
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "## Cache: what is read again\n\nThe wide files of the Parquet bench; %d interleaved rounds, loopback; medians (least–most).\n%s\n", s.repeats, versions)
	for _, part := range []func(context.Context, *strings.Builder, string) error{
		s.againstMapped, s.againstStore, s.diskAgainstStore, s.diskAgainstFiles, s.halfKept, s.hits,
	} {
		if err := part(ctx, &b, folder); err != nil {
			return b.String(), err
		}
	}
	return b.String(), nil
}

// againstMapped lets a gateway serve Parquet that it keeps decoded, and another one the same rows from Arrow files.
func (s settings) againstMapped(ctx context.Context, b *strings.Builder, folder string) error {
	arrow, err := s.arrowFiles(ctx, folder)
	if err != nil {
		return err
	}
	for _, shuffle := range []string{"none", "window"} {
		var commands []command
		for i, from := range []string{folder, arrow} {
			c := s.headraceServing(from)
			c.title = []string{"Parquet, second epoch", "Arrow files"}[i]
			c.name = training(c.name, shuffle)
			commands = append(commands, c)
		}
		all, err := s.trainBy(ctx, func(context.Context, *contestant) error { return nil }, commands...)
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "\n**%.2f GB in batches of %d rows, shuffle %s**\n\n", all[0].runs[0].gb(), orderBatch, shuffle)
		compare(b, all, "throughput ≥ 0.9")
	}
	return nil
}

// arrowFiles are the same rows in Arrow files, a block in each record batch.
func (s settings) arrowFiles(ctx context.Context, folder string) (string, error) {
	return s.generate(ctx, filepath.Base(folder)+"-ipc", func(part string) []string {
		return []string{s.script("cache.py"), "ipc", folder, part, "2032"}
	})
}

// pass is an epoch as a trainer saw it.
type pass struct {
	Seconds, Wait float64
	Rows, Batches int64
	Sum           uint64
}

// farStore is an S3 server with the wide files, far away; end ends it.
func (s settings) farStore(ctx context.Context, folder string) (link *slowLink, end func(), err error) {
	near, _, stop, err := s.startStores(ctx)
	if err != nil {
		return nil, stop, err
	}
	if err := upload(ctx, near, "wide", folder); err != nil {
		return nil, stop, err
	}
	link, cut, err := startLink(near, farLatency, farRate)
	if err != nil {
		return nil, stop, err
	}
	return link, func() {
		cut()
		stop()
	}, nil
}

// againstStore lets a trainer read over a gateway, and with pyarrow, from a store that is far away.
func (s settings) againstStore(ctx context.Context, b *strings.Builder, folder string) error {
	link, end, err := s.farStore(ctx, folder)
	defer end()
	if err != nil {
		return err
	}
	far := link.address()
	request := fmt.Sprintf(`{"dataset":"wide","shuffle":"window","seed":1,"batch_size":%d,"num_epochs":%d}`, farBatch, farEpochs)
	var ours, theirs []pass
	for range max(s.repeats/3, 1) {
		child, err := start(ctx, s.headrace, "serve", "s3://data/wide?endpoint=http://"+far, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
		if err != nil {
			return err
		}
		mine, err := s.trained(ctx, "gateway", child.uri, request, fmt.Sprint(farPause), fmt.Sprint(farEpochs))
		child.stop()
		if err != nil {
			return err
		}
		other, err := s.trained(ctx, "store", far, "data/wide", fmt.Sprint(farBatch), fmt.Sprint(farPause), fmt.Sprint(farEpochs))
		if err != nil {
			return err
		}
		if mine[1].Sum != other[1].Sum || mine[1].Rows != other[1].Rows {
			return fmt.Errorf("%d rows of the sum %d, not %d of %d", mine[1].Rows, mine[1].Sum, other[1].Rows, other[1].Sum)
		}
		ours, theirs = append(ours, mine...), append(theirs, other...)
	}
	fmt.Fprintf(b, "\n**An S3 server %v away, %.0f MB a second in all; a trainer that takes %d ms for each of %d batches of %d rows**\n\n",
		farLatency, farRate/1e6, farPause, ours[0].Batches, farBatch)
	b.WriteString("| epoch | s | waited s | pyarrow's scanner, s | waited s | waited against it | throughput against it | wanted |\n|---|---|---|---|---|---|---|---|\n")
	for epoch := range farEpochs {
		wanted := "–"
		if epoch > 0 {
			wanted = "< 0.1, ≥ 1.4"
		}
		took := func(p pass) float64 { return p.Seconds }
		wait := func(p pass) float64 { return p.Wait }
		fmt.Fprintf(b, "| %d | %.2f | %.3f | %.2f | %.3f | %.3f | %.2f | %s |\n", epoch+1, middle(ours, epoch, took), middle(ours, epoch, wait),
			middle(theirs, epoch, took), middle(theirs, epoch, wait), middle(ours, epoch, wait)/middle(theirs, epoch, wait),
			middle(theirs, epoch, took)/middle(ours, epoch, took), wanted)
	}
	return nil
}

func (s settings) trained(ctx context.Context, args ...string) (all []pass, err error) {
	out, err := output(ctx, s.python, append([]string{s.script("cache.py")}, args...)...)
	if err != nil {
		return nil, err
	}
	return all, json.Unmarshal(out, &all)
}

// middle is the median of one epoch's number over rounds.
func middle(all []pass, epoch int, of func(pass) float64) float64 {
	var values []float64
	for i := epoch; i < len(all); i += farEpochs {
		values = append(values, of(all[i]))
	}
	return median(values)
}

// keptStats is what of the gateway's statistics is looked at.
type keptStats struct {
	Cache struct {
		Served []struct {
			Hits   map[string]int64
			Misses int64
		}
	}
}

func (k keptStats) hits() (n int64) {
	for _, s := range k.Cache.Served {
		for _, hits := range s.Hits {
			n += hits
		}
	}
	return n
}

func (k keptStats) misses() (n int64) {
	for _, s := range k.Cache.Served {
		n += s.Misses
	}
	return n
}

// halfKept reads shuffled epochs with memory with which, as the gateway foresees, half of the blocks are hits.
func (s settings) halfKept(ctx context.Context, b *strings.Builder, folder string) error {
	limit, err := s.halving(ctx, folder)
	if err != nil {
		return err
	}
	half, err := s.epochs(ctx, folder, limit, 5)
	if err != nil {
		return err
	}
	blocks := float64(half[0].after.misses())
	fmt.Fprintf(b, "\n**Half of the data in memory**, as foreseen: %.0f blocks, windows of %d, %d MiB.\n\n", blocks, keptWindow, limit>>20)
	b.WriteString("| epoch | foreseen hits, blocks | hits, blocks | wanted |\n|---|---|---|---|\n")
	for e := 1; e < len(half); e++ {
		hits := half[e].after.hits() - half[e-1].after.hits()
		fmt.Fprintf(b, "| %d | %.1f | %d | %.0f ± 1 |\n", e+1, half[e-1].foreseen.Hits*blocks, hits, blocks/2)
	}
	return nil
}

// keptWindow is how many blocks a window has where half of the data is kept.
const keptWindow = 8

// epochKept is what an epoch left behind, and what is foreseen of those that come.
type epochKept struct {
	after    keptStats
	foreseen wire.ForecastMeta
}

// keptRequest is that of an epoch.
func keptRequest(folder string, epoch int) string {
	return fmt.Sprintf(`{"dataset":%q,"shuffle":"window","window_blocks":%d,"batch_size":%d,"epoch":%d}`, filepath.Base(folder), keptWindow, orderBatch, epoch)
}

// halving is the least memory for which a gateway that has read the data foresees, asked by the command, that half of the blocks
// are hits.
func (s settings) halving(ctx context.Context, folder string) (int64, error) {
	const all, exact = 4 << 30, 256 << 10
	child, err := s.gateway(ctx, folder, fmt.Sprint(all))
	if err != nil {
		return 0, err
	}
	defer child.stop()
	read, err := s.readFrom(ctx, child, folder, 1)
	if err != nil {
		return 0, err
	}
	low, high := 2*read[0].foreseen.Reserved+64<<20, int64(all) // for streams, decoders and the heap alone
	for high-low > exact {
		memory := (low + high) / 2
		out, err := output(ctx, s.headrace, "plan", "--json", "--server", child.uri, "--request", keptRequest(folder, 0), "--memory", fmt.Sprint(memory))
		if err != nil {
			return 0, err
		}
		var plan struct{ Forecast wire.ForecastMeta }
		if err := json.Unmarshal(out, &plan); err != nil {
			return 0, err
		}
		if plan.Forecast.Hits < .5 {
			low = memory
		} else {
			high = memory
		}
	}
	return high, nil
}

// epochs reads so many epochs, each by a stream of its own, from a gateway with so much memory.
func (s settings) epochs(ctx context.Context, folder string, limit int64, count int) (all []epochKept, err error) {
	child, err := s.gateway(ctx, folder, fmt.Sprint(limit))
	if err != nil {
		return nil, err
	}
	defer child.stop()
	return s.readFrom(ctx, child, folder, count)
}

// readFrom reads so many epochs from a gateway.
func (s settings) readFrom(ctx context.Context, child *server, folder string, count int) (all []epochKept, err error) {
	c, err := client.Dial(child.uri, client.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	for epoch := range count {
		e, err := readEpoch(ctx, c, keptRequest(folder, epoch))
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// readEpoch reads a stream to its end.
func readEpoch(ctx context.Context, c *client.Client, request string) (e epochKept, err error) {
	stream, err := c.Stream(ctx, []byte(request))
	if err != nil {
		return e, err
	}
	defer stream.Close()
	for err == nil {
		_, _, err = stream.Next()
	}
	if !errors.Is(err, io.EOF) {
		return e, err
	}
	answer, err := c.Action(ctx, "headrace.stats", nil)
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(answer[0], &e.after); err != nil {
		return e, err
	}
	asked, err := wire.Parse([]byte(request))
	if err != nil {
		return e, err
	}
	e.foreseen, err = c.Forecast(ctx, &wire.ForecastRequest{Request: asked})
	return e, err
}

var benchLine = regexp.MustCompile(`(?m)^Benchmark(\S+)\s+\d+\s+(.*)$`)

// hits are the cache's own benchmarks.
func (s settings) hits(ctx context.Context, b *strings.Builder, _ string) error {
	out, err := output(ctx, "go", "-C", s.root, "test", "-run", "^$", "-bench", "Hit|Bookkeeping", "-benchtime", "200000x", "-cpu", "1,2", "./storage/cache")
	if err != nil {
		return err
	}
	b.WriteString("\n**A hit by one and by 64 at once, and what a policy knows of each block**, on one processor and (-2) on two; wanted: a hit < 2000 ns with no\n" +
		"allocation but its lease, half of the time on two processors, < 200 B a block\n\n| benchmark | |\n|---|---|\n")
	for _, m := range benchLine.FindAllStringSubmatch(string(out), -1) {
		fmt.Fprintf(b, "| %s | %s |\n", m[1], strings.Join(strings.Fields(m[2]), " "))
	}
	return nil
}

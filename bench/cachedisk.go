package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/headrace/headrace/gateway/client"
)

// errand is an epoch as its trainer saw it, and what it took from the store.
type errand struct {
	pass
	gets, bytes float64 // GETs are known of gateways only
}

// diskAgainstStore lets a trainer read from a store that is far away what does not fit memory: over a gateway with a cache
// on disk, which in the end is started again, over one without, and with pyarrow.
func (s settings) diskAgainstStore(ctx context.Context, b *strings.Builder, folder string) error {
	link, end, err := s.farStore(ctx, folder)
	defer end()
	if err != nil {
		return err
	}
	readers := []string{"cache on disk", "no disk", "pyarrow's scanner"}
	all := map[string][][]errand{} // by reader and round
	for range max(s.repeats/3, 1) {
		for _, reader := range readers {
			var round []errand
			if reader == readers[2] {
				round, err = s.scannedAfar(ctx, link)
			} else {
				round, err = s.servedAfar(ctx, link, reader == readers[0])
			}
			if err != nil {
				return fmt.Errorf("%s: %w", reader, err)
			}
			all[reader] = append(all[reader], round)
		}
	}
	want := all[readers[0]][0][0]
	for reader, rounds := range all {
		for _, round := range rounds {
			for _, e := range round {
				if e.Sum != want.Sum || e.Rows != want.Rows {
					return fmt.Errorf("%s: %d rows of the sum %d, not %d of %d", reader, e.Rows, e.Sum, want.Rows, want.Sum)
				}
			}
		}
	}
	fmt.Fprintf(b, "\n**The same store and trainer, with %.0f MB of memory for %.0f MB of rows**, in windows of %d blocks; each epoch is a stream of its own,\n"+
		"and bytes are all that came over the link.\n\n| epoch | reader | s | waited s | GETs | MB | throughput against pyarrow |\n|---|---|---|---|---|---|---|\n",
		float64(s.farMemory())/1e6, s.scale*parquetBytes/1e6, keptWindow)
	for epoch := range farEpochs + 1 {
		for _, reader := range readers {
			if epoch < len(all[reader][0]) {
				row(b, epoch, reader, all[reader], all[readers[2]])
			}
		}
	}
	return nil
}

// row writes what an epoch came to, in the median of all rounds.
func row(b *strings.Builder, epoch int, reader string, rounds, pyarrows [][]errand) {
	mid := func(rounds [][]errand, epoch int, of func(errand) float64) float64 {
		var values []float64
		for _, r := range rounds {
			values = append(values, of(r[epoch]))
		}
		return median(values)
	}
	name, gets := fmt.Sprint(epoch+1), "–"
	if epoch == farEpochs {
		name = "1, started again"
	}
	if n := mid(rounds, epoch, func(e errand) float64 { return e.gets }); n >= 0 {
		gets = fmt.Sprintf("%.0f", n)
	}
	took := func(e errand) float64 { return e.Seconds }
	fmt.Fprintf(b, "| %s | %s | %.2f | %.3f | %s | %.1f | %.2f |\n", name, reader, mid(rounds, epoch, took),
		mid(rounds, epoch, func(e errand) float64 { return e.Wait }), gets, mid(rounds, epoch, func(e errand) float64 { return e.bytes })/1e6,
		mid(pyarrows, min(epoch, farEpochs-1), took)/mid(rounds, epoch, took))
}

// farMemory is that of gateways which cannot keep the wide files in it: for windows, and part of them beside.
func (s settings) farMemory() int64 { return max(int64(s.scale*parquetBytes)/2, 192<<20) }

// servedAfar reads epochs over a gateway; with a cache on disk one more when it was started again.
func (s settings) servedAfar(ctx context.Context, link *slowLink, withDisk bool) (all []errand, err error) {
	line := []string{"env"}
	if withDisk {
		dir, err := os.MkdirTemp(s.data, "disk-")
		if err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		line = append(line, diskAt(dir)...)
	}
	admin, err := freePort()
	if err != nil {
		return nil, err
	}
	line = append(line, s.headrace, "serve", "s3://data/wide?endpoint=http://"+link.address(), "--memory", fmt.Sprint(s.farMemory()),
		"--listen", "127.0.0.1:0", "--admin", admin)
	starts := [][]int{{0, 1, 2}}
	if withDisk {
		starts = append(starts, []int{0})
	}
	for _, epochs := range starts {
		child, err := start(ctx, line[0], line[1:]...)
		if err != nil {
			return nil, err
		}
		for _, epoch := range epochs {
			e, err := s.servedOnce(ctx, link, child, admin, epoch)
			if err != nil {
				child.stop()
				return nil, err
			}
			all = append(all, e)
		}
		if err = settled(admin); err != nil {
			child.stop()
			return nil, err
		}
		child.stop()
	}
	return all, nil
}

func (s settings) servedOnce(ctx context.Context, link *slowLink, child *server, admin string, epoch int) (e errand, err error) {
	request := fmt.Sprintf(`{"dataset":"wide","shuffle":"window","window_blocks":%d,"seed":1,"batch_size":%d,"epoch":%d}`, keptWindow, farBatch, epoch)
	gets, err := storeGets(admin)
	if err != nil {
		return e, err
	}
	bytes := link.bytes()
	passes, err := s.trained(ctx, "gateway", child.uri, request, fmt.Sprint(farPause), fmt.Sprint(epoch+1))
	if err != nil {
		return e, err
	}
	after, err := storeGets(admin)
	return errand{passes[epoch], after - gets, link.bytes() - bytes}, err
}

// scannedAfar reads as many epochs with pyarrow.
func (s settings) scannedAfar(ctx context.Context, link *slowLink) (all []errand, err error) {
	for range farEpochs {
		bytes := link.bytes()
		passes, err := s.trained(ctx, "store", link.address(), "data/wide", fmt.Sprint(farBatch), fmt.Sprint(farPause), "1")
		if err != nil {
			return nil, err
		}
		all = append(all, errand{passes[0], -1, link.bytes() - bytes})
	}
	return all, nil
}

// diskAt has a gateway keep blocks in a folder.
func diskAt(dir string) []string {
	return []string{"HEADRACE_CACHE_DISK_DIR=" + dir, "HEADRACE_CACHE_DISK_LIMIT=64GiB"}
}

var waitingLine = regexp.MustCompile(`(?m)^headrace_disk_waiting\S* (\S+)$`)

// settled waits until a gateway has no more blocks to write to its disk, if it has one.
func settled(admin string) error {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		n, err := metric(admin, waitingLine)
		if err != nil || n == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%.0f blocks are still to be written", n)
		}
	}
}

// diskAgainstFiles has gateways serve the same rows from the cache on disk, from Arrow files and from memory.
func (s settings) diskAgainstFiles(ctx context.Context, b *strings.Builder, folder string) error {
	arrow, err := s.arrowFiles(ctx, folder)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(s.data, "disk-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := s.fill(ctx, folder, dir); err != nil {
		return err
	}
	fmt.Fprintf(b, "\n**The cache on disk, started again, out of the page cache**, every checksum compared\n")
	for _, shuffle := range []string{"none", "window"} {
		fromDisk, files, kept := s.headraceServing(folder), s.headraceServing(arrow), s.headraceServing(folder)
		fromDisk.title, files.title, kept.title = "from disk", "Arrow files", "from memory"
		fromDisk.line = append(append([]string{"env"}, diskAt(dir)...), fromDisk.line...)
		commands := []command{fromDisk, files, kept}
		for i := range commands {
			commands[i].name = training(commands[i].name, shuffle)
		}
		all, err := s.trainBy(ctx, fromDiskAlone, commands...)
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "\n%.2f GB in batches of %d rows, shuffle %s:\n\n", all[0].runs[0].gb(), orderBatch, shuffle)
		compare(b, all, "throughput ≥ 0.8", "–")
	}
	return nil
}

// fill lets a gateway read files until its cache on disk has all of them, and ends it.
func (s settings) fill(ctx context.Context, folder, dir string) error {
	admin, err := freePort()
	if err != nil {
		return err
	}
	child, err := start(ctx, "env", append(diskAt(dir), s.headrace, "serve", folder, "--listen", "127.0.0.1:0", "--admin", admin)...)
	if err != nil {
		return err
	}
	defer child.stop()
	c, err := client.Dial(child.uri, client.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if _, err := readEpoch(ctx, c, training(filepath.Base(folder), "window")); err != nil {
		return err
	}
	return settled(admin)
}

// trainBy has a trainer read from each of some gateways in turns; what they kept in memory or on disk serves all but the
// first time. At last the first of them is looked at.
func (s settings) trainBy(ctx context.Context, look func(context.Context, *contestant) error, commands ...command) ([]*contestant, error) {
	all, err := launch(ctx, commands...)
	if err != nil {
		return nil, err
	}
	defer stop(all)
	err = interleave(ctx, s.repeats, all, func(c *contestant, warm bool) error {
		r, err := s.measure(ctx, c, "train")
		if err == nil && warm {
			c.runs = append(c.runs, r)
		}
		return err
	})
	if err == nil {
		err = alike(all, "the sum of the rows", func(r reading) uint64 { return r.Sum })
	}
	if err == nil {
		err = look(ctx, all[0])
	}
	return all, err
}

// fromDiskAlone tells whether all that a gateway served came from its cache on disk.
func fromDiskAlone(ctx context.Context, c *contestant) error {
	to, err := client.Dial(c.uri, client.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = to.Close() }()
	answer, err := to.Action(ctx, "headrace.stats", nil)
	if err != nil {
		return err
	}
	var stats keptStats
	if err := json.Unmarshal(answer[0], &stats); err != nil {
		return err
	}
	var elsewhere int64
	for _, s := range stats.Cache.Served {
		elsewhere += s.Misses + s.Hits["memory"]
	}
	if elsewhere > 0 {
		return fmt.Errorf("%d blocks did not come from disk", elsewhere)
	}
	return nil
}

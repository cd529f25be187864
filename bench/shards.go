package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/storage/bucket"
)

const (
	manyShards = 10_000 // at full scale
	// inFlight is how many requests a gateway has under way to a bucket, if nothing else is said.
	inFlight = 64
)

// shards measures how long the first plan on many objects of a slow store takes: of a gateway that has never seen them, and of
// one that is started again.
func shards(ctx context.Context, s settings) (string, error) {
	versions, err := s.versions(ctx)
	if err != nil {
		return "", err
	}
	n := max(1, int(s.scale*manyShards))
	near, far, end, err := s.startStores(ctx)
	defer end()
	if err != nil {
		return "", err
	}
	if err := s.plant(ctx, near, n); err != nil {
		return "", err
	}
	var cold, again, lists []float64
	var gets [2]float64
	for range s.repeats {
		cache, err := os.MkdirTemp(s.data, "cache-")
		if err != nil {
			return "", err
		}
		for i, seconds := range []*[]float64{&cold, &again} {
			took, asked, err := s.firstPlan(ctx, far, cache, int64(n)*smallRows)
			if err != nil {
				return "", errors.Join(err, os.RemoveAll(cache))
			}
			*seconds, gets[i] = append(*seconds, took), asked
		}
		if err := os.RemoveAll(cache); err != nil {
			return "", err
		}
		took, err := listed(ctx, far, n)
		if err != nil {
			return "", err
		}
		lists = append(lists, took)
	}
	latency := float64(n) * storeLatency / 1000
	var b strings.Builder
	fmt.Fprintf(&b, "## Shards: the first plan on %d objects in a store\n\nversitygw, %d ms before each answer; from the start of the process to the answer of GetFlightInfo; %d rounds, medians (least–most).\n%s\n\n",
		n, storeLatency, s.repeats, versions)
	b.WriteString("| gateway | seconds | GETs | wanted |\n|---|---|---|---|\n")
	fmt.Fprintf(&b, "| with nothing kept | %s | %.0f | ≪ %.0f, latency × GETs; ≥ %.1f, the same with %d at a time |\n", secondsOf(cold), gets[0], latency, latency/inFlight, inFlight)
	fmt.Fprintf(&b, "| started again | %s | %.0f | < 0.5 beside the listing |\n", secondsOf(again), gets[1])
	fmt.Fprintf(&b, "| none: the listing alone, page after page | %s | – | – |\n", secondsOf(lists))
	return b.String(), nil
}

func secondsOf(all []float64) string {
	m := median(all)
	return fmt.Sprintf("%.2f (%.2f–%.2f)", m, all[0], all[len(all)-1])
}

// listed tells the seconds that a listing of the n objects takes.
func listed(ctx context.Context, endpoint string, n int) (float64, error) {
	b, err := bucket.Open("s3://data/shards?endpoint=http://" + endpoint)
	if err != nil {
		return 0, err
	}
	found, began := 0, time.Now()
	err = b.List(ctx, "", func(bucket.Attrs) error {
		found++
		return nil
	})
	took := time.Since(began).Seconds()
	if err = errors.Join(err, b.Close()); err == nil && found != n {
		err = fmt.Errorf("%d objects are listed, not %d", found, n)
	}
	return took, err
}

// plant puts n small Parquet files into the bucket.
func (s settings) plant(ctx context.Context, endpoint string, n int) error {
	folder, err := s.generate(ctx, "small-1", func(part string) []string { return []string{s.script("parquet.py"), "small", part, "1"} })
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.parquet"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("%d files in %s, want one: %w", len(files), folder, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		return err
	}
	b, err := bucket.Open("s3://data/shards?endpoint=http://" + endpoint)
	if err != nil {
		return err
	}
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range n {
		group.Go(func() error { return b.Put(within, fmt.Sprintf("part-%06d.parquet", i), data) })
	}
	return errors.Join(group.Wait(), b.Close())
}

// firstPlan starts a gateway that keeps snapshots in a folder, and tells the seconds until it has planned, and its GETs.
func (s settings) firstPlan(ctx context.Context, endpoint, cache string, rows int64) (seconds, gets float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	address, err1 := freePort()
	admin, err2 := freePort()
	if err := errors.Join(err1, err2); err != nil {
		return 0, 0, err
	}
	cmd := exec.CommandContext(ctx, s.headrace, "serve", "s3://data/shards?endpoint=http://"+endpoint, "--listen", address, "--admin", admin)
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cache)
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	defer (&server{cmd: cmd}).stop()
	info, err := ask(ctx, address, "shards")
	seconds = time.Since(began).Seconds()
	if err != nil {
		return 0, 0, err
	}
	if info.Rows != rows {
		return 0, 0, fmt.Errorf("the answer has %d rows, not %d", info.Rows, rows)
	}
	gets, err = storeGets(admin)
	return seconds, gets, err
}

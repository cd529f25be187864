package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mapped streams the wire bench's file, served from its mapping and by reading, out of the page cache and from the disk.
// One gateway does both: while somebody has the file open for writing it is not mapped.
func mapped(ctx context.Context, s settings) (string, error) {
	file, err := s.wireData(ctx)
	if err != nil {
		return "", err
	}
	gateway, err := launch(ctx, s.headraceServing(filepath.Dir(file)))
	if err != nil {
		return "", err
	}
	defer stop(gateway)
	versions, err := s.versions(ctx)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "## Mapped: uncompressed Arrow in place, and read\n\n")
	fmt.Fprintf(&b, "The file of the wire bench to a pyarrow client that touches every byte; %d interleaved rounds, loopback; medians\n"+
		"(least–most).\n%s\n", s.repeats, versions)
	for _, cache := range []string{"warm", "cold"} {
		inPlace, read := *gateway[0], *gateway[0]
		inPlace.title, read.title = "mapped, "+cache, "read, "+cache
		all := []*contestant{&inPlace, &read}
		err := interleave(ctx, s.repeats, all, func(c *contestant, counts bool) error {
			if cache == "cold" {
				if err := drop(file); err != nil {
					return err
				}
			}
			r, err := s.measureAs(ctx, c, file, c == &read)
			if err == nil && counts {
				c.runs = append(c.runs, r)
			}
			return err
		})
		if err != nil {
			return "", err
		}
		if err := alike(all, "the sum of all bytes", func(r reading) uint64 { return r.Sum }); err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "\n**%s page cache**\n\n", cache)
		compare(&b, all, "–")
	}
	err = s.resident(ctx, &b)
	return b.String(), err
}

// residentBytes is the size of the file whose memory is watched; there is one of a part of it, which is read as many times,
// because serving as much makes as much garbage, whatever the size of the file.
const (
	residentBytes = 4 << 30
	residentParts = 16
)

// resident serves a large file of zeros, which takes no disk, and tells what it adds to the process's anonymous memory.
func (s settings) resident(ctx context.Context, b *strings.Builder) error {
	size := fmt.Sprint(s.sized(residentBytes))
	folder, err := s.generate(ctx, "zeros-"+size, func(part string) []string {
		return []string{s.script("sparse.py"), part, size, fmt.Sprint(residentParts)}
	})
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }() // a copy of it would not be sparse
	child, err := s.gateway(ctx, folder, "1GiB")
	if err != nil {
		return err
	}
	defer child.stop()
	read := func(name string, times int) (total, peak int64, err error) {
		watch := watchMemory(ctx, child.cmd.Process.Pid)
		for range times {
			n, failed := readAll(ctx, child.uri, name, func(int64) {})
			total, err = total+n, errors.Join(err, failed)
		}
		return total, watch(), err
	}
	_, before, err := read("small", residentParts)
	if err != nil {
		return err
	}
	total, peak, err := read("large", 1)
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "\nReading a mapped file of %.1f GB adds %.1f MiB of anonymous memory to the %.1f MiB that the process had after reading one\n"+
		"of a %dth of that as many times (wanted: less than 5).\n", float64(total)/1e9, float64(peak-before)/(1<<20), float64(before)/(1<<20), residentParts)
	return nil
}

// measureAs measures one read, with the file open for writing if it is not to be mapped.
func (s settings) measureAs(ctx context.Context, c *contestant, file string, held bool) (reading, error) {
	if held {
		f, err := os.OpenFile(file, os.O_WRONLY, 0)
		if err != nil {
			return reading{}, err
		}
		defer func() { _ = f.Close() }() // nothing was written
	}
	return s.measure(ctx, c, "read")
}

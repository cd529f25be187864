package main

import (
	"context"
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
		err := interleave(s.repeats, all, func(c *contestant, counts bool) error {
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
	return b.String(), nil
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

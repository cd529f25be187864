package main

import (
	"context"
	"fmt"
	"strings"
)

// checkedBytes is the full size of each data set of the checks bench.
const checkedBytes = 600e6

// checkedKinds are types whose values are checked before they are sent, beside types of the same bytes that have nothing to check.
var checkedKinds = []struct{ kind, about, wanted string }{
	{"lists-arrow", "Arrow, list<float32> of 480 against fixed-size lists", "≥ 0.95"},
	{"english-arrow", "Arrow, English as string against binary", "≥ 0.90"},
	{"japanese-arrow", "Arrow, Japanese as string against binary", "≥ 0.90"},
	{"english-parquet", "Parquet, English as string against binary", "≥ 0.90"},
	{"japanese-parquet", "Parquet, Japanese as string against binary", "≥ 0.90"},
}

// checking reads the same bytes as a type that is checked and as one that is not: what the checks of offsets and of UTF-8 cost.
func checking(ctx context.Context, s settings) (string, error) {
	versions, err := s.versions(ctx)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "## Checks: what looking at values before they are sent costs\n\n")
	fmt.Fprintf(&b, "Each row reads the same bytes twice, in a type whose values are checked and in one that has nothing to check, to a\n"+
		"pyarrow client that touches every byte; %d interleaved rounds, loopback, warm page cache; medians (least–most).\n%s\n\n", s.repeats, versions)
	b.WriteString("| data | checked GB/s | unchecked GB/s | throughput | wanted | server CPU per GB |\n|---|---|---|---|---|---|\n")
	for _, k := range checkedKinds {
		if err := s.checkKind(ctx, &b, k.kind, k.about, k.wanted); err != nil {
			return "", fmt.Errorf("%s: %w", k.kind, err)
		}
	}
	return b.String(), nil
}

// checkKind writes the row of one kind.
func (s settings) checkKind(ctx context.Context, b *strings.Builder, kind, about, wanted string) error {
	size := fmt.Sprint(int64(s.scale * checkedBytes))
	folder, err := s.generate(ctx, "checks-"+kind+"-"+size, func(part string) []string {
		return []string{s.script("checks.py"), kind, part, size}
	})
	if err != nil {
		return err
	}
	gateway, err := launch(ctx, s.headraceServing(folder))
	if err != nil {
		return err
	}
	defer stop(gateway)
	checked, free := *gateway[0], *gateway[0]
	checked.name, free.name = "checked", "free"
	if err := s.race(ctx, []*contestant{&checked, &free}); err != nil {
		return err
	}
	fmt.Fprintf(b, "| %s | %s | %s | %.2f | %s | %.2f |\n", about, spread(checked.runs, reading.throughput), spread(free.runs, reading.throughput),
		ratio(checked.runs, free.runs, reading.throughput), wanted, ratio(checked.runs, free.runs, reading.serverCPUPerGB))
	return nil
}

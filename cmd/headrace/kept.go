package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/headrace/headrace/gateway"
	"github.com/headrace/headrace/gateway/client"
	"github.com/headrace/headrace/storage/cache"
)

// statsOf asks a gateway what the caller's tenant has.
func statsOf(ctx context.Context, c *client.Client) (s gateway.Stats, err error) {
	results, err := c.Action(ctx, "headrace.stats", nil)
	if err != nil {
		return s, err
	}
	if len(results) != 1 {
		return s, errors.New("the gateway has sent no stats")
	}
	err = json.Unmarshal(results[0], &s)
	return s, err
}

// listKept writes what a gateway keeps and how often that served, of the caller's tenant.
func listKept(ctx context.Context, w io.Writer, c *client.Client, asJSON bool) error {
	stats, err := statsOf(ctx, c)
	if err != nil {
		return err
	}
	k := stats.Cache
	if asJSON {
		return json.NewEncoder(w).Encode(k)
	}
	policy := k.Active
	if k.Policy != k.Active {
		policy = fmt.Sprintf("%s (%s)", k.Policy, k.Active)
	}
	share := ""
	if k.Share > 0 {
		share = fmt.Sprintf(", share %g", k.Share)
	}
	fmt.Fprintf(w, "policy %s, %s of %s kept%s, %s, %s in use\n", policy, size(k.Bytes), size(k.Limit), share, counted(k.Blocks, "block"), count(int64(k.Leased)))
	if d := k.Disk; d != nil {
		fmt.Fprintf(w, "disk for %s of all tenants' blocks\n", size(d.Limit))
		if d.Failing {
			fmt.Fprintln(w, "the disk fails: the gateway's log says why")
		}
	}
	fmt.Fprintf(w, "%s, waiting for memory: %s\n", counted(stats.Streams, "stream"), count(int64(stats.Memory.Waiting)))
	if len(k.Served) == 0 {
		fmt.Fprintln(w, "nothing was read yet")
		return nil
	}
	if err := listServed(w, k.Served); err != nil || len(k.Epochs) == 0 {
		return err
	}
	return listEpochs(w, k.Epochs)
}

// listServed writes how often blocks were where.
func listServed(w io.Writer, served []gateway.Hits) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TENANT\tPOLICY\tTIER\tHITS\tRATIO\tLOADED")
	for _, s := range served {
		asked := s.Misses
		for _, n := range s.Hits {
			asked += n
		}
		for _, tier := range []string{cache.Memory, cache.Disk} {
			if n, is := s.Hits[tier]; is {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t\n", s.Tenant, s.Policy, tier, count(n), percent(n, asked))
			}
		}
		fmt.Fprintf(t, "%s\t%s\tstore\t%s\t%s\t%s\n", s.Tenant, s.Policy, count(s.Misses), percent(s.Misses, asked), size(s.Loaded))
	}
	return t.Flush()
}

// listEpochs writes what epochs have fetched, newest first.
func listEpochs(w io.Writer, epochs []gateway.Epoch) error {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "DATASET\tEPOCH\tREAD\tFETCHED\tLEAST POSSIBLE")
	for _, e := range epochs {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\n", e.Dataset, e.Epoch, size(e.Read), size(e.Fetched), size(e.Least))
	}
	return t.Flush()
}

func percent(n, of int64) string { return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(max(of, 1))) }

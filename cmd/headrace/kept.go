package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/headrace/headrace/gateway"
	"github.com/headrace/headrace/gateway/client"
)

// keptOf asks a gateway what it keeps.
func keptOf(ctx context.Context, c *client.Client) (k gateway.Kept, err error) {
	results, err := c.Action(ctx, "headrace.stats", nil)
	if err != nil {
		return k, err
	}
	if len(results) != 1 {
		return k, errors.New("the gateway has sent no stats")
	}
	var stats gateway.Stats
	err = json.Unmarshal(results[0], &stats)
	return stats.Cache, err
}

// listKept writes what a gateway keeps and how often that served, of the caller's tenant.
func listKept(ctx context.Context, w io.Writer, c *client.Client, asJSON bool) error {
	k, err := keptOf(ctx, c)
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(w).Encode(k)
	}
	policy := k.Active
	if k.Policy != k.Active {
		policy = fmt.Sprintf("%s (%s)", k.Policy, k.Active)
	}
	fmt.Fprintf(w, "policy %s, %s of %s kept, %s blocks, %s in use\n", policy, size(k.Bytes), size(k.Limit), count(int64(k.Blocks)), count(int64(k.Leased)))
	if len(k.Served) == 0 {
		fmt.Fprintln(w, "nothing was read yet")
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TENANT\tPOLICY\tTIER\tHITS\tRATIO\tLOADED")
	for _, s := range k.Served {
		asked := s.Misses
		for _, n := range s.Hits {
			asked += n
		}
		for _, tier := range slices.Sorted(maps.Keys(s.Hits)) {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.1f %%\t\n", s.Tenant, s.Policy, tier, count(s.Hits[tier]), 100*float64(s.Hits[tier])/float64(max(asked, 1)))
		}
		fmt.Fprintf(t, "%s\t%s\tstore\t%s\t%.1f %%\t%s\n", s.Tenant, s.Policy, count(s.Misses), 100*float64(s.Misses)/float64(max(asked, 1)), size(s.Loaded))
	}
	return t.Flush()
}

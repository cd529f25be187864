package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/gateway/client"
	"github.com/headrace/headrace/gateway/wire"
)

// listedDataset is a line of ls --json.
type listedDataset struct {
	Name string `json:"name"`
	wire.ListedMeta
}

func lsCommand() *cobra.Command {
	var t target
	var asJSON, kept bool
	cmd := &cobra.Command{
		Use:   "ls [PREFIX | PATTERN]",
		Short: "List the datasets that may be read, and what is wrong with those that cannot be",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			criteria := ""
			if len(args) == 1 {
				criteria = args[0]
			}
			return t.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				if kept {
					return listKept(ctx, cmd.OutOrStdout(), c, asJSON)
				}
				all, err := c.List(ctx, criteria)
				if err != nil {
					return err
				}
				if len(all) == 0 {
					fmt.Fprintln(cmd.ErrOrStderr(), "nothing to read: no data files where it looked, none of that name, or none that the token grants")
				}
				if asJSON {
					return listJSON(cmd.OutOrStdout(), all)
				}
				return list(cmd.OutOrStdout(), all)
			})
		},
	}
	t.flags(cmd)
	cmd.Flags().BoolVar(&kept, "cache", false, "tell what the gateway keeps in memory and how often that serves, instead")
	cmd.MarkFlagsMutuallyExclusive("cache", "config")
	cmd.MarkFlagsMutuallyExclusive("cache", "folder")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	return cmd
}

func listJSON(w io.Writer, all []client.Dataset) error {
	out := json.NewEncoder(w)
	for _, d := range all {
		if err := out.Encode(listedDataset{d.Name, d.Meta}); err != nil {
			return err
		}
	}
	return nil
}

func list(w io.Writer, all []client.Dataset) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "DATASET\tROWS\tSIZE\tSHARDS\tFORMAT\tNOTES")
	for _, d := range all {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\n", d.Name, count(d.Meta.Rows), size(d.Meta.Bytes), d.Meta.Shards, d.Meta.Format, notes(d.Meta))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, d := range all {
		if d.Meta.Error != "" {
			fmt.Fprintf(w, "\n%s: %s\n", d.Name, strings.TrimPrefix(d.Meta.Error, fmt.Sprintf("dataset %q: ", d.Name)))
		}
		for _, c := range d.Meta.Corrupt {
			if told(d.Meta.Error, c) {
				continue
			}
			fmt.Fprintf(w, "\n%s: shard %s: %s\n", d.Name, c.Shard, c.Error)
		}
		printDrift(w, d.Name, d.Meta.Drift)
	}
	return nil
}

// told tells whether a dataset cannot be served because of a shard: then that was said.
func told(why string, c wire.Corrupt) bool {
	return strings.Contains(why, strconv.Quote(c.Shard)) && strings.Contains(why, c.Error)
}

// printDrift tells which columns of a dataset are not the same in all shards.
func printDrift(w io.Writer, dataset string, columns []wire.Drift) {
	for _, c := range columns {
		fmt.Fprintf(w, "\n%s: column %q differs: %s\n", dataset, c.Column, types(c))
	}
}

// notes are what is worth knowing of a dataset in one line.
func notes(m wire.ListedMeta) string {
	switch {
	case m.Error != "":
		return "cannot be served, see below"
	case len(m.Corrupt) > 0:
		return fmt.Sprintf("shards that cannot be read: %d, see below", len(m.Corrupt))
	case len(m.Drift) > 0:
		return fmt.Sprintf("columns that differ between files: %d, see below", len(m.Drift))
	case m.Skipped > 0:
		return counted(m.Skipped, "other file") + " left out"
	default:
		return ""
	}
}

// types are those that a column has, with the files it has them in.
func types(d wire.Drift) string {
	parts := make([]string, len(d.Types))
	for i, t := range d.Types {
		in := t.First
		if t.Shards > 1 {
			in = fmt.Sprintf("%s shards, first %s", count(t.Shards), t.First)
		}
		parts[i] = fmt.Sprintf("%s (%s)", cmp.Or(t.Type, "missing"), in)
	}
	return strings.Join(parts, ", ")
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/gateway/wire"
	"github.com/headrace/headrace/storage"
	"github.com/headrace/headrace/storage/budget"
)

func tagCommand() *cobra.Command {
	var t target
	var id string
	var remove bool
	cmd := &cobra.Command{
		Use:   "tag DATASET [NAME]",
		Short: "Give a snapshot a name, list the names, or take one away",
		Long: `Give a snapshot a name, which requests may use as their snapshot and which keeps it from being deleted.
Without a NAME, the names that there are. Names are kept with the snapshots, where the config says.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 && !wire.IsTag(args[1]) {
				return usagef("%q is no name for a snapshot: up to 40 lower-case letters, digits, dots, dashes and underscores", args[1])
			}
			if len(args) == 1 && (remove || id != "") {
				return usagef("name the tag")
			}
			return t.withStore(cmd.Context(), func(ctx context.Context, s *storage.Store) error {
				switch {
				case len(args) == 1:
					return listTags(ctx, cmd.OutOrStdout(), s, args[0])
				case remove:
					return untag(ctx, s, args[0], args[1])
				default:
					return s.Tag(ctx, args[0], args[1], id)
				}
			})
		},
	}
	cmd.Flags().StringVar(&t.config, "config", "", "the config that names the dataset and where snapshots are kept")
	cmd.Flags().StringVar(&t.folder, "folder", "", "the folder or bucket that is served")
	cmd.MarkFlagsMutuallyExclusive("config", "folder")
	cmd.MarkFlagsOneRequired("config", "folder")
	cmd.Flags().StringVar(&id, "snapshot", "", "the snapshot's identity or another tag of it; without, the newest")
	cmd.Flags().BoolVar(&remove, "delete", false, "take the name away")
	return cmd
}

// withStore calls f with the store of the command's own process.
func (t *target) withStore(ctx context.Context, f func(context.Context, *storage.Store) error) error {
	cfg, all, err := t.local()
	if err != nil {
		return err
	}
	_, limit, err := shares(cfg.Memory)
	if err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	s, err := storage.New(ctx, storage.Options{
		Mounts: all, Ledger: budget.New(budget.Options{Limit: limit}), Refresh: cfg.Refresh, Buckets: bucketOptions(), Archive: archiveOf(cfg.Snapshots, newLog(os.Stderr, "error")),
	})
	if err != nil {
		return err
	}
	return errors.Join(f(ctx, s), s.Close())
}

// untag takes a name away that is there: a mistyped one must not look as if it had been.
func untag(ctx context.Context, s *storage.Store, dataset, name string) error {
	tags, err := s.Tags(ctx, dataset)
	if err != nil {
		return err
	}
	if _, ok := tags[name]; !ok {
		return fmt.Errorf("dataset %s has no tag %q: headrace tag %s lists them", dataset, name, dataset)
	}
	return s.Untag(ctx, dataset, name)
}

func listTags(ctx context.Context, out io.Writer, s *storage.Store, dataset string) error {
	tags, err := s.Tags(ctx, dataset)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		fmt.Fprintf(w, "%s\t%s\n", name, tags[name])
	}
	return w.Flush()
}

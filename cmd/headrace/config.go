package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/configs"
	"github.com/headrace/headrace/storage/bucket"
)

func configCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Work with config files"}
	var explain bool
	check := &cobra.Command{
		Use:   "check [FILE | --explain]",
		Short: "Check a config file and the files that it names, or explain every key",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if explain {
				return configs.Explain(cmd.OutOrStdout())
			}
			if len(args) == 0 {
				return usagef("name a FILE to check, or --explain")
			}
			cfg, err := configs.Load(configs.Source{File: args[0], Environ: os.Environ()})
			if err != nil {
				return usageError{err}
			}
			if _, err := mounts(cfg); err != nil {
				return usageError{errors.Join(err, openFiles(cfg))}
			}
			if err := openFiles(cfg); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is fine: %s, listening on %s\n", args[0], counted(len(cfg.Datasets), "dataset"), cfg.Listen)
			return nil
		},
	}
	check.Flags().BoolVar(&explain, "explain", false, "print every key with its type, default and meaning")
	cmd.AddCommand(check)
	return cmd
}

// openFiles opens what a config names on this machine, as serve will: keys, the certificate, the buckets of datasets.
func openFiles(cfg *configs.Config) error {
	_, keys := verifierOf(cfg.Auth)(slog.New(slog.DiscardHandler))
	problems := []error{keys}
	if cfg.TLS.Cert != "" {
		_, err := serverCredentials(cfg.TLS.Cert, cfg.TLS.Key, func(error) {})
		problems = append(problems, err)
	}
	if info, err := os.Stat(cfg.Snapshots.Dir); err == nil && !info.IsDir() {
		problems = append(problems, fmt.Errorf("cache.disk.dir: %s is not a directory", cfg.Snapshots.Dir))
	}
	clients := bucket.NewClients(bucketOptions())
	defer clients.Close()
	for _, d := range cfg.Datasets {
		b, err := clients.Open(d.URL)
		if err != nil {
			problems = append(problems, fmt.Errorf("dataset %s, %s: %w", d.Name, d.URL, err))
			continue
		}
		problems = append(problems, b.Close())
	}
	return errors.Join(problems...)
}

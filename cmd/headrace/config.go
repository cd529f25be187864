package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/configs"
)

func configCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Work with config files"}
	var explain bool
	check := &cobra.Command{
		Use:   "check [FILE | --explain]",
		Short: "Check a config file, or explain every key",
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
			fmt.Fprintf(cmd.OutOrStdout(), "%s is fine: %d datasets, listening on %s\n", args[0], len(cfg.Datasets), cfg.Listen)
			return nil
		},
	}
	check.Flags().BoolVar(&explain, "explain", false, "print every key with its type, default and meaning")
	cmd.AddCommand(check)
	return cmd
}

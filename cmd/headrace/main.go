// Command headrace serves data sets to training jobs over Arrow Flight. Its subcommands turn a config into values and
// wire them; nothing else happens here.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/storage/parquetfile"
)

//go:generate env WRITE_REFERENCE=1 go test -count=1 -run TestCommandsAreDocumented .

func main() {
	// The first signal ends the work in good order; after that the default is back, so that a second one ends it at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "headrace:", err)
		os.Exit(exitCode(err))
	}
}

func run(ctx context.Context) error {
	if err := parquetfile.BoundDecompression(); err != nil {
		return err
	}
	return root().ExecuteContext(ctx)
}

// Exit codes: 1 the work failed, 2 the command line or the config is wrong.
func exitCode(err error) int {
	if errors.As(err, new(usageError)) {
		return 2
	}
	return 1
}

// usageError is a mistake in how the command was called.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// root is the tree of subcommands.
func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "headrace",
		Short:         "A streaming data gateway between training jobs and the places where data sets live",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return misused(c, err)
	})
	cmd.AddCommand(serveCommand(), demoCommand(), lsCommand(), peekCommand(), planCommand(), warmCommand(), verifyCommand(), tagCommand(), tokenCommand(), configCommand(), versionCommand())
	for _, c := range cmd.Commands() {
		checkArgs(c)
	}
	return cmd
}

func misused(c *cobra.Command, err error) error {
	return usagef("%w\nsee '%s --help'", err, c.CommandPath())
}

// checkArgs makes a wrong number of arguments to a command, or to one below it, a mistake of usage.
func checkArgs(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return misused(c, err)
			}
			return nil
		}
	}
	for _, below := range c.Commands() {
		checkArgs(below)
	}
}

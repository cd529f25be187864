package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/gateway/client"
	"github.com/headrace/headrace/gateway/wire"
)

func warmCommand() *cobra.Command {
	var t target
	var asJSON bool
	var request string
	cmd := &cobra.Command{
		Use:   "warm DATASET [request fields as flags] | warm --request JSON",
		Short: "Load what a request will need into the gateway's memory, before the job begins",
		Long: "Load what a request will need into the gateway's memory, before the job begins: the blocks of its first epoch in the order in\n" +
			"which they are read, as far as memory goes that nobody needs.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := requestOf(cmd.Flags(), args, request)
			if err != nil {
				return err
			}
			bar := watched(cmd.ErrOrStderr())
			var last wire.WarmMeta
			err = t.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				last, err = c.Warm(ctx, req, func(w wire.WarmMeta) { drawWarm(bar, w) })
				return err
			})
			if bar != nil {
				fmt.Fprint(bar, "\r\x1b[K")
			}
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(last)
			}
			tellWarm(cmd.OutOrStdout(), last)
			return nil
		},
	}
	t.remote(cmd)
	requestFlags(cmd.Flags(), &request)
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

// drawWarm shows how far the warming is.
func drawWarm(bar io.Writer, w wire.WarmMeta) {
	const width = 30
	if bar == nil {
		return
	}
	done := int(width * w.Seen / max(w.Blocks, 1))
	fmt.Fprintf(bar, "\r\x1b[K[%s%s] %s of %s, %s loaded", strings.Repeat("=", done), strings.Repeat(" ", width-done),
		count(w.Seen), counted(w.Blocks, "block"), size(w.Loaded))
}

// tellWarm says what is there now.
func tellWarm(out io.Writer, w wire.WarmMeta) {
	fmt.Fprintf(out, "in memory: %s of %s, %s of them loaded now\n", count(w.Kept), counted(w.Blocks, "block"), size(w.Loaded))
	if w.Mapped > 0 {
		fmt.Fprintf(out, "in mapped files, which the system's page cache keeps: %s\n", counted(w.Mapped, "block"))
	}
	if w.Full {
		fmt.Fprintln(out, "all memory that nobody needs is in use: more needs a larger memory limit")
	}
}

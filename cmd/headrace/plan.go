package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headrace/headrace/configs"
	"github.com/headrace/headrace/gateway/client"
	"github.com/headrace/headrace/gateway/wire"
)

// explained is all that plan shows of a request.
type explained struct {
	Dataset string `json:"dataset"`
	wire.InfoMeta
	Ranks    []wire.EndpointMeta `json:"ranks"`
	Forecast wire.ForecastMeta   `json:"forecast"`
}

func planCommand() *cobra.Command {
	var t target
	var asJSON bool
	var request, memory, policy, disk string
	var receipts []string
	cmd := &cobra.Command{
		Use:   "plan DATASET [request fields as flags] | plan --request JSON",
		Short: "Show what a request would deliver, and what it takes, before anything is read",
		Long: "Show what a request would deliver, and what it takes, before anything is read: rows and steps of each rank, rows that\n" +
			"the tail drops or repeats, the window and the memory for it, how well batches are mixed, and what later epochs will find in\n" +
			"memory and on disk: in those of the gateway that is asked, or in as much as --memory and --disk say, if no other job wants it.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := requestOf(cmd.Flags(), args, request)
			if err != nil {
				return err
			}
			ask, err := forecastOf(req, memory, policy, disk)
			if err != nil {
				return err
			}
			if memory != "" {
				t.memory = memoryFor(ask.Limit) // of a gateway in process: what would not fit is refused there, too
			}
			return t.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				if len(receipts) > 0 {
					return checkReceipts(ctx, c, cmd.OutOrStdout(), req, receipts)
				}
				info, err := c.Plan(ctx, req)
				if err != nil {
					return err
				}
				e := explained{Dataset: req.Dataset, InfoMeta: info.Meta}
				for _, endpoint := range info.Endpoints {
					e.Ranks = append(e.Ranks, endpoint.Meta)
				}
				if ask.Disk == nil && t.disk > 0 {
					ask.Disk = &t.disk
				}
				if e.Forecast, err = c.Forecast(ctx, ask); err != nil {
					return err
				}
				if asJSON {
					return json.NewEncoder(cmd.OutOrStdout()).Encode(e)
				}
				return e.print(cmd.OutOrStdout(), req)
			})
		},
	}
	t.flags(cmd)
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "one JSON object")
	f.StringVar(&memory, "memory", "", "foresee what a gateway with so much memory keeps, such as 8GiB; default: the one that is asked")
	f.StringVar(&policy, "policy", "", "foresee what is kept by this policy: auto, pinned, adaptive, lru or lfu; default: that of the gateway")
	f.StringVar(&disk, "disk", "", "foresee what a cache of so much on disk has, such as 500GiB, or 0; default: that of the gateway, or of --config")
	f.StringSliceVar(&receipts, "receipts", nil, "check these FILES instead, a JSON receipt a line, of all ranks and workers: did each row come once?")
	requestFlags(f, &request)
	return cmd
}

// forecastOf asks what would come of a request with so much memory and disk.
func forecastOf(req *wire.Request, memory, policy, disk string) (*wire.ForecastRequest, error) {
	f := &wire.ForecastRequest{Request: req, Policy: policy}
	if disk != "" {
		bytes, err := configs.ParseSize(disk)
		if err != nil {
			return nil, usagef("--disk: %v", err)
		}
		f.Disk = &bytes
	}
	if memory == "" {
		return f, nil
	}
	var err error
	_, f.Limit, err = memoryOf(memory)
	return f, err
}

// requestFlags are the flags that make a request.
func requestFlags(f *pflag.FlagSet, request *string) {
	f.StringVar(request, "request", "", "the whole request as JSON, or @FILE that holds it, instead of flags")
	for _, field := range requestFields {
		if f.String(field.flag(), "", field.about); field.bare {
			f.Lookup(field.flag()).NoOptDefVal = "true"
		}
	}
}

// requestField is a field of a request as a flag.
type requestField struct {
	name, about string
	text        bool // its value is a string on the wire
	bare        bool // the flag alone means true
	comma       bool // several strings, separated by commas
}

func (f requestField) flag() string { return strings.ReplaceAll(f.name, "_", "-") }

// requestFields are those that say what is delivered; how it is delivered changes no plan.
var requestFields = []requestField{
	{name: "snapshot", about: "identity (64 hex digits) or tag; default the newest", text: true},
	{name: "columns", about: "names, separated by commas", comma: true},
	{name: "shards", about: "FROM:TO, or keys separated by commas", comma: true},
	{name: "split", about: "SEED,FROM,TO: a part of every block's rows, of 10,000"},
	{name: "shuffle", about: "none, window or full", text: true},
	{name: "window_blocks", about: "blocks of a window"},
	{name: "groups", about: "spans of the order, for the nodes of a job"},
	{name: "seed", about: "of the shuffle"},
	{name: "epoch", about: "the first epoch"},
	{name: "num_epochs", about: "how many epochs; -1: without end"},
	{name: "batch_size", about: "rows of a rank's batch"},
	{name: "global_batch_size", about: "rows that all ranks take together in a step"},
	{name: "world_size", about: "number of ranks"},
	{name: "rank", about: "this one only"},
	{name: "num_workers", about: "of each rank"},
	{name: "worker_id", about: "this one only"},
	{name: "tail", about: "drop, pad or keep: the rows after the last full batch", text: true},
	{name: "start", about: "a cursor: steps are counted from there", text: true},
	{name: "after", about: "a cursor: go on behind it", text: true},
	{name: "row_id", about: "with the column __row_id", bare: true},
}

// requestOf makes a request of a command line. Values go through the wire's own parser, which says what is wrong with them.
func requestOf(flags *pflag.FlagSet, args []string, text string) (*wire.Request, error) {
	var set []string
	fields := map[string]json.RawMessage{}
	for _, f := range requestFields {
		if flags.Changed(f.flag()) {
			set = append(set, "--"+f.flag())
			value := flags.Lookup(f.flag()).Value.String()
			if wants := f.wants(value); wants != "" {
				return nil, usagef("--%s: %s, not %q", f.flag(), wants, value)
			}
			fields[f.name] = f.value(value)
		}
	}
	switch {
	case text != "" && (len(args) > 0 || len(set) > 0):
		return nil, usagef("--request is the whole request: leave out %s", strings.Join(append(args, set...), " "))
	case text == "" && len(args) == 0:
		return nil, usagef("name a DATASET, or give --request")
	case text != "":
		return requestText(text)
	}
	fields["dataset"] = quoted(args[0])
	var b bytes.Buffer
	separator := byte('{')
	for name, value := range fields {
		b.WriteByte(separator)
		fmt.Fprintf(&b, "%q:%s", name, value)
		separator = ','
	}
	b.WriteByte('}')
	req, err := parsed(b.Bytes())
	if wrong := (*wire.FieldError)(nil); errors.As(err, &wrong) {
		return nil, usagef("%s: %s", calledFlag(wrong.Field), wrong.What)
	}
	return req, err
}

// calledFlag is what sets a field of a request on the command line.
func calledFlag(field string) string {
	if field == "dataset" {
		return "DATASET"
	}
	return "--" + requestField{name: field}.flag()
}

// requestText is a request as it is given, or in a file.
func requestText(text string) (*wire.Request, error) {
	file, ok := strings.CutPrefix(text, "@")
	if !ok {
		return parsed([]byte(text))
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--request: %w", err)
	}
	return parsed(b)
}

func parsed(b []byte) (*wire.Request, error) {
	r, err := wire.Parse(b)
	if err != nil {
		return nil, usageError{err}
	}
	return r, nil
}

var (
	whole = regexp.MustCompile(`^-?[0-9]+$`)
	split = regexp.MustCompile(`^-?[0-9]+,-?[0-9]+,-?[0-9]+$`)
)

// wants is what a value would have to be that cannot be made one of the wire's, or nothing.
func (f requestField) wants(s string) string {
	switch {
	case f.name == "split" && !split.MatchString(s):
		return "must be SEED,FROM,TO, such as 1,0,9000 for nine tenths of the rows"
	case f.bare && s != "true" && s != "false":
		return "must be true or false"
	case f.name != "split" && !f.bare && !f.text && !f.comma && !whole.MatchString(s):
		return "must be an integer"
	}
	return ""
}

// value is a flag's value as the wire has it.
func (f requestField) value(s string) json.RawMessage {
	switch part := strings.Split(s, ","); {
	case f.name == "split":
		return fmt.Appendf(nil, `{"seed":%s,"from":%s,"to":%s}`, part[0], part[1], part[2])
	case f.name == "shards" && strings.Contains(s, ":") && len(part) == 1, f.text:
		return quoted(s)
	case f.comma:
		all, _ := json.Marshal(part) // strings always can be
		return all
	}
	return json.RawMessage(s)
}

func quoted(s string) json.RawMessage {
	b, _ := json.Marshal(s) // strings always can be
	return b
}

func (e explained) print(w io.Writer, req *wire.Request) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(t, name+"\t"+format+"\n", args...) }
	line("dataset", "%s", e.Dataset)
	line("snapshot", "%s", e.Snapshot)
	line("plan", "%s", e.Plan)
	line("rows", "%s", endless(e.Rows))
	line("steps", "%s", endless(e.Steps))
	if e.Rows >= 0 {
		line("dropped", "%s", count(e.Dropped))
		line("padded", "%s", count(e.Padded))
	}
	line("blocks", "%s, %s an epoch", count(e.Blocks), size(e.Bytes))
	e.printOrder(line, req)
	e.printForecast(line)
	line("schema", "%s", e.Schema)
	if err := t.Flush(); err != nil || req.WorldSize == 1 {
		return err
	}
	fmt.Fprintln(w)
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "RANK\tROWS\tSTEPS")
	for from := 0; from < len(e.Ranks); {
		to := from + 1
		for to < len(e.Ranks) && e.Ranks[to].Rows == e.Ranks[from].Rows && e.Ranks[to].Steps == e.Ranks[from].Steps {
			to++
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", ranks(e.Ranks[from:to]), endless(e.Ranks[from].Rows), endless(e.Ranks[from].Steps))
		from = to
	}
	return t.Flush()
}

// printOrder shows what the order takes and how well it mixes.
func (e explained) printOrder(line func(name, format string, args ...any), req *wire.Request) {
	if e.DesignEffect == nil {
		line("shuffle", "none")
		line("memory", "%s for a block", size(e.Memory))
		return
	}
	line("shuffle", "%s, seed %d", req.Shuffle, req.Seed)
	switch {
	case e.WindowBlocks == 0:
		line("memory", "%s: all blocks", size(e.Memory))
	case req.Groups > 1:
		line("window", "%s, in each of %s", counted(e.WindowBlocks, "block"), counted(req.Groups, "group"))
	case e.WindowBlocks >= e.Blocks:
		line("window", "%s: as many as there are or more, so one window holds the epoch", counted(e.WindowBlocks, "block"))
	default:
		line("window", "%s", counted(e.WindowBlocks, "block"))
	}
	if e.WindowBlocks > 0 {
		line("memory", "%s for a window, %s with the next one", size(e.Memory), size(2*e.Memory))
	}
	mixed := "1 is as good as drawn at random"
	if *e.DesignEffect > 2 {
		mixed += fmt.Sprintf("; window_blocks %s brings it to 2", count(e.GoodWindow))
	}
	line("design effect", "%.2f (%s)", *e.DesignEffect, mixed)
}

// printForecast shows what epochs after the first will find in memory.
func (e explained) printForecast(line func(name, format string, args ...any)) {
	f := e.Forecast
	if f.Mapped > 0 {
		line("mapped", "%s of local Arrow files, served where they lie: no epoch fetches them, and the page cache keeps them", size(f.Mapped))
	}
	if f.Hot == 0 && f.Mapped > 0 {
		return
	}
	all := memoryFor(f.Enough)
	times := ""
	if f.Hot > 0 && all < 10*f.Hot { // of little data it tells nothing
		times = fmt.Sprintf(", %.1f times that,", float64(all)/float64(f.Hot))
	}
	line("hot data", "%s; with %s of memory%s all of it stays", size(f.Hot), size(all), times)
	if f.Reserved > f.Limit {
		line("streams", "need %s of the %s that there is: they wait for each other", size(f.Reserved), size(f.Limit))
	}
	line("kept", "%s of %s for streams, by policy %s", size(min(f.Room, f.Hot)), size(f.Limit), f.Policy)
	hits := fmt.Sprintf("%.1f %%", 100*f.Hits)
	if f.Disk > 0 {
		line("on disk", "%s of %s", size(min(f.Disk, f.Hot)), size(f.Disk))
		hits += fmt.Sprintf(" in memory, %.1f %% on disk,", 100*f.DiskHits)
	}
	line("hits", "%s in later epochs, of which each fetches %s; the first one fetches %s", hits, size(f.Fetched), size(f.Hot))
}

// ranks names a run of ranks.
func ranks(run []wire.EndpointMeta) string {
	first, last := run[0].Rank, run[len(run)-1].Rank
	switch {
	case first == nil || last == nil:
		return "?"
	case *first == *last:
		return fmt.Sprint(*first)
	default:
		return fmt.Sprintf("%d to %d", *first, *last)
	}
}

// endless writes a count that may have no end.
func endless(n int64) string {
	if n < 0 {
		return "without end"
	}
	return count(n)
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/spf13/cobra"

	"github.com/headrace/headrace/gateway/client"
	"github.com/headrace/headrace/gateway/wire"
)

// peeked is all that peek shows of a dataset.
type peeked struct {
	Dataset  string              `json:"dataset"`
	Snapshot string              `json:"snapshot"`
	Rows     int64               `json:"rows"`
	Bytes    int64               `json:"bytes"`
	Schema   []peekedField       `json:"schema"`
	Shards   []wire.EndpointMeta `json:"shards"`
	First    []json.RawMessage   `json:"first_rows"`
	names    []string            // of the columns shown
	cells    [][]string          // of the first rows
}

type peekedField struct {
	Name     string            `json:"name"`
	Type     string            `json:"type"`
	Nullable bool              `json:"nullable"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

func peekCommand() *cobra.Command {
	var t target
	var asJSON bool
	var rows int64
	cmd := &cobra.Command{
		Use:   "peek DATASET",
		Short: "Show a dataset's schema, sizes, shards and first rows",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("name a DATASET: one")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if rows < 0 || rows > 1000 {
				return usagef("--rows: 0 to 1000")
			}
			return t.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				p, err := peek(ctx, c, args[0], rows)
				if err != nil {
					return err
				}
				if asJSON {
					out := json.NewEncoder(cmd.OutOrStdout())
					out.SetIndent("", "  ")
					return out.Encode(p)
				}
				return p.print(cmd.OutOrStdout())
			})
		},
	}
	t.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	cmd.Flags().Int64Var(&rows, "rows", 5, "how many rows to show")
	return cmd
}

func peek(ctx context.Context, c *client.Client, name string, rows int64) (*peeked, error) {
	info, err := c.Dataset(ctx, name)
	if err != nil {
		return nil, err
	}
	p := &peeked{Dataset: name, Snapshot: info.Meta.Snapshot, Rows: info.Rows, Bytes: info.Bytes, First: []json.RawMessage{}}
	for _, f := range info.Schema.Fields() {
		p.Schema = append(p.Schema, peekedField{f.Name, f.Type.String(), f.Nullable, f.Metadata.ToMap()})
		p.names = append(p.names, f.Name)
	}
	for _, e := range info.Endpoints {
		p.Shards = append(p.Shards, e.Meta)
	}
	if rows == 0 || info.Rows == 0 {
		return p, nil
	}
	return p, p.read(ctx, c, rows)
}

// read fetches one batch of the first rows.
func (p *peeked) read(ctx context.Context, c *client.Client, rows int64) error {
	req := wire.New(p.Dataset)
	req.Snapshot, req.BatchSize = p.Snapshot, rows
	stream, err := c.Stream(ctx, req.Canonical())
	if err != nil {
		return err
	}
	defer stream.Close()
	batch, _, err := stream.Next()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	return p.take(batch)
}

// take keeps the cells of a batch.
func (p *peeked) take(batch arrow.RecordBatch) error {
	for row := range int(batch.NumRows()) {
		object := make(map[string]any, batch.NumCols())
		cells := make([]string, 0, batch.NumCols())
		for i, column := range batch.Columns() {
			object[batch.ColumnName(i)] = column.GetOneForMarshal(row)
			cells = append(cells, shorten(column.ValueStr(row)))
		}
		text, err := json.Marshal(object)
		if err != nil {
			return fmt.Errorf("row %d: %w", row, err)
		}
		p.First, p.cells = append(p.First, text), append(p.cells, cells)
	}
	return nil
}

// maxCell is how many characters of a value the table shows.
const maxCell = 40

func shorten(s string) string {
	if utf8.RuneCountInString(s) <= maxCell {
		return s
	}
	return string([]rune(s)[:maxCell-1]) + "…"
}

// maxShards is how many shards the table shows.
const maxShards = 20

func (p *peeked) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s: %s, %s as stored\nsnapshot %s\n", p.Dataset, counted(p.Rows, "row"), size(p.Bytes), p.Snapshot)
	fmt.Fprint(t, "\nCOLUMN\tTYPE\tNULLABLE\n")
	for _, f := range p.Schema {
		nulls := "no"
		if f.Nullable {
			nulls = "yes"
		}
		kind := f.Type
		if extension := f.Metadata["ARROW:extension:name"]; extension != "" {
			kind += " (" + extension + ")"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", f.Name, kind, nulls)
	}
	fmt.Fprint(t, "\nSHARD\tROWS\tSIZE\tSEGMENTS\tBLOCKS\tFORMAT\n")
	for _, s := range p.Shards[:min(len(p.Shards), maxShards)] {
		fmt.Fprintf(t, "%s%s\t%s\t%s\t%d\t%d\t%s\n", s.Shard, s.Shards, count(s.Rows), size(s.Bytes), s.Segments, s.Steps, s.Format)
	}
	if rest := len(p.Shards) - maxShards; rest > 0 {
		fmt.Fprintf(t, "… and %d more\n", rest)
	}
	p.printRows(t)
	return t.Flush()
}

func (p *peeked) printRows(w io.Writer) {
	if len(p.cells) == 0 {
		return
	}
	fmt.Fprintln(w)
	for i, name := range p.names {
		fmt.Fprint(w, separator(i), name)
	}
	fmt.Fprintln(w)
	for _, row := range p.cells {
		for i, cell := range row {
			fmt.Fprint(w, separator(i), cell)
		}
		fmt.Fprintln(w)
	}
}

func separator(i int) string {
	if i == 0 {
		return ""
	}
	return "\t"
}

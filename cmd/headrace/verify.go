package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headrace/headrace/gateway/client"
	"github.com/headrace/headrace/gateway/wire"
	"github.com/headrace/headrace/storage/budget"
)

// verified is what a walk over all bytes of a dataset found.
type verified struct {
	Dataset  string       `json:"dataset"`
	Snapshot string       `json:"snapshot"`
	Shards   int64        `json:"shards"`
	Rows     int64        `json:"rows"` // that were read
	Seconds  float64      `json:"seconds"`
	Bad      []badShard   `json:"bad"`
	TooLarge []badShard   `json:"too_large,omitempty"` // shards of which nothing is known: they take more memory than there is
	Unread   int64        `json:"unread"`              // shards of which nothing is known: nobody could send them just now
	Why      string       `json:"why,omitempty"`       // that is so, of the last one
	Drift    []wire.Drift `json:"drift,omitempty"`     // columns that are not the same in all shards
	total    int64        // rows that there should be
	bar      io.Writer    // nil: nobody watches
	began    time.Time

	alone sync.RWMutex // held for writing by who reads a shard while no other is
	mu    sync.Mutex   // guards Rows and what is below while shards are read
	done  int64        // shards
	vain  int          // shards in a row that could not be read even alone
	ended error        // why no more are asked for
	drawn time.Time
}

// badShard is a shard that cannot be read to its end.
type badShard struct {
	Shard string `json:"shard"` // its key; empty if nobody said which it is
	Error string `json:"error"`
}

func verifyCommand() *cobra.Command {
	var t target
	var asJSON bool
	var memory string
	cmd := &cobra.Command{
		Use:   "verify DATASET",
		Short: "Read every byte of a dataset, and print which files to leave out",
		Long: `Read every byte of a dataset: all rows of all shards are decoded, checksums compared where files have some.
Shards that cannot be read to their end are printed with the reason, and as the key exclude of a config.
Exits with 1 if there are any, if some take more memory than there is, or if nobody could send some just now. Columns that are not the same in all shards are printed, too.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("name a DATASET: one")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			v := &verified{Dataset: args[0], Bad: []badShard{}, bar: watched(cmd.ErrOrStderr())}
			if err := t.give(memory); err != nil {
				return err
			}
			err := t.with(cmd.Context(), func(ctx context.Context, c *client.Client) error { return v.walk(ctx, c) })
			if err != nil {
				printDrift(cmd.ErrOrStderr(), v.Dataset, v.Drift)
				return err
			}
			return v.tell(cmd.OutOrStdout(), asJSON)
		},
	}
	t.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	cmd.Flags().StringVar(&memory, "memory", "", "with --config or --folder, read with so much memory, such as 8GiB")
	return cmd
}

// verifyAtOnce is how many shards are read at a time: from a store that is far away it is the round trips that count.
const verifyAtOnce = 4

// walk reads shard by shard, some at a time: what is wrong with one must not hide the others.
func (v *verified) walk(ctx context.Context, c *client.Client) error {
	all, err := c.List(ctx, v.Dataset)
	if err != nil {
		return err
	}
	var meta *wire.ListedMeta
	for i := range all {
		if all[i].Name == v.Dataset {
			meta = &all[i].Meta
		}
	}
	if meta == nil {
		return fmt.Errorf("there is no dataset %q, or it may not be read", v.Dataset)
	}
	v.Drift = meta.Drift
	if meta.Error != "" {
		return fmt.Errorf("cannot be served: %s", meta.Error) // which begins with the dataset's name
	}
	v.Snapshot, v.Shards, v.total, v.began = meta.Snapshot, meta.Shards, meta.Rows, time.Now()
	if err := v.shards(ctx, c); err != nil {
		return err
	}
	v.Seconds = time.Since(v.began).Seconds()
	if v.bar != nil {
		fmt.Fprint(v.bar, "\r\x1b[K")
	}
	return nil
}

// shards reads all of them and lists the bad ones in their order.
func (v *verified) shards(ctx context.Context, c *client.Client) error {
	ends := make([]error, v.Shards)
	var group errgroup.Group
	group.SetLimit(verifyAtOnce)
	for i := range v.Shards {
		group.Go(func() error {
			ends[i] = v.shard(ctx, c, i)
			return ctx.Err()
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, err := range ends {
		switch {
		case err == nil:
		case tooLarge(err):
			v.TooLarge = append(v.TooLarge, badShard{named(err), answered(err)})
		case passing(err):
			v.Unread, v.Why = v.Unread+1, answered(err)
		default:
			v.Bad = append(v.Bad, badShard{named(err), answered(err)})
		}
	}
	return nil
}

// passing tells whether an error says nothing of a shard, but that the gateway, the store or the caller's token are of no
// use just now.
func passing(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.Unauthenticated, codes.DeadlineExceeded:
		return true
	}
	return false
}

// enough is how many shards in a row nobody can send before no more are asked for: each may take a store's whole patience.
const enough = 3

// shard reads all rows of shard number i. If that fails in passing, it is read again while no other is: there may have been
// too little memory for all, or too many streams. Rows of one that fails in passing do not count.
func (v *verified) shard(ctx context.Context, c *client.Client, i int64) error {
	v.alone.RLock()
	rows, err := v.unlessEnded(ctx, c, i)
	v.alone.RUnlock()
	if passing(err) && ctx.Err() == nil {
		v.passed(-rows, 0)
		v.alone.Lock()
		defer v.alone.Unlock()
		if rows, err = v.unlessEnded(ctx, c, i); passing(err) {
			v.passed(-rows, 0)
			if !tooLarge(err) {
				v.failed(err)
			}
			return err
		}
	}
	v.passed(0, 1)
	return err
}

// tooLarge tells whether an error says nothing of a shard, but that it takes more memory than the gateway has, even while no
// other is read.
func tooLarge(err error) bool {
	for code, why := range map[codes.Code]error{codes.InvalidArgument: budget.ErrTooLarge, codes.Unavailable: budget.ErrExhausted} {
		if status.Code(err) == code && strings.Contains(answered(err), why.Error()) {
			return true
		}
	}
	return false
}

// unlessEnded reads a shard, unless enough could not be read for a reason that is likely to be this one's, too.
func (v *verified) unlessEnded(ctx context.Context, c *client.Client, i int64) (int64, error) {
	v.mu.Lock()
	err := v.ended
	v.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return v.read(ctx, c, i)
}

// failed notes that nobody can send a shard.
func (v *verified) failed(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.vain++; v.vain >= enough {
		v.ended = err
	}
}

// read reads all rows of a shard, and says how many those were.
func (v *verified) read(ctx context.Context, c *client.Client, i int64) (rows int64, err error) {
	req := wire.New(v.Dataset)
	req.Snapshot, req.Shards = v.Snapshot, &wire.Shards{From: i, To: i + 1}
	stream, err := c.Stream(ctx, req.Canonical())
	if err != nil {
		return 0, err
	}
	defer stream.Close()
	for {
		batch, _, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return rows, err
		}
		rows += batch.NumRows()
		v.passed(batch.NumRows(), 0)
	}
}

// passed counts rows and shards that were read, and shows how far the walk is, a few times a second.
func (v *verified) passed(rows, shards int64) {
	const width, often = 30, 100 * time.Millisecond
	v.mu.Lock()
	defer v.mu.Unlock()
	v.Rows, v.done = v.Rows+rows, v.done+shards
	if shards > 0 {
		v.vain = 0
	}
	if v.bar == nil || time.Since(v.drawn) < often {
		return
	}
	v.drawn = time.Now()
	done := min(int(width*v.Rows/max(v.total, 1)), width)
	fmt.Fprintf(v.bar, "\r\x1b[K[%s%s] %s of %s, %s of %s, %s rows/s", strings.Repeat("=", done), strings.Repeat(" ", width-done),
		count(v.Rows), counted(v.total, "row"), count(v.done), counted(v.Shards, "shard"), count(int64(float64(v.Rows)/time.Since(v.began).Seconds())))
}

// errBad is how a walk ends that found something.
var errBad = errors.New("not all of it can be read")

// errMemory is how a walk ends that could not find out for want of memory.
var errMemory = errors.New("not all of it can be read with this memory: give more by --memory with --config or --folder, or by the key memory in the gateway's config")

// errUnread is how a walk ends that could not find out.
var errUnread = errors.New("not all of it could be asked for, so nobody knows whether it can be read: try again")

func (v *verified) tell(w io.Writer, asJSON bool) error {
	if asJSON {
		if err := json.NewEncoder(w).Encode(v); err != nil {
			return err
		}
	} else {
		v.print(w)
	}
	if len(v.Bad) > 0 {
		return fmt.Errorf("%s: %w: %d of %s", v.Dataset, errBad, len(v.Bad), counted(v.Shards, "shard"))
	}
	if len(v.TooLarge) > 0 {
		return fmt.Errorf("%s: %w: %d of %s", v.Dataset, errMemory, len(v.TooLarge), counted(v.Shards, "shard"))
	}
	if v.Unread > 0 {
		return fmt.Errorf("%s: %w: %d of %s", v.Dataset, errUnread, v.Unread, counted(v.Shards, "shard"))
	}
	return nil
}

func (v *verified) print(w io.Writer) {
	fmt.Fprintf(w, "%s: %s read in %.1f s, %s rows/s; %d of %s cannot be read\nsnapshot %s\n",
		v.Dataset, counted(v.Rows, "row"), v.Seconds, count(int64(float64(v.Rows)/max(v.Seconds, 1e-9))), len(v.Bad), counted(v.Shards, "shard"), v.Snapshot)
	if v.Unread > 0 {
		fmt.Fprintf(w, "\n%s could not be read just now, which says nothing of what is in there: %s\n", counted(v.Unread, "shard"), v.Why)
	}
	if n := len(v.TooLarge); n > 0 {
		fmt.Fprintf(w, "\nmore memory than there is would be needed for %s, which says nothing of what is in there:\n", counted(n, "shard"))
	}
	for _, b := range v.TooLarge {
		fmt.Fprintf(w, "\n%s\n", b.Error)
	}
	printDrift(w, v.Dataset, v.Drift)
	var globs []string
	for _, b := range v.Bad {
		fmt.Fprintf(w, "\n%s\n", b.Error)
		if b.Shard != "" {
			globs = append(globs, strconv.Quote(globOf(b.Shard)))
		}
	}
	if len(globs) > 0 {
		fmt.Fprintf(w, "\nTo leave out what cannot be read, in the config of the dataset:\n\nexclude: [%s]\n", strings.Join(globs, ", "))
	}
}

// keyIn finds the key of the file that an error is about.
var keyIn = regexp.MustCompile(`(?:shard|file) ("(?:[^"\\]|\\.)*")`)

func named(err error) string {
	found := keyIn.FindStringSubmatch(err.Error())
	if found == nil {
		return ""
	}
	key, err := strconv.Unquote(found[1])
	if err != nil {
		return ""
	}
	return key
}

// globOf is a glob that only this key matches.
func globOf(key string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(key)
}

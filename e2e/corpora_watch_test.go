package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/headrace/headrace/gateway/client"
)

// writeHealthy makes two datasets with nothing wrong about them, healthy/parquet and healthy/arrow.
func writeHealthy(t *testing.T, root string) {
	t.Helper()
	python(t, `
root = Path(sys.argv[1]) / "healthy"
ids = np.arange(200_000)
table = pa.table({"id": ids, "text": [f"row {i}" for i in ids]})
for name in ("parquet", "arrow"):
    (root / name).mkdir(parents=True)
pq.write_table(table, root / "parquet" / "x.parquet", row_group_size=70_000)
with pa.ipc.new_file(root / "arrow" / "x.arrow", table.schema) as w:
    w.write_table(table, max_chunksize=30_000)
`, root)
}

// watchHealthy reads the healthy datasets again and again, and checks every row, until the function that it returns is
// called; that one tells the rows.
func watchHealthy(t *testing.T, s *server) func() int64 {
	t.Helper()
	c, err := client.Dial(s.uri, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var rows int64
	var wait sync.WaitGroup
	wait.Go(func() {
		for ctx.Err() == nil {
			for _, name := range []string{"healthy/parquet", "healthy/arrow"} {
				n, err := readHealthy(ctx, c, name)
				if rows += n; err != nil && ctx.Err() == nil {
					t.Errorf("a stream beside the public files: %s after %d rows: %v", name, n, err)
					return
				}
			}
		}
	})
	return func() int64 {
		cancel()
		wait.Wait()
		_ = c.Close()
		return rows
	}
}

func readHealthy(ctx context.Context, c *client.Client, name string) (rows int64, err error) {
	stream, err := c.Stream(ctx, fmt.Appendf(nil, `{"dataset": %q}`, name))
	if err != nil {
		return 0, err
	}
	defer stream.Close()
	pace := time.NewTicker(5 * time.Millisecond) // a client that does something with its batches, too
	defer pace.Stop()
	for ; ; <-pace.C {
		b, _, err := stream.Next()
		if errors.Is(err, io.EOF) && rows != 200_000 {
			return rows, fmt.Errorf("it ended early: %w", io.ErrUnexpectedEOF)
		}
		if err != nil {
			return rows, skipEOF(err)
		}
		ids, text := b.Column(0).(*array.Int64), b.Column(1).(*array.String)
		for i := range int(b.NumRows()) {
			if ids.Value(i) != rows || text.Value(i) != "row "+strconv.FormatInt(rows, 10) {
				return rows, fmt.Errorf("row %d is %d, %q", rows, ids.Value(i), text.Value(i))
			}
			rows++
		}
	}
}

func skipEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// watchMemory samples the anonymous memory of the gateway until the function that it returns is called; that one tells
// the peak in bytes, 0 where the system does not say.
func watchMemory(t *testing.T, s *server) func() int64 {
	t.Helper()
	stop := make(chan struct{})
	var peak int64
	var wait sync.WaitGroup
	wait.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				peak = max(peak, anonymous(s.cmd.Process.Pid))
			}
		}
	})
	return func() int64 {
		close(stop)
		wait.Wait()
		return peak
	}
}

// anonymous returns the resident memory of a process that no file is behind, in bytes.
func anonymous(pid int) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), "RssAnon:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	n, _ := strconv.ParseInt(fields[0], 10, 64)
	return n << 10
}

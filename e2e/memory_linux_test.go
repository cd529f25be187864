package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/gateway/client"
)

// mostMemory is what a gateway with the least memory limit, 128MiB, may have of anonymous memory.
const mostMemory = 128 << 20

// withoutDetector builds the program as users run it: the race detector takes several times the memory.
func withoutDetector(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "headrace")
	if out, err := exec.Command("go", "build", "-o", path, "../cmd/headrace").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

// TestMemoryStaysUnderItsLimit lets more streams read than there is memory for, clients that are slow, and a row group
// that is larger than the limit. The bench has the full sizes.
func TestMemoryStaysUnderItsLimit(t *testing.T) {
	plain := withoutDetector(t)
	for _, test := range []struct {
		name    string
		data    []string
		sets    int
		streams int
		pause   time.Duration
	}{
		{name: "many streams", data: []string{"many", "6", "12000000"}, sets: 6, streams: 24},
		{name: "slow clients", data: []string{"groups", "60000000", "30000000"}, streams: 6, pause: 40 * time.Millisecond},
		{name: "a large row group", data: []string{"groups", "200000000", "200000000"}, streams: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			args := append([]string{"../bench/memory.py", test.data[0], dir}, test.data[1:]...)
			if out, err := exec.Command(interpreter(t), args...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Setenv("HEADRACE_LIMITS_ADMISSION_TIMEOUT", "10m")
			s := serveBy(t, plain, "127.0.0.1:0", dir, "--memory", "128MiB")
			peak := watch(t, s)
			var group errgroup.Group
			for i := range test.streams {
				name := "data"
				if test.sets > 0 {
					name = fmt.Sprintf("set-%02d", i%test.sets)
				}
				group.Go(func() error { return readPaced(t.Context(), s.uri, name, test.pause) })
			}
			if err := group.Wait(); err != nil {
				t.Error(err)
			}
			if most := peak(); most > mostMemory {
				t.Errorf("the gateway had %d MiB of anonymous memory", most>>20)
			} else {
				t.Logf("%d MiB of anonymous memory", most>>20)
			}
		})
	}
}

// readPaced reads a whole data set and pauses after each batch.
func readPaced(ctx context.Context, uri, name string, pause time.Duration) error {
	c, err := client.Dial(uri, client.Options{})
	if err != nil {
		return err
	}
	defer c.Close()
	stream, err := c.Stream(ctx, fmt.Appendf(nil, `{"dataset": %q}`, name))
	if err != nil {
		return err
	}
	defer stream.Close()
	for {
		if _, _, err := stream.Next(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		time.Sleep(pause)
	}
}

// watch looks at the gateway's anonymous memory until the function it returns is called, which tells the most there was.
func watch(t *testing.T, s *server) (most func() int64) {
	ctx, cancel := context.WithCancel(t.Context())
	var group errgroup.Group
	var peak int64
	group.Go(func() error {
		for ctx.Err() == nil {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(text)) {
				var kib int64
				if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kib); n == 1 {
					peak = max(peak, kib<<10)
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		return nil
	})
	return func() int64 {
		cancel()
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
		return peak
	}
}

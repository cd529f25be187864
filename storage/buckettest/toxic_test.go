package buckettest

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/storage/bucket"
)

// TestBadNetworks reads through networks that are slow, cut connections, or
// hand out bytes in crumbs: what comes is right, or there is an error.
func TestBadNetworks(t *testing.T) {
	for name, toxics := range map[string]func(add func(string, float64, map[string]any)){
		"latency": func(add func(string, float64, map[string]any)) {
			add("latency", 1, map[string]any{"latency": 20, "jitter": 10})
		},
		"bandwidth": func(add func(string, float64, map[string]any)) {
			add("bandwidth", 1, map[string]any{"rate": 20_000}) // KB/s
		},
		"cuts": func(add func(string, float64, map[string]any)) {
			add("limit_data", 0.5, map[string]any{"bytes": 100_000})
		},
		"resets": func(add func(string, float64, map[string]any)) {
			add("reset_peer", 0.3, map[string]any{"timeout": 5})
		},
		"crumbs": func(add func(string, float64, map[string]any)) {
			add("slicer", 1, map[string]any{"average_size": 1000, "size_variation": 900, "delay": 0})
		},
		"silence": func(add func(string, float64, map[string]any)) {
			add("timeout", 0.3, map[string]any{"timeout": 0})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := S3(t)
			s.Use(t)
			behind, add := Toxic(t, s)
			c := bucket.NewClients(bucket.Options{Backoff: time.Millisecond, Patience: 300 * time.Millisecond, Tries: 20})
			t.Cleanup(c.Close)
			want := sample(2_000_000)
			must(t, open(t, c, s.URL("p")).Put(t.Context(), "x", want))
			toxics(add)
			o, err := open(t, c, behind.URL("p")).Open(t.Context(), "x", "")
			must(t, err)
			defer o.Close()
			group, ctx := errgroup.WithContext(t.Context())
			for off := 0; off < len(want); off += 250_000 {
				group.Go(func() error {
					p := make([]byte, 250_000)
					if err := o.ReadAt(ctx, p, int64(off)); err != nil {
						return err
					}
					if !bytes.Equal(p, want[off:off+len(p)]) {
						return errors.New("other bytes came back")
					}
					return nil
				})
			}
			must(t, group.Wait())
		})
	}
}

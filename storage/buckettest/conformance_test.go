package buckettest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headrace/headrace/storage/bucket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quick makes clients that do not wait long before they try again.
func quick(t *testing.T, s *Store) *bucket.Clients {
	t.Helper()
	s.Use(t)
	c := bucket.NewClients(bucket.Options{Env: os.Getenv, Backoff: time.Millisecond, Patience: 10 * time.Second})
	t.Cleanup(c.Close)
	return c
}

// open opens a prefix of a store.
func open(t *testing.T, c *bucket.Clients, url string) *bucket.Bucket {
	t.Helper()
	b, err := c.Open(url)
	must(t, err)
	t.Cleanup(func() { must(t, b.Close()) })
	return b
}

func conform(t *testing.T, s *Store, keys int, versions bool) {
	c := quick(t, s)
	Conform(t, Kind{
		Keys: keys, Versions: versions,
		Open: func(t *testing.T, prefix string) *bucket.Bucket { return open(t, c, s.URL(prefix)) },
	})
}

func TestConformanceOfS3(t *testing.T)          { conform(t, S3(t), 2501, false) }
func TestConformanceOfVersionedS3(t *testing.T) { conform(t, VersionedS3(t), 101, true) }
func TestConformanceOfGCS(t *testing.T)         { conform(t, GCS(t), 1101, false) }
func TestConformanceOfAzure(t *testing.T)       { conform(t, Azure(t), 1101, false) }

func TestConformanceOfMemory(t *testing.T) {
	c := bucket.NewClients(bucket.Options{})
	t.Cleanup(c.Close)
	Conform(t, Kind{Keys: 2501, Open: func(t *testing.T, prefix string) *bucket.Bucket { return open(t, c, "mem://data/"+prefix) }})
}

func TestConformanceOfFolders(t *testing.T) {
	dir := t.TempDir()
	Conform(t, Kind{Keys: 1101, Local: true, Open: func(t *testing.T, prefix string) *bucket.Bucket {
		at := filepath.Join(dir, prefix)
		must(t, os.MkdirAll(at, 0o755))
		b, err := bucket.Open(at)
		must(t, err)
		t.Cleanup(func() { must(t, b.Close()) })
		return b
	}})
}

// Package storage turns mounts into snapshots and blocks into leased frames.
package storage

import (
	"context"
	"errors"
	"time"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

var (
	// ErrNoDataset means that no mount has a dataset of that name.
	ErrNoDataset = errors.New("no such dataset")
	// ErrSnapshotGone means that the dataset is known but not the snapshot.
	ErrSnapshotGone = errors.New("snapshot is gone")
)

// Mount is a folder under a dataset's name.
type Mount struct {
	Name    string // the dataset's name; empty for a tree
	URL     string // path or file:// URL
	Files   []string
	Exclude []string
	Tree    bool // sub-folders are datasets of their own
}

// Options of a Store.
type Options struct {
	Mounts  []Mount
	Pool    *frame.Pool
	Refresh time.Duration // most age of the newest snapshot
	Events  Events
}

// Events are called as things happen; nil ones are filled in.
type Events struct {
	// Load is called when a segment is opened; its end with the outcome.
	Load func(ctx context.Context, object string, segment int) (context.Context, func(error))
	// Decode is called when a block is decoded; its end with bytes and outcome.
	Decode func(ctx context.Context, object string, rows int64) (context.Context, func(bytes int64, err error))
	// Refreshed tells of each new snapshot of a dataset, or why there is none.
	Refreshed func(dataset string, s Status)
}

// Status is what is known of a dataset beside its snapshot.
type Status struct {
	Snapshot string // newest identity; empty if there is none
	Skipped  int    // files that are no data files by rule
	Corrupt  []Corrupt
	Err      error // why the dataset cannot be opened
}

// Corrupt is a shard that cannot be read.
type Corrupt struct {
	Key string
	Err error
}

// Store serves the datasets of all mounts.
type Store struct{}

// New opens the mounts.
func New(ctx context.Context, o Options) (*Store, error) { panic("unfinished") }

// Close closes the mounts.
func (s *Store) Close() error { return nil }

// Datasets returns the names of all datasets, sorted.
func (s *Store) Datasets(ctx context.Context) ([]string, error) { return nil, nil }

// Snapshot returns the snapshot of dataset with the given identity; "" means the newest.
func (s *Store) Snapshot(ctx context.Context, dataset, id string) (*snapshot.Snapshot, error) {
	return nil, ErrNoDataset
}

// Status returns what is known of a dataset.
func (s *Store) Status(ctx context.Context, dataset string) Status { return Status{} }

// Need returns the bytes that one stream in stored order needs at once.
func (s *Store) Need(snap *snapshot.Snapshot, p *schema.Projection, blocks *snapshot.Blocks) int64 {
	return 0
}

// Open returns a reader of snap's blocks.
func (s *Store) Open(snap *snapshot.Snapshot, p *schema.Projection, g *budget.Grant) *Reader {
	return &Reader{}
}

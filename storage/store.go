// Package storage turns mounts into snapshots and blocks into leased frames.
package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/parquetfile"
	"github.com/headrace/headrace/storage/snapshot"
)

var (
	// ErrNoDataset means that no mount has a dataset of that name.
	ErrNoDataset = errors.New("no such dataset")
	// ErrSnapshotGone means that the dataset is known but not the snapshot.
	ErrSnapshotGone = errors.New("snapshot is gone")
)

// Mount is a place with data under a dataset's name.
type Mount struct {
	Name string // the dataset's name; for a tree the root's, "" for its base name
	URL  string // path or URL, as for bucket.Clients
	// Files and Exclude are globs over keys: without Files everything with the
	// extension of a data file is taken. "**" stands for any number of folders.
	// A single "@KEY" in Files names an object that lists the keys of the files.
	Files, Exclude []string
	// Tree makes sub-folders datasets of their own, named by their relative
	// path. A tree has no other mounts beside it.
	Tree bool
	// Schema says what the schemas of its files must share, Hive that folders
	// named k=v are columns.
	Schema schema.Rule
	Hive   bool
}

// Options of a Store.
type Options struct {
	Mounts  []Mount
	Pool    *frame.Pool
	Ledger  *budget.Ledger // of what describing objects takes; nil: as little as can be is read at a time
	Refresh time.Duration  // most age of a listing; 0 lists at every request
	Buckets bucket.Options
	Archive Archive
	Events  Events
	// PageBytes is the most bytes that a Parquet page may have, 0 for the usual.
	PageBytes int64
}

// Store serves the datasets of all mounts. It looks for changes when it is
// asked, never on its own. It is safe for concurrent use.
type Store struct {
	mounts   []*mount
	pool     *frame.Pool
	events   Events
	clients  *bucket.Clients
	parquet  parquetfile.Options
	registry registry
	objects  objects
	measures measures
}

// New makes a store of mounts. Only mistakes in the options are errors here,
// and a tree whose folder does not open; a single dataset that cannot be
// opened says so when it is asked for, and harms no other.
func New(ctx context.Context, o Options) (*Store, error) {
	s := &Store{pool: o.Pool, events: o.Events.withDefaults(), clients: bucket.NewClients(o.Buckets)}
	s.parquet = parquetfile.Options{PageBytes: o.PageBytes, Columns: s.events.Columns}
	shelves, err := o.Archive.open(ctx, s.clients, s.events)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, m := range o.Mounts {
		mt, err := newMount(m, o.Refresh, s.clients, shelves, s.events, &s.registry)
		if err != nil {
			return nil, err
		}
		mt.ledger = o.Ledger
		if m.Tree && len(o.Mounts) > 1 {
			return nil, fmt.Errorf("mount %q: a tree has no other mounts beside it", m.URL)
		}
		if names[mt.Name] {
			return nil, fmt.Errorf("two mounts have the name %q", mt.Name)
		}
		names[mt.Name] = true
		if m.Tree {
			if _, err := mt.listing(ctx); err != nil {
				return nil, fmt.Errorf("folder %q: %w", m.URL, err)
			}
		}
		s.mounts = append(s.mounts, mt)
	}
	return s, nil
}

// Close ends the store. All readers must be closed before; the error counts
// objects that they left open.
func (s *Store) Close() error {
	s.clients.Close()
	return s.objects.close()
}

// Datasets returns the names of all datasets, sorted, those that cannot be
// opened included.
func (s *Store) Datasets(ctx context.Context) ([]string, error) {
	var names []string
	for _, m := range s.mounts {
		l, err := m.listing(ctx)
		if err != nil {
			return nil, err
		}
		for name := range l.sets {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Flying is how many blocks of a snapshot are best on their way at once where
// reading is mostly waiting for a store; 0 where it is not.
func (s *Store) Flying(snap *snapshot.Snapshot) int {
	if d := s.registry.known(snap.Dataset); d != nil && d.mount.far {
		return d.mount.pace.blocks(d.mount.requests)
	}
	return 0
}

// Dear tells whether a shard's blocks cost more to load than to read as much from a local disk: they come from afar, or
// have to be decoded.
func (s *Store) Dear(snap *snapshot.Snapshot, shard int) bool {
	d := s.registry.known(snap.Dataset)
	return d != nil && d.mount.far || snap.Shards[shard].Format == snapshot.Parquet
}

// Snapshot returns the snapshot of dataset with the given identity, or with the
// given tag; "" means the newest, from a listing at most Refresh old. Snapshots stay known by
// identity for as long as the store lives, the last 64 of each dataset, and as
// long as the archive has them once Keep was called.
// Callers that come while a snapshot is made wait for it. ErrNoDataset,
// ErrSnapshotGone, or why the dataset cannot be opened.
func (s *Store) Snapshot(ctx context.Context, dataset, id string) (*snapshot.Snapshot, error) {
	d, found, err := s.find(ctx, dataset)
	if err != nil {
		return nil, err
	}
	if id != "" && !isID(id) {
		if id, err = d.keeper.tagged(ctx, id); err != nil {
			return nil, err
		}
	}
	return d.snapshot(ctx, found, id)
}

// Keep keeps a snapshot of this store where it outlives the process, as the
// options say: call it when the snapshot is planned. It fails nobody: what cannot
// be kept is an event.
func (s *Store) Keep(ctx context.Context, snap *snapshot.Snapshot) {
	if d := s.registry.known(snap.Dataset); d != nil {
		d.save(ctx, snap)
	}
}

// Status returns what is known of a dataset beside its newest snapshot.
func (s *Store) Status(ctx context.Context, dataset string) Status {
	d, found, err := s.find(ctx, dataset)
	if err != nil {
		return Status{Err: err}
	}
	return d.status(ctx, found)
}

// find returns a dataset and what the newest listing has of it, nil if the
// dataset is known but no longer there.
func (s *Store) find(ctx context.Context, name string) (*dataset, *found, error) {
	for _, m := range s.mounts {
		if !m.Tree && m.Name != name {
			continue
		}
		l, err := m.listing(ctx)
		if err != nil {
			return nil, nil, err
		}
		if f := l.sets[name]; f != nil {
			return f.dataset, f, nil
		}
		if d := s.registry.known(name); d != nil {
			return d, nil, nil
		}
	}
	return nil, nil, fmt.Errorf("%w: %q", ErrNoDataset, name)
}

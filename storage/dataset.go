package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/snapshot"
)

// maxKnown bounds the snapshots of one dataset that are kept for those who
// hold their identities.
const maxKnown = 64

// maxDrifts bounds the columns that a status tells to differ.
const maxDrifts = 100

// dataset makes snapshots of one dataset from what listings find.
type dataset struct {
	name   string
	folder string
	mount  *mount

	gate   gate  // guards what follows
	built  int64 // number of the listing that the dataset is brought up to
	newest *snapshot.Snapshot
	state  Status
	known  []*snapshot.Snapshot       // the newest last
	shards map[string]*snapshot.Shard // by key, as last described
	fresh  bool                       // some of them came since newest was made

	schemas  snapshot.Schemas // of shards
	keeper   *keeper
	restored bool // what the keeper had is in shards
}

func newDataset(name, folder string, m *mount) *dataset {
	return &dataset{name: name, folder: folder, mount: m, gate: newGate(), keeper: newKeeper(name, folder, m, m.shelves)}
}

// snapshot returns the snapshot with the given identity, "" for the newest.
// found is what the newest listing has, nil if the dataset is not there.
func (d *dataset) snapshot(ctx context.Context, found *found, id string) (*snapshot.Snapshot, error) {
	if err := d.gate.enter(ctx); err != nil {
		return nil, err
	}
	defer d.gate.leave()
	if found == nil && id == "" {
		return nil, fmt.Errorf("%w: %q", ErrNoDataset, d.name)
	}
	if found != nil {
		if err := d.refresh(ctx, found); err != nil {
			return nil, err
		}
	}
	if id == "" {
		return d.newest, d.state.Err
	}
	if i := slices.IndexFunc(d.known, func(s *snapshot.Snapshot) bool { return s.ID == id }); i >= 0 {
		return d.known[i], nil
	}
	return d.recall(ctx, id)
}

func (d *dataset) status(ctx context.Context, found *found) Status {
	if err := d.gate.enter(ctx); err != nil {
		return Status{Err: err}
	}
	defer d.gate.leave()
	if found == nil {
		return Status{Err: fmt.Errorf("%w: %q", ErrNoDataset, d.name)}
	}
	if err := d.refresh(ctx, found); err != nil {
		return Status{Err: err}
	}
	return d.state
}

// refresh brings the dataset up to a listing. Its own error means that ctx
// ended; what is wrong with the dataset becomes part of its state. The shards
// described until then are kept for the next try.
func (d *dataset) refresh(ctx context.Context, f *found) error {
	if f.number <= d.built {
		return nil
	}
	if err := d.restore(ctx); err != nil {
		return err
	}
	shards, err := d.describe(ctx, f)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	d.built = f.number
	if err == nil && !d.fresh && d.newest != nil && d.state.Skipped == f.skipped {
		return nil
	}
	var snap *snapshot.Snapshot
	if err == nil {
		snap, err = d.assemble(shards)
	}
	d.replace(f, snap, shards, err)
	return nil
}

// replace makes snap the newest snapshot, or err the reason why there is none.
func (d *dataset) replace(f *found, snap *snapshot.Snapshot, shards []*snapshot.Shard, err error) {
	before := d.state
	d.newest, d.fresh, d.state = snap, false, Status{Skipped: f.skipped}
	if err != nil {
		d.state.Err = fmt.Errorf("dataset %q: %w", d.name, err)
	} else {
		d.state.Snapshot = snap.ID
		d.keep(snap)
	}
	d.state.Drifts = snapshot.Drifts(shards, maxDrifts)
	for _, sh := range shards {
		if sh.Err != nil {
			d.state.Corrupt = append(d.state.Corrupt, Corrupt{Key: sh.Key, Err: sh.Err})
		}
	}
	if !same(before, d.state) {
		d.mount.events.Refreshed(d.name, d.state)
	}
}

// same tells whether two states would be reported alike.
func same(a, b Status) bool {
	return a.Snapshot == b.Snapshot && a.Skipped == b.Skipped && (a.Err == nil) == (b.Err == nil) &&
		(a.Err == nil || a.Err.Error() == b.Err.Error()) && len(a.Corrupt) == len(b.Corrupt)
}

func (d *dataset) assemble(shards []*snapshot.Shard) (*snapshot.Snapshot, error) {
	if err := unmixed(shards); err != nil {
		return nil, err
	}
	return snapshot.New(d.name, shards, d.mount.rules())
}

// keep remembers a snapshot; one of the same identity is replaced, since its
// pins may have changed.
func (d *dataset) keep(snap *snapshot.Snapshot) {
	d.known = slices.DeleteFunc(d.known, func(s *snapshot.Snapshot) bool { return s.ID == snap.ID })
	d.known = append(d.known, snap)
	if n := len(d.known) - maxKnown; n > 0 {
		d.known = slices.Delete(d.known, 0, n)
	}
}

// describe returns the shards of what was found, sorted by key. Only new and
// changed objects are looked at.
func (d *dataset) describe(ctx context.Context, f *found) (shards []*snapshot.Shard, err error) {
	if f.err != nil {
		return nil, f.err
	}
	var todo []bucket.Attrs
	kept := make(map[string]*snapshot.Shard, len(f.files))
	for _, a := range f.files {
		if sh := d.shards[a.Key]; sh != nil && a.Err == nil && bucket.Pin(sh.Pin).Lists(a.Pin) {
			kept[a.Key] = sh
			shards = append(shards, sh)
		} else {
			todo = append(todo, a)
		}
	}
	d.fresh = d.fresh || len(todo) > 0 || len(kept) != len(d.shards)
	d.shards = kept
	if len(todo) == 0 {
		return shards, nil
	}
	fresh, err := d.describeAll(ctx, todo)
	shards = append(shards, fresh...)
	slices.SortFunc(shards, func(a, b *snapshot.Shard) int { return cmp.Compare(a.Key, b.Key) })
	d.schemas.Keep(d.shards)
	return shards, err
}

// workers bounds how many objects of a dataset are described at once.
// What a store is asked at once, the bucket bounds itself.
const workers = 64

func (d *dataset) describeAll(ctx context.Context, todo []bucket.Attrs) ([]*snapshot.Shard, error) {
	b, err := d.mount.open()
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var shards []*snapshot.Shard
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, a := range todo {
		group.Go(func() error {
			d.mount.events.Describe(d.name, a.Key)
			sh, final, err := describe(ctx, b.Under(d.folder), a, d.mount.ledger)
			if err != nil || sh == nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			sh.Schema = d.schemas.Share(sh.Schema)
			shards = append(shards, sh)
			if final {
				d.shards[a.Key] = sh
			}
			return nil
		})
	}
	err = group.Wait()
	return shards, errors.Join(err, b.Close())
}

package storage

import (
	"context"
	"strconv"

	"github.com/headrace/headrace/storage/snapshot"
)

// restore begins with the shards of the snapshot that was planned last, so that
// after a restart only objects that are new or changed are looked at. Its error
// means that ctx ended.
func (d *dataset) restore(ctx context.Context) error {
	if d.restored {
		return nil
	}
	shards := d.keeper.newest(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	d.restored = true
	d.shards = make(map[string]*snapshot.Shard, len(shards))
	for _, sh := range shards {
		if sh.Pin != "" && (sh.Err == nil || lasting(sh.Err)) {
			sh.Schema = d.schemas.Share(sh.Schema)
			d.shards[sh.Key] = sh
		}
	}
	return nil
}

// recall finds a snapshot that is not known any more, or that another gateway
// has planned.
func (d *dataset) recall(ctx context.Context, id string) (*snapshot.Snapshot, error) {
	shards, err := d.keeper.load(ctx, id)
	if err != nil {
		return nil, err
	}
	for i, sh := range shards {
		shards[i] = d.locate(sh)
	}
	snap, err := snapshot.New(d.name, shards, d.mount.rules())
	if err != nil {
		return nil, err
	}
	d.keep(snap)
	return snap, nil
}

// locate finds the bytes of a shard out of a manifest: the object of that key,
// if it is the same data, else what the pin names, which may still be there if
// the bucket keeps versions. One that was never found by anybody who told, and
// is other data now, has changed: so says whoever reads it.
func (d *dataset) locate(sh *snapshot.Shard) *snapshot.Shard {
	if now := d.shards[sh.Key]; now != nil && now.Err == nil && sh.Err == nil && now.Identity() == sh.Identity() {
		return now
	}
	if sh.Pin == "" {
		sh.Pin = strconv.FormatInt(sh.Size, 10) + " gone" // no store has such a tag, no folder such a pin
	}
	return sh
}

// save keeps a snapshot beyond this process.
func (d *dataset) save(ctx context.Context, snap *snapshot.Snapshot) {
	if err := d.gate.enter(ctx); err != nil {
		return // and so the plan does
	}
	newest := d.newest == snap
	d.gate.leave()
	d.keeper.save(ctx, snap, newest)
}

package storage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

// Reader turns blocks of one snapshot into leased frames. Blocks of one
// segment that ascend are decoded by one scanner that stays open; any other
// order works too and costs more. It is used by one goroutine.
type Reader struct {
	store *Store
	snap  *snapshot.Snapshot
	p     *schema.Projection
	fits  *snapshot.Fitter
	grant *budget.Grant // pays for decoders
	pays  *budget.Grant // for frames
	mixed bool          // grant paid for frames, too: others may share it

	shard, segment int
	row            int64 // of the segment, where scan stands
	scan           scanner
	obj            *bucket.Object // of the shard, open between its segments
	mount          *mount         // that it lies in
	release        func()
	clock          bucket.Clock // of its reads
	took           Took
}

// Took is where the time of reading a block went.
type Took struct{ Store, Decode time.Duration }

// Open returns a reader of snap, one of the store's own, that decodes the
// columns of p. Memory is charged to g. Close must be called.
func (s *Store) Open(snap *snapshot.Snapshot, p *schema.Projection, g *budget.Grant) *Reader {
	return &Reader{store: s, snap: snap, p: p, fits: snap.Fitter(p), grant: g, pays: g}
}

// Waiting returns a context under which wait is called when a read begins to
// wait for a store, and what that returns when the read goes on.
func Waiting(ctx context.Context, wait func() (back func())) context.Context {
	return bucket.Waiting(ctx, wait)
}

// ChargeTo makes another grant pay for the frames of the blocks that follow;
// what the decoders use stays with the first one.
func (r *Reader) ChargeTo(g *budget.Grant) { r.pays = g }

// Block returns the rows [From, To) of b's segment, in order, as frames of at
// most frame.MaxFrame bytes; the caller releases their leases. Errors name the
// shard and wrap those of bucket, budget, frame and snapshot.
func (r *Reader) Block(ctx context.Context, b snapshot.Block) ([]*frame.Lease, error) {
	began, waited := time.Now(), r.clock.Total()
	r.mixed = r.mixed || r.grant == r.pays
	defer func() {
		r.took.Store = r.clock.Total() - waited
		r.took.Decode = time.Since(began) - r.took.Store
	}()
	onward := r.scan != nil && b.Shard == r.shard && b.Segment == r.segment && b.From >= r.row
	if !onward {
		if err := r.seek(ctx, b.Shard, b.Segment); err != nil {
			r.measure(b.Shard, false, err)
			r.learn(err)
			return nil, err
		}
	}
	leases, err := r.decode(ctx, b)
	r.measure(r.shard, onward, err)
	if err != nil {
		r.learn(err)
		r.stop()
		return nil, err
	}
	if r.row = b.To; r.row == r.snap.Shards[r.shard].Segments[r.segment].Rows {
		r.stop() // its scratch is free while the next segment is not asked for
	} else if !r.mixed {
		r.store.measures.open(r.snap, r.shard, r.p, r.grant.Used())
	}
	return leases, nil
}

// Took tells where the time of the last Block went.
func (r *Reader) Took() Took { return r.took }

// learn has the mount listed again for the next plan if something is not as it was listed.
func (r *Reader) learn(err error) {
	if !errors.Is(err, bucket.ErrChanged) && !errors.Is(err, bucket.ErrNotFound) {
		return
	}
	if d := r.store.registry.known(r.snap.Dataset); d != nil {
		d.mount.passed.Store(time.Now().UnixNano())
	}
}

// measure notes what the decoder took, or asked for in vain, and whether it went on in a segment. A grant that ever paid for
// frames is not its alone: windows' pay for several decoders, and tell nothing of one.
func (r *Reader) measure(shard int, onward bool, err error) {
	if r.mixed {
		return
	}
	peak := r.grant.Peak()
	r.store.measures.scratch(r.snap, shard, r.p, peak, err != nil)
	if onward && err == nil {
		r.store.measures.onward(r.snap, shard, r.p, peak)
	}
}

// seek opens a scanner at the start of a segment.
func (r *Reader) seek(ctx context.Context, shard, segment int) (err error) {
	r.stop()
	sh := r.snap.Shards[shard]
	if err := r.snap.Corrupt([]int{shard}); err != nil {
		return err
	}
	ctx, done := r.store.events.Load(ctx, sh.Key, segment)
	defer func() { done(err) }()
	if r.obj == nil || r.shard != shard {
		if err := r.enter(ctx, sh); err != nil {
			return err
		}
	}
	if r.scan, err = r.open(ctx, shard, segment); err != nil {
		return err
	}
	r.shard, r.segment, r.row = shard, segment, 0
	return nil
}

// open opens a scanner of r.obj whose frames have the columns of the projection.
func (r *Reader) open(ctx context.Context, shard, segment int) (scanner, error) {
	sh, fit := r.snap.Shards[shard], r.fits.Of(shard)
	scan, err := formats[sh.Format].open(r.store)(ctx, r.obj, sh, segment, fit.Stored, r.store.pool, r.grant)
	if err != nil || fit.Alike {
		return scan, err
	}
	value := func(f arrow.Field) (arrow.Array, error) { return r.snap.Constant(shard, f) }
	return &fitted{scanner: scan, fit: fit, schema: r.p.Schema, value: value, pool: r.store.pool, grant: r.grant}, nil
}

// enter opens the object of a shard in place of the last one.
func (r *Reader) enter(ctx context.Context, sh *snapshot.Shard) error {
	r.leave()
	d := r.store.registry.known(r.snap.Dataset)
	if d == nil {
		return fmt.Errorf("%w: %q", ErrNoDataset, r.snap.Dataset)
	}
	obj, release, err := r.store.objects.acquire(ctx, version{dataset: d, key: sh.Key, pin: bucket.Pin(sh.Pin)})
	if err != nil {
		return err
	}
	r.obj, r.release, r.mount = obj.Clocked(&r.clock), release, d.mount
	return nil
}

// decode skips to b and decodes it. Files that hold other rows than they claim
// are found out here: they would shift every row number behind them.
func (r *Reader) decode(ctx context.Context, b snapshot.Block) (leases []*frame.Lease, err error) {
	key := r.snap.Shards[r.shard].Key
	ctx, done := r.store.events.Decode(ctx, key, b.To-b.From)
	var rows, bytes, size int64
	defer func() { done(bytes, err) }()
	if b.From > r.row {
		if err := r.scan.Skip(ctx, b.From-r.row); err != nil {
			return nil, err
		}
	}
	if leases, err = r.scan.Next(ctx, r.pays, b.To-b.From); err != nil {
		return nil, err
	}
	for _, l := range leases {
		rows += l.Batch().NumRows()
		bytes += l.Bytes()
		size += l.Size()
	}
	r.store.measures.frames(r.snap, b, r.p, size)
	r.mount.pace.decoded()
	if rows != b.To-b.From {
		for _, l := range leases {
			l.Release()
		}
		return nil, fmt.Errorf("%w: shard %q, segment %d: rows %d to %d are %d rows", snapshot.ErrCorrupt, key, r.segment, b.From, b.To, rows)
	}
	return leases, nil
}

func (r *Reader) stop() {
	if r.scan != nil {
		r.scan.Close()
		r.scan = nil
	}
}

func (r *Reader) leave() {
	if r.obj != nil {
		r.release()
		r.obj = nil
	}
}

// Close ends the reading. Leases given out stay valid.
func (r *Reader) Close() {
	r.stop()
	r.leave()
}

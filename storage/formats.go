package storage

import (
	"context"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/arrowfile"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/parquetfile"
	"github.com/headrace/headrace/storage/snapshot"
)

// scanner decodes one segment from its start, in order. It is the seam behind
// which formats differ. What it works with is charged to the grant that it was
// opened with, frames to the one of Next.
type scanner interface {
	Skip(ctx context.Context, rows int64) error
	Next(ctx context.Context, g *budget.Grant, rows int64) ([]*frame.Lease, error)
	Close()
}

// format is what a format package offers.
type format struct {
	describe func(ctx context.Context, obj *bucket.Object, l *budget.Ledger) (*snapshot.Shard, error)
	open     func(s *Store) opener
	need     func(sh *snapshot.Shard, segment int, p *schema.Projection) int64
	keeps    func(sh *snapshot.Shard, segment int, p *schema.Projection) (between, onward int64) // of need: between blocks, and by a decoder that goes on
	share    func(sh *snapshot.Shard, p *schema.Projection) float64                              // of a block's bytes, that of the columns
	inPlace  func(sh *snapshot.Shard, segment int, p *schema.Projection) bool                    // the columns may be shown where they lie in a local file; nil: never
	codec    snapshot.Codec                                                                      // of what manifests keep
}

// opener begins to decode a segment.
type opener func(context.Context, *bucket.Object, *snapshot.Shard, int, *schema.Projection, *frame.Pool, *budget.Grant) (scanner, error)

var ipc = format{
	describe: arrowfile.Describe, open: func(*Store) opener { return hiding(arrowfile.Open) }, need: arrowfile.Need, keeps: arrowfile.Keeps, share: whole, inPlace: arrowfile.InPlace,
	codec: snapshot.Codec{Pack: arrowfile.Pack, Unpack: arrowfile.Unpack},
}

// formats are all formats there are. A new one is named here.
var formats = map[snapshot.Format]format{
	snapshot.Parquet: {
		describe: footers, open: func(s *Store) opener { return hiding(s.parquet.Open) }, need: parquetfile.Need,
		keeps: parquetfile.Keeps, share: parquetfile.Share,
		codec: snapshot.Codec{Pack: parquetfile.Pack, Unpack: parquetfile.Unpack},
	},
	snapshot.Arrow:  ipc,
	snapshot.Stream: ipc,
}

// footers takes no memory of the ledger: a footer is read once, and parsed.
func footers(ctx context.Context, obj *bucket.Object, _ *budget.Ledger) (*snapshot.Shard, error) {
	return parquetfile.Describe(ctx, obj)
}

// whole is the share of columns that nothing is known of.
func whole(*snapshot.Shard, *schema.Projection) float64 { return 1 }

// hiding hides the concrete scanner; a failed one stays nil.
func hiding[S scanner](
	open func(context.Context, *bucket.Object, *snapshot.Shard, int, *schema.Projection, *frame.Pool, *budget.Grant) (S, error),
) opener {
	return func(ctx context.Context, obj *bucket.Object, sh *snapshot.Shard, segment int, p *schema.Projection, pool *frame.Pool, g *budget.Grant) (scanner, error) {
		s, err := open(ctx, obj, sh, segment, p, pool, g)
		if err != nil {
			return nil, err
		}
		return s, nil
	}
}

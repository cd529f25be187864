// Package parquetfile reads one format, Parquet: it describes a shard and decodes blocks of a segment into frames.
package parquetfile

import (
	"context"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

// Describe reads the footer of obj.
func Describe(ctx context.Context, obj *bucket.Object) (*snapshot.Shard, error) { panic("unfinished") }

// Scanner decodes one row group.
type Scanner struct{}

// Open begins to read one row group.
func Open(ctx context.Context, obj *bucket.Object, sh *snapshot.Shard, segment int, p *schema.Projection, pool *frame.Pool, g *budget.Grant) (*Scanner, error) {
	panic("unfinished")
}

// Skip passes over rows.
func (s *Scanner) Skip(ctx context.Context, rows int64) error { panic("unfinished") }

// Next decodes the next rows.
func (s *Scanner) Next(ctx context.Context, rows int64) ([]*frame.Lease, error) { panic("unfinished") }

// Close ends the scan.
func (s *Scanner) Close() {}

// Need estimates the scratch memory of one block.
func Need(sh *snapshot.Shard, segment int, p *schema.Projection) int64 { panic("unfinished") }

// BoundDecompression makes decompression of pages fail where it would outgrow
// the size that the page claims.
func BoundDecompression() {}

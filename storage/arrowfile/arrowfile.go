// Package arrowfile reads Arrow IPC files and streams: it describes a shard and
// decodes blocks of a segment into frames.
package arrowfile

import (
	"context"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

// Describe reads the facts of an object.
func Describe(ctx context.Context, obj *bucket.Object) (*snapshot.Shard, error) { panic("unfinished") }

// Scanner decodes the rows of one segment in order.
type Scanner struct{}

// Open starts a scanner.
func Open(ctx context.Context, obj *bucket.Object, sh *snapshot.Shard, segment int, p *schema.Projection, pool *frame.Pool, g *budget.Grant) (*Scanner, error) {
	panic("unfinished")
}

// Skip passes over rows.
func (s *Scanner) Skip(ctx context.Context, rows int64) error { panic("unfinished") }

// Next decodes the next rows.
func (s *Scanner) Next(ctx context.Context, rows int64) ([]*frame.Lease, error) { panic("unfinished") }

// Close gives everything back.
func (s *Scanner) Close() {}

// Need estimates scratch.
func Need(sh *snapshot.Shard, segment int, p *schema.Projection) int64 { return 0 }

package storage

import (
	"context"

	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

// Reader turns blocks of one snapshot into leased frames.
type Reader struct{}

// Block returns the rows of b as frames.
func (r *Reader) Block(ctx context.Context, b snapshot.Block) ([]*frame.Lease, error) {
	return nil, nil
}

// Close ends all reading.
func (r *Reader) Close() {}

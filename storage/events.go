package storage

import (
	"context"
	"time"

	"github.com/headrace/headrace/schema"
)

// Events are called as things happen; New fills in those that are nil. They
// must not block.
type Events struct {
	// Load is called when a segment is opened; the function it returns, when
	// that is done.
	Load func(ctx context.Context, object string, segment int) (context.Context, func(error))
	// Decode is called when rows are decoded; the function it returns, when
	// their frames, of so many bytes, are there.
	Decode func(ctx context.Context, object string, rows int64) (context.Context, func(bytes int64, err error))
	// Request is called when a request is sent to the store that a mount lies
	// in; the function it returns, when that try is over, with the bytes of
	// objects that came.
	Request func(ctx context.Context, mount, verb string) func(bytes int64, err error)
	// Failed is called when the store that a mount lies in is out of order:
	// attempts of a request fail in a row, the last one with err. It is told once
	// until the store works, and once a minute at most.
	Failed func(mount, store string, attempt int, err error)
	// Works is called when the store answers again, with the time since.
	Works func(mount, store string, after time.Duration)
	// Columns is called when columns of a Parquet row group are going to be
	// decoded: so many by the reader "own", or by "arrow-go".
	Columns func(ctx context.Context, reader string, n int)
	// Describe is called when the metadata of an object are read.
	Describe func(dataset, object string)
	// Archive is called when a snapshot could not be kept, or not be read where
	// it is kept; what was asked for goes on without.
	Archive func(ctx context.Context, dataset string, err error)
	// Refreshed is called when a dataset was found changed.
	Refreshed func(dataset string, s Status)
}

func (e Events) withDefaults() Events {
	if e.Load == nil {
		e.Load = func(ctx context.Context, _ string, _ int) (context.Context, func(error)) {
			return ctx, func(error) {}
		}
	}
	if e.Decode == nil {
		e.Decode = func(ctx context.Context, _ string, _ int64) (context.Context, func(int64, error)) {
			return ctx, func(int64, error) {}
		}
	}
	if e.Request == nil {
		e.Request = func(context.Context, string, string) func(int64, error) { return func(int64, error) {} }
	}
	if e.Failed == nil {
		e.Failed = func(string, string, int, error) {}
	}
	if e.Works == nil {
		e.Works = func(string, string, time.Duration) {}
	}
	if e.Columns == nil {
		e.Columns = func(context.Context, string, int) {}
	}
	if e.Describe == nil {
		e.Describe = func(string, string) {}
	}
	if e.Archive == nil {
		e.Archive = func(context.Context, string, error) {}
	}
	if e.Refreshed == nil {
		e.Refreshed = func(string, Status) {}
	}
	return e
}

// Status is what is known of a dataset beside its snapshot.
type Status struct {
	Snapshot string         // identity of the newest snapshot; empty if there is none
	Skipped  int            // files in its folders that are no data files by rule
	Corrupt  []Corrupt      // shards that cannot be read
	Drifts   []schema.Drift // columns in which the files' schemas differ, the first 100
	Err      error          // why the dataset cannot be opened
}

// Corrupt is a shard that cannot be read, and why.
type Corrupt struct {
	Key string
	Err error
}

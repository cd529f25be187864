// Package snapshot holds datasets, shards, segments and blocks as facts; identity and pins.
package snapshot

import (
	"errors"

	"github.com/apache/arrow-go/v18/arrow"
)

// ErrCorrupt means that a file is not what it claims to be.
var ErrCorrupt = errors.New("corrupt data")

// ErrUnsupported means that a file is well formed but uses something that is
// not served.
var ErrUnsupported = errors.New("unsupported data")

// Format names the container of a shard.
type Format string

// The formats of shards.
const (
	Parquet Format = "parquet"
	Arrow   Format = "arrow"
	Stream  Format = "arrow-stream"
)

// Segment is what must be decoded from its start.
type Segment struct {
	Rows  int64
	Bytes int64 // as stored, decoded size by the file's own word
	Facts any   // the format's own, small
}

// Blocks returns the number of blocks of the segment.
func (s Segment) Blocks() int64 { return 0 }

// Block returns the rows [from, to) of block i within the segment.
func (s Segment) Block(i int64) (from, to int64) { return 0, 0 }

// Shard is one object that holds rows.
type Shard struct {
	Key      string
	Size     int64
	Format   Format
	Schema   *arrow.Schema // as stored
	Segments []Segment
	Meta     [32]byte // SHA-256 of the footer or metadata bytes
	Facts    any      // the format's own
	Err      error    // why the shard is corrupt: it then counts no rows
	Pin      string   // which bytes were described; not part of the identity
}

// Rows returns the rows of the shard.
func (s *Shard) Rows() int64 { return 0 }

// Snapshot is the exact shards of a dataset at one time; immutable.
type Snapshot struct {
	Dataset string
	ID      string // identity: 64 hex digits
	Shards  []*Shard
	Schema  *arrow.Schema
}

// New sorts shards by key and makes a snapshot of them.
func New(dataset string, shards []*Shard) (*Snapshot, error) { return nil, nil }

// Rows returns the rows of all shards.
func (s *Snapshot) Rows() int64 { return 0 }

// Bytes returns the decoded bytes of all shards, by their files' own word.
func (s *Snapshot) Bytes() int64 { return 0 }

// Corrupt returns why the selected shards cannot all be served.
func (s *Snapshot) Corrupt(shards []int) error { return nil }

// Block is the unit of order and of caching: a run of rows of one segment.
type Block struct {
	Shard, Segment int
	From, To       int64 // rows within the segment
	Row            int64 // number of the first row in the snapshot
	Bytes          int64 // estimate
}

// Blocks is the list of blocks of a selection of shards.
type Blocks struct{}

// Blocks returns the blocks of the given shards; nil means all.
func (s *Snapshot) Blocks(shards []int) *Blocks { return nil }

// Len returns the number of blocks.
func (b *Blocks) Len() int { return 0 }

// Rows returns the rows of all blocks.
func (b *Blocks) Rows() int64 { return 0 }

// At returns block i.
func (b *Blocks) At(i int) Block { return Block{} }

// Start returns the rows before block i within the selection.
func (b *Blocks) Start(i int) int64 { return 0 }

// Find returns the block that holds the given row of the selection.
func (b *Blocks) Find(row int64) int { return 0 }

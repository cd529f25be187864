// Package frame keeps off-heap regions, mapped files, frames and leases.
package frame

import (
	"errors"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/headrace/headrace/storage/budget"
)

// Errors of this package.
var (
	ErrCorrupt     = errors.New("corrupt column")
	ErrOverflow    = errors.New("offsets overflow 32 bits")
	ErrUnsupported = errors.New("type not supported")
	ErrLive        = errors.New("memory still in use")
)

// MaxFrame is the most bytes that one frame should hold.
const MaxFrame = 64 << 20

// Options of a Pool.
type Options struct {
	Idle   int64 // most bytes kept for reuse
	Poison bool  // overwrite freed memory: tests
}

// Stats are the numbers of a pool at one moment.
type Stats struct {
	Regions int   // regions live
	Live    int64 // bytes of live regions, by class size
	Idle    int64 // bytes kept for reuse
	Frames  int   // frames live
	Leases  int   // leases live
}

// Pool hands out regions.
type Pool struct{}

// Region is a piece of off-heap memory.
type Region struct{}

// Scratch is an arrow allocator.
type Scratch struct{}

// Lease is one holder's claim on a frame.
type Lease struct{}

// Buffer is a run of bytes.
type Buffer struct {
	Mem      []byte      // the bytes, when R is nil
	R        io.ReaderAt // else Len bytes of R from Off
	Off, Len int64
}

// Column describes one array.
type Column struct {
	Type     arrow.DataType
	Len      int64
	Nulls    int64
	Offset   int64
	Buffers  []Buffer
	Children []Column
}

// Piece is rows [From, To) of a batch.
type Piece struct {
	Columns  []Column
	From, To int64
}

func NewPool(Options) *Pool                                                  { panic("unfinished") }
func (p *Pool) Alloc(g *budget.Grant, k budget.Kind, n int) (*Region, error) { panic("unfinished") }
func (r *Region) Bytes() []byte                                              { panic("unfinished") }
func (r *Region) Free()                                                      { panic("unfinished") }
func (p *Pool) Scratch(g *budget.Grant) *Scratch                             { panic("unfinished") }
func (s *Scratch) Allocate(size int) []byte                                  { panic("unfinished") }
func (s *Scratch) Reallocate(size int, b []byte) []byte                      { panic("unfinished") }
func (s *Scratch) Free(b []byte)                                             { panic("unfinished") }
func (s *Scratch) Close()                                                    { panic("unfinished") }
func (p *Pool) Stats() Stats                                                 { panic("unfinished") }
func (p *Pool) Close() error                                                 { panic("unfinished") }
func (p *Pool) Publish(batch arrow.RecordBatch, r *Region) *Lease            { panic("unfinished") }
func (l *Lease) Batch() arrow.RecordBatch                                    { panic("unfinished") }
func (l *Lease) Bytes() int64                                                { panic("unfinished") }
func (l *Lease) Share() *Lease                                               { panic("unfinished") }
func (l *Lease) Release()                                                    { panic("unfinished") }
func ColumnOf(arr arrow.Array) Column                                        { panic("unfinished") }
func PieceOf(b arrow.RecordBatch, from, to int64) Piece                      { panic("unfinished") }
func Measure(s *arrow.Schema, pieces []Piece) (int64, error)                 { panic("unfinished") }
func Plain(mem memory.Allocator, arr arrow.Array) (arrow.Array, error)       { panic("unfinished") }
func (p *Pool) Assemble(g *budget.Grant, k budget.Kind, s *arrow.Schema, pieces []Piece) (*Lease, error) {
	panic("unfinished")
}

var _ memory.Allocator = (*Scratch)(nil)

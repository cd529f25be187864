package frame

import (
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Errors about columns; they come wrapped with the column's name.
var (
	// ErrCorrupt means that a column's buffers contradict each other or its type.
	ErrCorrupt = errors.New("corrupt column")
	// ErrOverflow means that the rows asked for do not fit 32-bit offsets.
	ErrOverflow = errors.New("offsets overflow 32 bits")
	// ErrUnsupported means a type that frames do not hold; its name is in the text.
	ErrUnsupported = errors.New("type not supported")
)

// Buffer is a run of bytes, in memory or in a file. The zero Buffer is an absent one.
type Buffer struct {
	Mem      []byte      // the bytes, when R is nil
	R        io.ReaderAt // else Len bytes of R from Off
	Off, Len int64
}

// Column describes one array by its buffers, in the order of arrow's array
// data: validity first where the type has one. Nothing about it is trusted.
type Column struct {
	Type     arrow.DataType
	Len      int64 // rows
	Nulls    int64 // -1: unknown
	Offset   int64 // rows to pass over at the front of the buffers
	Buffers  []Buffer
	Children []Column
	// Fill, if set, writes the buffers behind the validity to their place in the
	// frame, so that what has to be decoded is not copied after it: all rows of a
	// column of fixed width, of booleans or of byte arrays, which have Bytes bytes
	// in all. Such a column has no offset and is assembled once, whole.
	Fill  func(dst [][]byte) error
	Bytes int64
}

// Piece is rows [From, To) of columns that are of one length.
type Piece struct {
	Columns  []Column
	From, To int64
}

// ColumnOf views an array in memory; the column is good as long as arr is.
// Extension arrays show their storage.
func ColumnOf(arr arrow.Array) Column { return columnOf(arr.Data()) }

func columnOf(data arrow.ArrayData) Column {
	c := Column{
		Type:   storage(data.DataType()),
		Len:    int64(data.Len()),
		Nulls:  int64(data.NullN()),
		Offset: int64(data.Offset()),
	}
	for _, b := range data.Buffers() {
		c.Buffers = append(c.Buffers, bufferOf(b))
	}
	for _, child := range data.Children() {
		c.Children = append(c.Children, columnOf(child))
	}
	return c
}

func bufferOf(b *memory.Buffer) Buffer {
	if b == nil {
		return Buffer{}
	}
	return Buffer{Mem: b.Bytes()}
}

// storage looks through extension types, which only say what their storage means.
func storage(t arrow.DataType) arrow.DataType {
	for t != nil && t.ID() == arrow.EXTENSION {
		t = t.(arrow.ExtensionType).StorageType()
	}
	return t
}

// PieceOf views rows [from, to) of a batch in memory.
func PieceOf(b arrow.RecordBatch, from, to int64) Piece {
	p := Piece{From: from, To: to}
	for _, arr := range b.Columns() {
		p.Columns = append(p.Columns, ColumnOf(arr))
	}
	return p
}

// size returns the buffer's bytes.
func (b Buffer) size() int64 {
	if b.R == nil {
		return int64(len(b.Mem))
	}
	return b.Len
}

// absent tells whether there is no such buffer. An empty one counts: writers
// leave out the bytes of a bitmap that nobody needs.
func (b Buffer) absent() bool { return b.size() == 0 }

// hold checks that bytes [at, at+n) lie inside the buffer.
func (b Buffer) hold(at, n int64) error {
	if size := b.size(); at < 0 || n < 0 || n > size || at > size-n {
		return fmt.Errorf("%w: buffer of %d bytes ends before byte %d+%d", ErrCorrupt, b.size(), at, n)
	}
	return nil
}

// readAt fills dst from byte at.
func (b Buffer) readAt(dst []byte, at int64) error {
	if err := b.hold(at, int64(len(dst))); err != nil {
		return err
	}
	if b.R == nil {
		copy(dst, b.Mem[at:])
		return nil
	}
	n, err := b.R.ReadAt(dst, b.Off+at)
	switch {
	case n == len(dst):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		return fmt.Errorf("%w: %w", ErrCorrupt, io.ErrUnexpectedEOF)
	}
	return err
}

// view returns bytes [at, at+n): those in memory themselves, those in a file in tmp, grown as needed.
func (b Buffer) view(at, n int64, tmp *[]byte) ([]byte, error) {
	if err := b.hold(at, n); err != nil {
		return nil, err
	}
	if b.R == nil {
		return b.Mem[at : at+n : at+n], nil
	}
	if int64(cap(*tmp)) < n {
		*tmp = make([]byte, n)
	}
	mem := (*tmp)[:n]
	return mem, b.readAt(mem, at)
}

// buffer returns the column's i-th buffer; a missing one is absent.
func (c *Column) buffer(i int) Buffer {
	if i >= len(c.Buffers) {
		return Buffer{}
	}
	return c.Buffers[i]
}

package parquetfile

import (
	"github.com/apache/arrow-go/v18/arrow/bitutil"

	"github.com/headrace/headrace/storage/frame"
)

// bitmap tells which of some rows, or elements of lists, are not null. It takes
// memory when the first null comes: most columns may have nulls, and have none.
type bitmap struct {
	room
	least int    // the definition level from which on there is something
	bits  []byte // nil: all are set
	n     int    // bits so far
	set   int    // of these
}

func (b *bitmap) reset() { b.bits, b.n, b.set = nil, 0, 0 }

func (b *bitmap) nulls() int { return b.n - b.set }

// ones adds n set bits.
func (b *bitmap) ones(n int) error {
	if b.bits != nil {
		if err := b.grow(n); err != nil {
			return err
		}
		bitutil.SetBitsTo(b.bits, int64(b.n), int64(n), true)
	}
	b.added(n, n)
	return nil
}

// grow makes room for n more bits.
func (b *bitmap) grow(n int) error {
	before := b.bits == nil
	size, kept := bitutil.BytesForBits(int64(b.n+n)), bitutil.BytesForBits(int64(b.n))
	if before {
		kept = 0
	}
	bits, err := b.bytes(int(size), int(kept))
	if err != nil {
		return err
	}
	if b.bits = bits; before {
		bitutil.SetBitsTo(bits, 0, int64(b.n), true)
	}
	return nil
}

// added counts n bits that were added, so many of them set.
func (b *bitmap) added(n, set int) {
	b.n += n
	b.set += set
}

// count counts the set bits among n from bit at on.
func (b *bitmap) count(at, n int) int {
	if b == nil || b.nulls() == 0 {
		return n
	}
	return bitutil.CountSetBits(b.bits, at, n)
}

// buffer returns the bitmap for a frame: none if nothing is null.
func (b *bitmap) buffer() (frame.Buffer, int64) {
	if b == nil || b.nulls() == 0 {
		return frame.Buffer{}, 0
	}
	return frame.Buffer{Mem: b.bits[:bitutil.BytesForBits(int64(b.n))]}, int64(b.nulls())
}

// repeat makes b, of the elements of lists that are not null, one of the elements
// of all: those of null lists, which have size elements too, are null.
func (b *bitmap) repeat(lists *bitmap, size int) error {
	old := bitmap{room: b.room, bits: b.bits, n: b.n, set: b.set}
	fresh := bitmap{room: room{pool: b.pool, grant: b.grant}, least: b.least}
	bits, err := fresh.bytes(int(bitutil.BytesForBits(int64(lists.n*size))), 0)
	if err != nil {
		return err
	}
	clear(bits)
	at := 0
	for i := range lists.n {
		if !bitutil.BitIsSet(lists.bits, i) {
			continue
		}
		if old.bits == nil {
			bitutil.SetBitsTo(bits, int64(i*size), int64(size), true)
		} else {
			bitutil.CopyBitmap(old.bits, at, size, bits, i*size)
		}
		at += size
	}
	fresh.bits, fresh.n, fresh.set = bits, lists.n*size, old.set
	b.free()
	*b = fresh
	return nil
}

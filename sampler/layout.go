package sampler

import (
	"errors"
	"fmt"
	"math/bits"
	"sort"
)

// ErrLimit says that a plan is larger than orders can be; the text has the numbers.
var ErrLimit = errors.New("too large to be ordered")

// What an order can hold.
const (
	MaxRows   = 1 << 40 // rows of a plan
	MaxBlocks = 1 << 28 // blocks of a plan: about a petabyte
)

// Segment is a run of rows cut into blocks: block i holds its rows [⌊i·Rows/Blocks⌋, ⌊(i+1)·Rows/Blocks⌋).
type Segment struct{ Rows, Blocks int64 }

// Shard is what a plan reads of one object: its segments in file order. Segments without rows have no blocks.
type Shard struct {
	Identity string // names what the object is, for splits; nothing without one
	Row      int64  // number in the snapshot of the shard's first row
	Segments []Segment
}

// layout is the rows of a plan in stored order. Numbers of rows and blocks count over the plan's shards; with a split
// they count what is left, and what was there before is called stored. Segments without rows are not in it.
type layout struct {
	shards []part
	rows   []int64 // stored rows before each segment, and all
	blocks []int64 // stored blocks before each segment, and all
	first  []int64 // blocks before each segment, and all: blocks itself without a split
	kept   *kept   // nil without a split
}

// part is where a shard lies in the layout.
type part struct {
	segment  int   // its first one
	row      int64 // number in the snapshot of its first row
	identity string
}

// newLayout lays out the shards one after the other.
func newLayout(shards []Shard) (*layout, error) {
	n := 0
	for _, sh := range shards {
		n += len(sh.Segments)
	}
	l := &layout{shards: make([]part, 0, len(shards)), rows: make([]int64, 1, n+1), blocks: make([]int64, 1, n+1)}
	for _, sh := range shards {
		l.shards = append(l.shards, part{segment: len(l.rows) - 1, row: sh.Row, identity: sh.Identity})
		for _, seg := range sh.Segments {
			if seg.Rows == 0 {
				continue
			}
			if seg.Blocks < 1 || seg.Blocks > seg.Rows {
				return nil, fmt.Errorf("%w: %d blocks in a segment of %d rows", ErrPlan, seg.Blocks, seg.Rows)
			}
			rows, blocks := l.rows[len(l.rows)-1], l.blocks[len(l.blocks)-1]
			if seg.Rows > MaxRows-rows || seg.Blocks > MaxBlocks-blocks {
				return nil, fmt.Errorf("%w: at most %d rows in %d blocks can be", ErrLimit, int64(MaxRows), MaxBlocks)
			}
			l.rows, l.blocks = append(l.rows, rows+seg.Rows), append(l.blocks, blocks+seg.Blocks)
		}
	}
	l.first = l.blocks
	return l, nil
}

// layoutBytes is how much memory the layout of shards takes, before what a split adds.
func layoutBytes(shards []Shard) (bytes, blocks int64) {
	for _, sh := range shards {
		bytes += 32 + 24*int64(len(sh.Segments))
		for _, seg := range sh.Segments {
			blocks += min(max(seg.Blocks, 0), MaxBlocks)
		}
	}
	return bytes, blocks
}

// segments returns how many there are, those of which nothing is left included.
func (l *layout) segments() int { return len(l.rows) - 1 }

// count returns the number of blocks, total that of rows.
func (l *layout) count() int64 { return l.first[l.segments()] }

func (l *layout) total() int64 {
	if l.kept != nil {
		return l.kept.starts[l.count()]
	}
	return l.rows[l.segments()]
}

// segment returns the segment of a block.
func (l *layout) segment(block int64) int { return before(l.first, block) }

// start returns the rows before a block of the given segment; the block after the segment's last one counts as its own.
func (l *layout) start(segment int, block int64) int64 {
	if l.kept != nil {
		return l.kept.starts[block]
	}
	n := l.blocks[segment+1] - l.blocks[segment]
	return l.rows[segment] + scale(block-l.blocks[segment], l.rows[segment+1]-l.rows[segment], n)
}

// size returns the rows of a segment.
func (l *layout) size(segment int) int64 {
	if l.kept != nil {
		return l.kept.starts[l.first[segment+1]] - l.kept.starts[l.first[segment]]
	}
	return l.rows[segment+1] - l.rows[segment]
}

// begin returns the rows before any block; for the number of blocks, all rows.
func (l *layout) begin(block int64) int64 {
	if block == l.count() {
		return l.total()
	}
	return l.start(l.segment(block), block)
}

// find returns the block that holds a row.
func (l *layout) find(row int64) int64 {
	if l.kept != nil {
		return int64(before(l.kept.starts, row))
	}
	s := before(l.rows, row)
	rows, blocks := l.rows[s+1]-l.rows[s], l.blocks[s+1]-l.blocks[s]
	hi, lo := bits.Mul64(uint64(row-l.rows[s]+1), uint64(blocks))
	lo, borrow := bits.Sub64(lo, 1, 0)
	q, _ := bits.Div64(hi-borrow, lo, uint64(rows))
	return l.blocks[s] + int64(q)
}

// piece returns the given rows of a block of the given segment.
func (l *layout) piece(segment int, block, from, to int64) Piece {
	if l.kept != nil {
		block = l.kept.stored[block]
	}
	rows, blocks := l.rows[segment+1]-l.rows[segment], l.blocks[segment+1]-l.blocks[segment]
	begin := scale(block-l.blocks[segment], rows, blocks)
	end := scale(block-l.blocks[segment]+1, rows, blocks)
	shard := l.shards[l.shard(segment)]
	row := l.rows[segment] + begin - l.rows[shard.segment] + shard.row
	return Piece{Block: int(block), Row: row, Rows: end - begin, From: from, To: to}
}

// shard returns the shard of a segment: the last one that begins at or before it.
func (l *layout) shard(segment int) int {
	return sort.Search(len(l.shards), func(i int) bool { return l.shards[i].segment > segment }) - 1
}

// before returns the last index whose value is not beyond x, in ascending values from 0.
func before(values []int64, x int64) int {
	lo, hi := 0, len(values)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); values[mid] > x {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo - 1
}

// scale returns ⌊a·b/c⌋ for 0 ≤ a ≤ c, exactly.
func scale(a, b, c int64) int64 {
	if a == c { // the quotient is b itself
		return b
	}
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(q)
}

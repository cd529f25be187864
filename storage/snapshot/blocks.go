package snapshot

import (
	"iter"
	"math/bits"
	"sort"
)

// blockBytes is the size at which segments are cut into blocks: a block as
// stored then makes one message just under 4 MiB. It belongs to the algorithm
// of the order and never changes.
const blockBytes = 3_932_160

// Segment is what must be decoded from its start.
type Segment struct {
	Rows  int64
	Bytes int64 // when decoded, by the file's own word
	Facts any   // the format's own, small
}

// Blocks returns the number of blocks of the segment: about one per 3.75 MiB,
// at most one per row, at least one if there are rows.
func (s Segment) Blocks() int64 {
	if s.Rows == 0 {
		return 0
	}
	var k int64
	if s.Bytes > 0 {
		k = (s.Bytes-1)/blockBytes + 1
	}
	return max(1, min(s.Rows, k))
}

// Block returns the rows [from, to) of block i within the segment.
func (s Segment) Block(i int64) (from, to int64) {
	k := s.Blocks()
	return scale(i, s.Rows, k), scale(i+1, s.Rows, k)
}

// block returns the block that holds the given row of the segment.
func (s Segment) block(row int64) int64 {
	hi, lo := bits.Mul64(uint64(row+1), uint64(s.Blocks()))
	lo, borrow := bits.Sub64(lo, 1, 0)
	q, _ := bits.Div64(hi-borrow, lo, uint64(s.Rows))
	return int64(q)
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

// Block is the unit of order and of caching: a run of rows of one segment.
type Block struct {
	Shard, Segment int   // numbers in the snapshot and in the shard
	From, To       int64 // rows within the segment
	Row            int64 // number of the first row in the snapshot
	Bytes          int64 // when decoded whole, estimated
}

// Blocks is the list of blocks of a selection of shards, in stored order. It
// takes memory by segments, not by blocks: files may claim any number of rows.
type Blocks struct {
	segments []place
	blocks   int64
	rows     int64
	bytes    int64
}

// place is where a segment that has rows lies.
type place struct {
	Segment
	shard, number int
	block         int64 // blocks before it in the selection
	start         int64 // rows before it in the selection
	row           int64 // rows before it in the snapshot
}

// Blocks returns the blocks of the shards with the given numbers, in the order
// given; nil means all. Shards that cannot be read have none.
func (s *Snapshot) Blocks(shards []int) *Blocks {
	if shards == nil {
		return s.all
	}
	return s.newBlocks(shards)
}

func (s *Snapshot) newBlocks(shards []int) *Blocks {
	b := &Blocks{}
	for _, n := range s.selected(shards) {
		row := s.first[n]
		for i, seg := range s.Shards[n].segments() {
			if seg.Rows == 0 {
				continue
			}
			b.segments = append(b.segments, place{Segment: seg, shard: n, number: i, block: b.blocks, start: b.rows, row: row})
			b.blocks += seg.Blocks()
			b.rows += seg.Rows
			b.bytes += seg.Bytes
			row += seg.Rows
		}
	}
	return b
}

// Len returns the number of blocks.
func (b *Blocks) Len() int { return int(b.blocks) }

// Rows returns the rows of all blocks.
func (b *Blocks) Rows() int64 { return b.rows }

// Bytes returns the bytes of all blocks when decoded, by their files' own word.
func (b *Blocks) Bytes() int64 { return b.bytes }

// Largest returns the bytes of the largest block, estimated as in Block.
func (b *Blocks) Largest() int64 {
	var most int64
	for i := range b.segments {
		if s := b.segments[i].Segment; s.Bytes > 0 {
			most = max(most, (s.Bytes-1)/s.Blocks()+1)
		}
	}
	return most
}

// Segments yields the numbers of every shard and segment that has blocks.
func (b *Blocks) Segments() iter.Seq2[int, int] {
	return func(yield func(shard, segment int) bool) {
		for i := range b.segments {
			if !yield(b.segments[i].shard, b.segments[i].number) {
				return
			}
		}
	}
}

// At returns block i, 0 ≤ i < Len.
func (b *Blocks) At(i int) Block {
	p := b.holding(func(p *place) bool { return p.block > int64(i) })
	from, to := p.Block(int64(i) - p.block)
	return Block{
		Shard: p.shard, Segment: p.number, From: from, To: to, Row: p.row + from,
		Bytes: scale(to-from, p.Bytes, p.Rows),
	}
}

// Start returns the rows before block i within the selection, 0 ≤ i ≤ Len.
func (b *Blocks) Start(i int) int64 {
	if int64(i) == b.blocks {
		return b.rows
	}
	p := b.holding(func(p *place) bool { return p.block > int64(i) })
	from, _ := p.Block(int64(i) - p.block)
	return p.start + from
}

// Find returns the number of the block that holds the given row of the
// selection, 0 ≤ row < Rows.
func (b *Blocks) Find(row int64) int {
	p := b.holding(func(p *place) bool { return p.start > row })
	return int(p.block + p.Segment.block(row-p.start))
}

// holding returns the last segment that is not beyond.
func (b *Blocks) holding(beyond func(*place) bool) *place {
	n := sort.Search(len(b.segments), func(i int) bool { return beyond(&b.segments[i]) })
	return &b.segments[n-1]
}

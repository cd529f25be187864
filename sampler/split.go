package sampler

import (
	"fmt"
	"strconv"
)

// maxSplitBlock is the most rows of a block that a split takes apart, for it looks at every one. Blocks of data that
// have any width are far smaller.
const maxSplitBlock = 1 << 28

// kept is what a split leaves of a layout's blocks. Blocks of which nothing is left are not in it.
type kept struct {
	split  Split
	stored []int64 // number of each block before the split
	starts []int64 // rows before each block, and all
}

// keep leaves of every block what the split says. It takes O(blocks).
func (l *layout) keep(split Split) error {
	all := l.count()
	k := &kept{split: split, stored: make([]int64, 0, all), starts: make([]int64, 1, all+1)}
	first := make([]int64, 1, len(l.blocks))
	shard := -1
	for s := range l.segments() {
		for shard+1 < len(l.shards) && l.shards[shard+1].segment <= s {
			shard++
		}
		rows, blocks := l.rows[s+1]-l.rows[s], l.blocks[s+1]-l.blocks[s]
		if rows/blocks >= maxSplitBlock {
			return fmt.Errorf("%w: a block of %d rows cannot be split, %d rows can", ErrLimit, rows/blocks, maxSplitBlock)
		}
		number := l.blocks[s] - l.blocks[l.shards[shard].segment]
		for i, from := int64(0), int64(0); i < blocks; i++ {
			to := scale(i+1, rows, blocks)
			low, high, _ := split.of(l.shards[shard].identity, number+i, to-from)
			if from = to; low < high {
				k.stored = append(k.stored, l.blocks[s]+i)
				k.starts = append(k.starts, k.starts[len(k.starts)-1]+high-low)
			}
		}
		first = append(first, int64(len(k.stored)))
	}
	l.kept, l.first = k, first
	return nil
}

// of returns what a split keeps of a block of an object: the rows that the key's permutation takes to [low, high).
func (s Split) of(identity string, block, rows int64) (low, high int64, k key) {
	purpose := append(make([]byte, 0, 96), "split/"...)
	purpose = append(append(purpose, identity...), '/')
	k = newKey(s.Seed, 0, strconv.AppendInt(purpose, block, 10))
	others := k.others()
	u := int64(others.below(splitParts))
	return (int64(s.From)*rows + u) / splitParts, (int64(s.To)*rows + u) / splitParts, k
}

// choose lists the rows that the split keeps of a block, ascending and counted from its first row.
func (l *layout) choose(p Piece) []uint32 {
	s := before(l.blocks, int64(p.Block))
	shard := l.shards[l.shard(s)]
	low, high, k := l.kept.split.of(shard.identity, int64(p.Block)-l.blocks[shard.segment], p.Rows)
	rows := make([]uint32, 0, high-low)
	order := newPermutation(k, p.Rows)
	for x := range p.Rows {
		if v := order.At(x); low <= v && v < high {
			rows = append(rows, uint32(x))
		}
	}
	return rows
}

package sampler

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// ErrPlan says that a plan contradicts itself.
var ErrPlan = errors.New("no such plan")

// orderVersion names the order algorithm; plans of another version are other plans.
const orderVersion = 1

// Shuffle names an order.
type Shuffle uint8

// The orders; their numbers are part of the plan hash.
const (
	ShuffleNone   Shuffle = iota // as stored
	ShuffleWindow                // segments at random, rows at random within windows of blocks
	ShuffleFull                  // one permutation of all rows
)

// splitParts is how finely splits cut.
const splitParts = 10_000

// Split keeps about the part [From, To) of 10,000 of every block's rows, always the same ones.
type Split struct {
	Seed     uint64
	From, To uint32
}

// MaxGroups is the largest number of groups.
const MaxGroups = 65_536

// Plan is what a request means on a snapshot: all that decides which rows come in which order.
type Plan struct {
	Snapshot     string // the snapshot's identity in lower-case hex
	Shards       []int  // numbers of the shards read, ascending and distinct; always explicit
	Split        *Split // nil: all rows
	Shuffle      Shuffle
	WindowBlocks int64  // for ShuffleWindow, at least 1: see [WindowBlocks]
	Groups       int64  // 1 to MaxGroups; nothing without a shuffle
	Seed         uint64 // nothing without a shuffle
}

// Hash names the plan. Its first 32 hex digits are the plan's name in cursors.
func (p Plan) Hash() [32]byte {
	le := binary.LittleEndian
	b := make([]byte, 0, 128+len(p.Snapshot)+8*len(p.Shards))
	b = append(b, "headrace plan\x00"...)
	b = le.AppendUint32(b, orderVersion)
	b = le.AppendUint32(b, uint32(len(p.Snapshot)))
	b = append(b, p.Snapshot...)
	b = le.AppendUint64(b, uint64(len(p.Shards)))
	for _, shard := range p.Shards {
		b = le.AppendUint64(b, uint64(shard))
	}
	if p.Split == nil {
		b = append(b, 0)
	} else {
		b = le.AppendUint64(append(b, 1), p.Split.Seed)
		b = le.AppendUint32(le.AppendUint32(b, p.Split.From), p.Split.To)
	}
	p = p.normal()
	b = append(b, byte(p.Shuffle))
	b = le.AppendUint64(b, uint64(p.WindowBlocks))
	b = le.AppendUint64(b, uint64(p.Groups))
	b = le.AppendUint64(b, p.Seed)
	return sha256.Sum256(b)
}

// normal clears what does nothing, so that plans that mean the same are the same.
func (p Plan) normal() Plan {
	if p.Shuffle != ShuffleWindow {
		p.WindowBlocks = 0
	}
	if p.Shuffle == ShuffleNone {
		p.Groups, p.Seed = 1, 0
	}
	return p
}

// check finds what contradicts itself in a normal plan.
func (p Plan) check() error {
	switch {
	case p.Shuffle > ShuffleFull:
		return fmt.Errorf("%w: shuffle %d", ErrPlan, p.Shuffle)
	case p.Shuffle == ShuffleWindow && p.WindowBlocks < 1:
		return fmt.Errorf("%w: windows of %d blocks", ErrPlan, p.WindowBlocks)
	case p.Groups < 1 || p.Groups > MaxGroups:
		return fmt.Errorf("%w: %d groups, 1 to %d can be", ErrPlan, p.Groups, MaxGroups)
	case p.Split != nil && (p.Split.From >= p.Split.To || p.Split.To > splitParts):
		return fmt.Errorf("%w: split from %d to %d of %d", ErrPlan, p.Split.From, p.Split.To, splitParts)
	}
	return nil
}

// WindowBlocks is the window, in blocks, of a request that names none, for the blocks and the decoded bytes of the
// plan's shards before a split: about 256 MiB, and neither so few blocks that rows stay among their neighbours nor more
// than can be kept track of.
func WindowBlocks(blocks, bytes int64) int64 {
	const least, most, size = 8, 4096, 1 << 28
	if bytes <= 0 {
		return least
	}
	hi, lo := bits.Mul64(size, uint64(blocks))
	if hi >= uint64(bytes) {
		return most
	}
	n, _ := bits.Div64(hi, lo, uint64(bytes))
	return int64(min(max(n, least), most))
}

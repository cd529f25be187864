package sampler

import (
	"crypto/sha256"
	"encoding/binary"
)

// orderVersion names the order algorithm; plans of another version are other plans.
const orderVersion = 1

// Plan is what a request means on a snapshot: all that decides which rows come in which order.
type Plan struct {
	Snapshot string // the snapshot's identity in lower-case hex
	Shards   []int  // numbers of the shards read, ascending and distinct; always explicit
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
	b = append(b, 0)          // no split
	b = append(b, 0)          // shuffle: none
	b = le.AppendUint64(b, 0) // window_blocks
	b = le.AppendUint64(b, 1) // groups
	b = le.AppendUint64(b, 0) // seed
	return sha256.Sum256(b)
}

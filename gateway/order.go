package gateway

import (
	"encoding/hex"
	"fmt"

	"github.com/headrace/headrace/gateway/wire"
	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

// ordered is which rows a request means, in which order, and who takes which of them.
type ordered struct {
	shards   []int // selected, ascending
	blocks   *snapshot.Blocks
	bytes    int64 // of the wanted columns when decoded, by their files' own word
	plan     sampler.Plan
	order    *sampler.Order
	schedule *sampler.Schedule
	batch    int64 // rows that all ranks take in a step; 0: a step is a block
	first    int64 // the first step to deliver
	ranks    int64
	rank     int64 // -1: all of them
	workers  int64
	worker   int64
	hash     string // of the plan, 64 hex digits
	name     planName
	traits   traits
}

// totals counts what the request delivers: to one stream, or to all ranks.
func (o *ordered) totals() sampler.Totals {
	st := o.stream(o.rank)
	if o.rank < 0 {
		st.Ranks = 1 // together they take what one would
	}
	return o.schedule.Share(st, o.first)
}

// stream is the share of a rank.
func (o *ordered) stream(rank int64) sampler.Stream {
	return sampler.Stream{Rank: max(rank, 0), Ranks: o.ranks, Worker: o.worker, Workers: o.workers}
}

// arrange finds the shards, their order and steps, and the place to begin. What does not fit so many bytes for streams is
// refused.
func (s *Server) arrange(tenant string, snap *snapshot.Snapshot, columns *schema.Projection, req *wire.Request, limit int64) (o ordered, err error) {
	o = ordered{ranks: req.WorldSize, rank: 0, workers: req.NumWorkers, batch: req.GlobalBatchSize}
	if o.batch == 0 {
		o.batch = req.BatchSize * req.WorldSize
	}
	switch {
	case req.Rank != nil:
		o.rank = *req.Rank
	case o.ranks > 1:
		o.rank = -1
	}
	if req.WorkerID != nil {
		o.worker = *req.WorkerID
	}
	if o.shards, err = selectShards(snap, req.Shards); err != nil {
		return o, err
	}
	if err := snap.Corrupt(o.shards); err != nil {
		return o, fmt.Errorf("dataset %q: %w: leave it out with shards, or for everybody with exclude in the config", req.Dataset, err)
	}
	o.blocks = snap.Blocks(o.shards)
	o.plan = planOf(snap, o.shards, o.blocks, req)
	hash := o.plan.Hash()
	o.hash = hex.EncodeToString(hash[:])
	o.traits = traitsOf(o.plan, len(snap.Shards))
	o.name = planName{tenant, req.Dataset, o.hash[:cursorDigits]}
	s.plans.add(o.name, o.traits)
	o.bytes = s.Store.Word(snap, columns, o.blocks)
	if err := affordable(o.plan, int64(o.blocks.Len()), o.bytes, limit); err != nil {
		return o, err
	}
	if o.order, err = sampler.NewOrder(o.plan, layout(snap, o.shards)); err != nil {
		return o, err
	}
	return o, o.cut(req, &s.plans)
}

// planOf is all that decides the order.
func planOf(snap *snapshot.Snapshot, shards []int, blocks *snapshot.Blocks, req *wire.Request) sampler.Plan {
	p := sampler.Plan{
		Snapshot: snap.ID, Shards: shards, Shuffle: shuffles[req.Shuffle],
		WindowBlocks: req.WindowBlocks, Groups: req.Groups, Seed: req.Seed,
	}
	if p.Shuffle == sampler.ShuffleWindow && p.WindowBlocks == 0 {
		p.WindowBlocks = sampler.WindowBlocks(int64(blocks.Len()), blocks.Bytes())
	}
	if req.Split != nil {
		p.Split = &sampler.Split{Seed: req.Split.Seed, From: uint32(req.Split.From), To: uint32(req.Split.To)}
	}
	return p
}

var shuffles = map[string]sampler.Shuffle{"none": sampler.ShuffleNone, "window": sampler.ShuffleWindow, "full": sampler.ShuffleFull}

var tails = map[string]sampler.Tail{"keep": sampler.Keep, "drop": sampler.Drop, "pad": sampler.Pad}

// layout is the shards as the order sees them.
func layout(snap *snapshot.Snapshot, shards []int) []sampler.Shard {
	all := make([]sampler.Shard, 0, len(shards))
	for _, i := range shards {
		sh := snap.Shards[i]
		out := sampler.Shard{Identity: sh.Identity(), Row: snap.FirstRow(i), Segments: make([]sampler.Segment, len(sh.Segments))}
		for j, seg := range sh.Segments {
			out.Segments[j] = sampler.Segment{Rows: seg.Rows, Blocks: seg.Blocks()}
		}
		all = append(all, out)
	}
	return all
}

// affordable refuses orders of so many blocks and bytes of which too much would have to be in memory together: more than half of
// what streams may use.
func affordable(p sampler.Plan, blocks, bytes, memory int64) error {
	limit := memory / 2
	switch {
	case p.Shuffle == sampler.ShuffleFull && bytes > limit:
		return fmt.Errorf("%w: shuffle full holds all %d bytes of the plan, %d can be: use window, or fewer shards or columns",
			budget.ErrTooLarge, bytes, limit)
	case p.Shuffle == sampler.ShuffleWindow && windowBytes(p, blocks, bytes) > limit:
		each := meanBlock(blocks, bytes)
		return fmt.Errorf("%w: windows of window_blocks %d, each of about %d bytes, in groups %d need more than the %d bytes that can be: %s",
			budget.ErrTooLarge, min(p.WindowBlocks, blocks), each, p.Groups, limit, smaller(limit/frame.Cost(each), p))
	}
	return nil
}

// smaller says how to ask for windows of at most so many blocks in all groups together.
func smaller(blocks int64, p sampler.Plan) string {
	switch {
	case blocks >= p.Groups:
		return fmt.Sprintf("window_blocks may be %d at most, unless the gateway gets more memory", blocks/p.Groups)
	case blocks > 0:
		return fmt.Sprintf("groups may be %d at most, each with windows of window_blocks 1", blocks)
	default:
		return "not even one block can be; the gateway needs more memory"
	}
}

// meanBlock is the bytes of a block of so many.
func meanBlock(blocks, bytes int64) int64 { return max(1, bytes/max(1, blocks)) }

// windowBytes is the memory of one window of every group, of a plan of so many blocks and bytes: what its streams need
// together, and as much again to read ahead.
func windowBytes(p sampler.Plan, blocks, bytes int64) int64 {
	n := blocks
	switch p.Shuffle {
	case sampler.ShuffleNone:
		n = min(n, 1)
	case sampler.ShuffleWindow:
		n = min(min(n, p.WindowBlocks)*p.Groups, n+p.Groups-1) // a block at a border is in two groups
	}
	return n * frame.Cost(meanBlock(blocks, bytes))
}

// cut makes the steps, and finds the first one that was not yet delivered.
func (o *ordered) cut(req *wire.Request, known *plans) (err error) {
	c := sampler.Cut{Batch: o.batch, Tail: tails[req.Tail], Start: sampler.Place{Epoch: req.Epoch}, End: req.Epoch + req.NumEpochs}
	if req.Tail == "" && req.WorldSize > 1 {
		c.Tail = sampler.Drop
	}
	if req.NumEpochs < 0 {
		c.End = sampler.Endless
	}
	if req.Start != nil {
		if c.Start, err = o.placeOf("start", req.Start, known); err != nil {
			return err
		}
	}
	if o.schedule, err = sampler.NewSchedule(o.order, c); err != nil {
		return err
	}
	if req.After == nil {
		return nil
	}
	after, err := o.placeOf("after", req.After, known)
	if err != nil {
		return err
	}
	if o.first, err = o.schedule.Find(after); err != nil {
		return fmt.Errorf("after: %w", err)
	}
	return nil
}

// placeOf reads a cursor, which must be of this plan.
func (o *ordered) placeOf(field string, c *wire.Cursor, known *plans) (sampler.Place, error) {
	if other := (planName{o.name.tenant, o.name.dataset, c.Plan}); other != o.name {
		return sampler.Place{}, fmt.Errorf("%w: %s names plan %s, this request is plan %s: %s",
			errPlan, field, c.Plan, o.name.digits, known.difference(other, o.traits))
	}
	return sampler.Place{Epoch: c.Epoch, Rows: c.Rows}, nil
}

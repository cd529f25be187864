package feed

import (
	"context"

	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/storage"
	"github.com/headrace/headrace/storage/cache"
)

// outlook follows what the windows of a plan do to the memory that blocks are kept in, as streams do that enter one when they
// have left the one before, and then have the next one read ahead. Of several, the last is still in the one before, and it is
// the first that has one read ahead: not the leader, for which alone the convoy's memory is.
type outlook struct {
	plan   *plan
	cache  *cache.Forecast
	work   storage.Work
	fit    int   // so many windows fit the convoy's memory
	alone  bool  // its leader has all windows decoded
	firm   int64 // bytes beside, that windows may have until they are left
	depth  int   // so many windows are read ahead
	behind int   // so many are in use beside the one that was entered last
	apart  bool  // each epoch is read by streams of its own

	ends  []uint64         // a bit for each block that is the last of its segment
	inUse []inUse          // those that are left first come first
	open  map[int]struct{} // the blocks before which a scanner stands
}

// inUse is a window that is read, and the block that it begins with.
type inUse struct {
	*cache.Reading
	block int
}

// outlook is that of so many streams, whose convoy has memory for its leader and who may have as much as firm says beside.
func (p *plan) outlook(c *cache.Forecast, streams, leading, firm int64) *outlook {
	span := p.walk.Schedule
	o := &outlook{
		plan: p, cache: c, work: p.sizes.Work(p.walk.Blocks), firm: firm, alone: streams == 1 && p.groups() == 1, depth: 1,
		apart: span.End() == span.Begin().Epoch+1, open: map[int]struct{}{},
	}
	if streams > 1 {
		o.behind = 1
	}
	o.find()
	o.fit = int(leading / max(p.window(span.Begin().Epoch), 1))
	if p.walk.Plan.Shuffle == sampler.ShuffleNone {
		o.depth = int((p.atOnce() + streams - 1) / streams)
	}
	return o
}

// endsBytes is the memory that the ends of segments take among so many blocks.
func endsBytes(blocks int) int64 { return int64(blocks)/8 + 8 }

// find finds the blocks that are the last of their segments.
func (o *outlook) find() {
	w := o.plan.walk
	o.ends = make([]uint64, (w.Blocks.Len()+63)/64)
	block := int64(-1)
	for shard, segment := range w.Blocks.Segments() {
		block += w.Snapshot.Shards[shard].Segments[segment].Blocks()
		o.ends[block/64] |= 1 << (block % 64)
	}
}

// last tells whether a block is the last of its segment.
func (o *outlook) last(block int) bool { return o.ends[block/64]>>(block%64)&1 == 1 }

// follows tells whether the scanner of one block goes on to another.
func (o *outlook) follows(block, next int) bool {
	if next <= block || next > block+o.plan.gap() {
		return false
	}
	for ; block < next; block++ {
		if o.last(block) {
			return false
		}
	}
	return true
}

// foresee follows epochs from one on, and tells what the last of them come to.
func (o *outlook) foresee(ctx context.Context, first int64, out *Forecast) error {
	read := map[string]int64{}
	for n := range int64(settling + foreseen) {
		if n == settling {
			o.cache.Room()
			clear(read)
		}
		if err := o.epoch(ctx, first+n, read); err != nil {
			return err
		}
	}
	out.Room = o.cache.Room()
	all := float64(max(read[cache.Memory]+read[cache.Disk]+read[""], 1))
	out.Hits, out.DiskHits = float64(read[cache.Memory])/all, float64(read[cache.Disk])/all
	out.Fetched = out.Hot - int64((out.Hits+out.DiskHits)*float64(out.Hot))
	return nil
}

// epoch follows one, and counts the bytes that it reads of blocks that stand for all, by the tier that would have them.
func (o *outlook) epoch(ctx context.Context, number int64, read map[string]int64) error {
	for pieces := range windowsOf(o.plan.walk.Order.Epoch(number)) {
		w := o.begin(pieces)
		o.decode(w, pieces, read)
		for o.inUse = append(o.inUse, w); len(o.inUse) > o.depth+o.behind; {
			o.leave()
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if o.apart {
		for len(o.inUse) > 0 {
			o.leave()
		}
		clear(o.open)
		o.cache.Borrow(0)
	}
	return nil
}

// begin begins to read a window ahead of those in use: with the convoy's memory if that is free, else with what the cache gives up
// for it. Where there is none, it waits for the convoy's.
func (o *outlook) begin(pieces []sampler.Piece) inUse {
	if n := len(o.inUse); n > 1 && o.follows(o.inUse[n-1].block, pieces[0].Block) && o.plan.walk.Plan.Shuffle == sampler.ShuffleNone {
		for len(o.inUse) > 1 { // it waits for the scanner
			o.leave()
		}
	}
	own, firm := 0, o.firm
	for _, w := range o.inUse {
		if firm -= w.Aside(); w.Own() {
			own++
		}
	}
	if len(o.inUse) == 0 || o.alone && len(o.inUse) == 1 && own < o.fit {
		firm = -1
	}
	return inUse{o.cache.Begin(len(pieces), func(i int) int { return pieces[i].Block }, firm), pieces[0].Block}
}

func (o *outlook) leave() {
	o.inUse[0].End()
	o.inUse = o.inUse[1:]
}

// decode reads a window's blocks, with what scanners borrow for it. As many as are decoded at once are busy at the same time, even
// if their segment ends.
func (o *outlook) decode(w inUse, pieces []sampler.Piece, read map[string]int64) {
	atOnce := int(o.plan.atOnce())
	var busy []bool  // of late, and whether their scanners stay open
	fetched := false // something by the scanner of the block before
	for i, piece := range pieces {
		if i == 0 || !o.follows(pieces[i-1].Block, piece.Block) {
			fetched = false
		}
		bytes, tier := w.Read(piece.Block)
		if read[tier] += bytes; tier != "" {
			o.pass(piece.Block)
			continue
		}
		if !fetched {
			busy, fetched = append(busy[max(0, len(busy)-atOnce+1):], false), true
		}
		o.follow(piece.Block, busy)
	}
	o.borrow(len(o.open), 0, 0)
}

// most is the most that is borrowed: one scanner is open in each lane, and as many as can be are busy. What makes others go at the
// end of an epoch makes those again go, so decoders are to have what they ask for, too.
func (o *outlook) most() int64 {
	p, lanes := o.plan, int64(0)
	for range p.stretches(abreast(p.epoch(p.walk.Schedule.Begin().Epoch), 0)) { // other windows are alike
		lanes++
	}
	open := min(lanes, maxOpen)*o.work.Open + min(p.atOnce(), lanes)*max(o.work.Begin-o.work.Open, 0)
	return max(p.atOnce()*p.scratch(p.need()), open)
}

// follow has a scanner read a block while others are busy; this one is the last of them. It stays open if its segment goes on.
func (o *outlook) follow(block int, busy []bool) {
	most := o.work.Begin
	if _, open := o.open[block]; open {
		most = o.work.Onward
	}
	delete(o.open, block)
	ending := 0
	for _, stays := range busy {
		if !stays {
			ending++
		}
	}
	o.borrow(len(o.open)+ending, int64(len(busy)), most)
	busy[len(busy)-1] = o.stand(block)
}

// pass has the scanner before a block that was found go on behind it.
func (o *outlook) pass(block int) {
	if _, open := o.open[block]; open {
		delete(o.open, block)
		o.stand(block)
	}
}

// stand keeps a scanner open behind a block, if something is there, and tells whether it does.
func (o *outlook) stand(block int) bool {
	goesOn := !o.last(block) && len(o.open) < maxOpen
	if goesOn {
		o.open[block+1] = struct{}{}
	}
	return goesOn
}

// borrow says how many scanners are open, and how many of them are busy. What those take grows while they decode a block: when
// one is at its most, others are halfway.
func (o *outlook) borrow(open int, busy, most int64) {
	n, grown := int64(open)*o.work.Open, max(most-o.work.Open, 0)
	if busy > 0 {
		n += grown + (busy-1)*grown/2
	}
	o.cache.Borrow(n)
}

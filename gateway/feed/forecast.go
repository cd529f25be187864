package feed

import (
	"context"
	"fmt"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/cache"
)

// Forecast is what reading a plan's epochs one after the other comes to. Sizes are bytes of blocks in memory.
type Forecast struct {
	Hot      int64   // that an epoch reads
	Limit    int64   // that streams may use
	Reserved int64   // what the streams take of it; if it is more, they wait for each other
	Enough   int64   // what Limit would have to be for all that is hot to stay
	Room     int64   // what is left to keep blocks in
	Policy   string  // by which they are kept
	Hits     float64 // the part of an epoch's bytes that is there, once some epochs were read
	Fetched  int64   // the rest, which each of those epochs fetches
}

// How many epochs a policy may take to find out what suits, and how many are looked at then.
const (
	settling = 6
	foreseen = 2
)

// Forecast foresees what so many streams, which together read a walk's plan over and over, find in memory that nobody
// else wants, with so many bytes for streams and under a policy: it follows the plan's own order, and reads nothing.
func (f *Feed) Forecast(ctx context.Context, w Walk, streams int64, policy string, limit int64) (Forecast, error) {
	p := f.shape(w)
	grant, err := f.ledger.Admit(ctx, 2*w.Order.EpochBytes()+cache.ForecastBytes(w.Blocks.Len()))
	if err != nil {
		return Forecast{}, err
	}
	defer grant.Close()
	c, err := cache.NewForecast(policy, w.again(), w.Blocks.Len(), func(block int) int64 { return p.sizes.Frames(w.Blocks.At(block)) })
	if err != nil {
		return Forecast{}, err
	}
	first := w.Schedule.Begin().Epoch
	out := Forecast{Hot: c.Bytes(), Limit: limit, Policy: c.Policy()}
	leading, own := p.leading(first), (&Stream{plan: p, walk: w}).own()
	if most := limit - p.setAside(limit); leading+own > most {
		return Forecast{}, fmt.Errorf("%d bytes needed, of %d that are there for streams: %w: give more memory, or ask for smaller windows or batches",
			leading+own, most, budget.ErrTooLarge)
	}
	out.Reserved = leading + streams*own
	// Decoders borrow what they work with, so the last blocks would make others go, and those again others.
	out.Enough = out.Hot + out.Reserved + int64(max(f.decoders.Min, f.store.Flying(w.Snapshot)))*p.scratch(p.need())
	out.Room = p.room(out, first)
	c.Give(out.Room)
	var read, hits int64
	for n := range int64(settling + foreseen) {
		r, h, err := p.foresee(ctx, c, first+n)
		if err != nil {
			return Forecast{}, err
		}
		if n >= settling {
			read, hits = read+r, hits+h
		}
	}
	out.Hits = float64(hits) / float64(max(read, 1))
	out.Fetched = out.Hot - int64(out.Hits*float64(out.Hot))
	return out, nil
}

// setAside is what of so many bytes for streams is only decoders', by the gateway's own proportions.
func (p *plan) setAside(limit int64) int64 {
	return int64(float64(limit) * float64(p.feed.ledger.Slot()) / float64(p.feed.ledger.Stats().Limit))
}

// room is what is left to keep blocks in: windows read ahead take what of them is not there. One that holds the epoch is in
// use until the next epoch has it.
func (p *plan) room(f Forecast, epoch int64) int64 {
	left, window := max(0, f.Limit-f.Reserved), p.window(epoch)
	if window >= f.Hot {
		return max(left, f.Hot)
	}
	missing := 1 - min(1, float64(left)/float64(max(f.Hot, 1)))
	return max(0, left-int64(missing*float64(window)))
}

// foresee follows an epoch, and returns the bytes that it reads of blocks that stand for all, and those that would be there.
func (p *plan) foresee(ctx context.Context, c *cache.Forecast, number int64) (read, hits int64, err error) {
	for pieces := range windowsOf(p.walk.Order.Epoch(number)) {
		for _, piece := range pieces {
			bytes, hit := c.Read(piece.Block)
			if read += bytes; hit {
				hits += bytes
			}
		}
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
	}
	return read, hits, nil
}

package feed

import (
	"context"
	"fmt"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/cache"
	"github.com/headrace/headrace/storage/frame"
)

// Forecast is what reading a plan's epochs one after the other comes to. Sizes are bytes of blocks in memory.
type Forecast struct {
	Hot      int64   // that an epoch reads
	Limit    int64   // that streams may use
	Reserved int64   // what the streams take of it; if it is more, they wait for each other
	Enough   int64   // what Limit would have to be for all that is hot to stay
	Room     int64   // what is left to keep blocks in, when that is least
	Policy   string  // by which they are kept
	Disk     int64   // that a cache on disk may have of them
	Mapped   int64   // that an epoch reads beside Hot from files which are mapped: nothing is fetched for them, and nothing kept
	Hits     float64 // the part of Hot that is in memory, once some epochs were read
	DiskHits float64 // and the part that is not, but on disk
	Fetched  int64   // the rest, which each of those epochs fetches
}

// How many epochs a policy may take to find out what suits, and how many are looked at then.
const (
	settling = 6
	foreseen = 6
)

// Forecast foresees what so many streams, which together read a walk's plan over and over, find in memory that nobody
// else wants, with so many bytes for streams and under a policy, and on a disk for so many bytes of blocks: it follows the
// plan's own order, and reads nothing.
func (f *Feed) Forecast(ctx context.Context, w Walk, streams int64, policy string, limit, disk int64) (Forecast, error) {
	p := f.shape(w)
	grant, err := f.ledger.Admit(ctx, 2*w.Order.EpochBytes()+cache.ForecastBytes(w.Blocks.Len())+endsBytes(w.Blocks.Len()))
	if err != nil {
		return Forecast{}, err
	}
	defer grant.Close()
	c, err := cache.NewForecast(policy, w.again(), w.Blocks.Len(), func(block int) cache.Size {
		b := w.Blocks.At(block)
		return cache.Size{Bytes: p.sizes.Likely(b), Claim: p.sizes.Frames(b), InPlace: p.sizes.InPlace(b)}
	})
	if err != nil {
		return Forecast{}, err
	}
	first := w.Schedule.Begin().Epoch
	out := Forecast{Hot: c.Bytes(), Mapped: c.InPlace(), Limit: limit, Policy: c.Policy()}
	if p.dear() {
		out.Disk = disk
	}
	most, own := limit-p.setAside(limit), (&Stream{plan: p, walk: w}).own()
	leading := p.leading(first, most-own)
	if leading+own > most {
		return Forecast{}, fmt.Errorf("%d bytes needed, of %d that are there for streams: %w: give more memory, or ask for smaller windows or batches",
			leading+own, most, budget.ErrTooLarge)
	}
	out.Reserved = leading + streams*own
	o := p.outlook(c, streams, leading, most-out.Reserved)
	out.Enough = out.Hot + out.Reserved + o.most()
	c.Give(max(0, limit-out.Reserved))
	c.GiveDisk(out.Disk, frame.InPlace(w.Projection.Schema) && out.Hot/int64(max(w.Blocks.Len(), 1)) >= frame.LeastMapped)
	err = o.foresee(ctx, first, &out)
	return out, err
}

// dear tells whether blocks of the plan are kept on disk. All its shards are of one format.
func (p *plan) dear() bool {
	return p.walk.Blocks.Len() > 0 && p.feed.store.Dear(p.walk.Snapshot, p.walk.Blocks.At(0).Shard)
}

// setAside is what of so many bytes for streams is only decoders', by the gateway's own proportions.
func (p *plan) setAside(limit int64) int64 {
	return int64(float64(limit) * float64(p.feed.ledger.Slot()) / float64(p.feed.ledger.Stats().Limit))
}

// atOnce is how many blocks are decoded at a time, at least.
func (p *plan) atOnce() int64 {
	return int64(max(p.feed.decoders.Min, p.feed.store.Flying(p.walk.Snapshot)))
}

package arrowfile

import (
	"context"

	"github.com/headrace/headrace/storage/bucket"
)

// small is how long a message may be to be fetched whole, whatever is wanted of
// it: less would not be faster.
const small = 4 << 20

// approach lets the batch at place, and the dictionaries that apply to it, be
// read ahead if the object lies in a store: there every read costs a round trip.
// Of long messages only the metadata are, which say where the rest is.
func (d *decoder) approach(ctx context.Context, place Place) {
	if !d.obj.Remote() {
		return
	}
	d.store = d.obj
	for _, m := range d.messages {
		d.ranges = append(d.ranges, m.front())
	}
	d.ahead(ctx, place.front())
}

// front is what is fetched of a message before it was looked at.
func (p Place) front() bucket.Range {
	whole := int64(p.Meta) + p.Body
	if whole > small {
		whole = int64(p.Meta)
	}
	return bucket.Range{Off: p.Offset, Len: max(whole, readAhead)} // a window reads that much
}

// near lets the buffers of c be read ahead, unless the message at place was
// short enough to be fetched whole.
func (d *decoder) near(ctx context.Context, place Place, c *columns) {
	if d.store == nil || int64(place.Meta)+place.Body <= small {
		return
	}
	var buffers []bucket.Range
	for _, s := range c.arrays {
		buffers = append(buffers, s.ranges(c.base)...)
	}
	d.ahead(ctx, buffers...)
}

// ranges are the buffers of s and below in a body at base.
func (s *stored) ranges(base int64) []bucket.Range {
	var all []bucket.Range
	for _, p := range s.parts {
		all = append(all, bucket.Range{Off: base + p.off, Len: p.len})
	}
	for _, kid := range s.kids {
		all = append(all, kid.ranges(base)...)
	}
	return all
}

// ahead begins to read ahead anew. What is on its way is compressed input; where
// there is no memory for it, reads go to the store as they are made.
func (d *decoder) ahead(ctx context.Context, ranges ...bucket.Range) {
	d.retreat()
	d.obj = d.store.Ahead(ctx, bucket.Reading{Again: true, Ranges: append(ranges, d.ranges...), Memory: d.pool.Ahead(d.grant)})
}

// retreat ends that.
func (d *decoder) retreat() {
	if d.store != nil && d.obj != d.store {
		_ = d.obj.Close() // it was only read
		d.obj = d.store
	}
}

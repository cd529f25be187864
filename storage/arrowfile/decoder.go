package arrowfile

import (
	"context"
	"io"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

// decoder reads the messages that one segment consists of: its record batch
// and the dictionaries that apply to it. What it decompresses, and the
// dictionaries that it loads, stay until close.
type decoder struct {
	obj      *bucket.Object
	pool     *frame.Pool
	grant    *budget.Grant
	messages []Dictionary // those that apply, in order
	loaded   []*dictionary
	regions  []*frame.Region
	store    *bucket.Object // the object itself, where obj reads ahead
	ranges   []bucket.Range // of the dictionaries, there
}

func (d *decoder) close() {
	d.retreat()
	for _, dict := range d.loaded {
		dict.lease.Release()
	}
	d.loaded = nil
	d.free(0)
}

// free gives back all regions but the first keep.
func (d *decoder) free(keep int) {
	for _, r := range d.regions[keep:] {
		r.Free()
	}
	d.regions = d.regions[:keep]
}

// columns are arrays of one message that are ready to be copied.
type columns struct {
	names  []string
	arrays []*stored
	rows   int64
	base   int64 // where the message's body begins
}

// batch reads the record batch at place: of its columns, which have the fields
// and ids of the shard, those that want names, at any depth, as want's types.
func (d *decoder) batch(ctx context.Context, place Place, s *arrow.Schema, ids []int64, want *arrow.Schema) (*columns, error) {
	m, err := (&window{obj: d.obj}).message(ctx, place.Offset)
	if err != nil {
		return nil, err
	}
	b, err := m.batchAt(place)
	if err != nil {
		return nil, err
	}
	all, err := b.columns(types(s.Fields()), ids)
	if err != nil {
		return nil, err
	}
	whole := &stored{typ: arrow.StructOf(s.Fields()...), kids: all}
	picked, err := whole.pick(arrow.StructOf(want.Fields()...))
	if err != nil {
		return nil, err
	}
	c := &columns{arrays: picked.kids, rows: b.rows, base: place.body()}
	for _, f := range want.Fields() {
		c.names = append(c.names, f.Name)
	}
	d.near(ctx, place, c)
	return c, d.inflate(d.obj.ReaderAt(ctx), c, b.codec)
}

// values reads the values in the dictionary message at place as type want.
func (d *decoder) values(ctx context.Context, place Place, v values, want arrow.DataType) (*columns, error) {
	m, err := (&window{obj: d.obj}).message(ctx, place.Offset)
	if err != nil {
		return nil, err
	}
	head, err := m.dictionaryAt(place)
	if err != nil {
		return nil, err
	}
	all, err := head.batch.columns([]arrow.DataType{v.typ}, v.ids)
	if err != nil {
		return nil, err
	}
	picked, err := all[0].pick(want)
	if err != nil {
		return nil, err
	}
	c := &columns{names: []string{"values"}, arrays: []*stored{picked}, rows: head.batch.rows, base: place.body()}
	return c, d.inflate(d.obj.ReaderAt(ctx), c, head.batch.codec)
}

// batchAt and dictionaryAt read a header again that Describe has read before.
func (m *message) batchAt(p Place) (*batch, error) {
	if m == nil || m.place != p {
		return nil, corruptf("the message at %d is not what it was", p.Offset)
	}
	return m.batch()
}

func (m *message) dictionaryAt(p Place) (*dictionaryHead, error) {
	if m == nil || m.place != p {
		return nil, corruptf("the message at %d is not what it was", p.Offset)
	}
	return m.dictionary()
}

// inflate decompresses the buffers of c, if they are compressed.
func (d *decoder) inflate(r io.ReaderAt, c *columns, how codec) error {
	if how == uncompressed {
		return nil
	}
	f := &inflater{r: r, base: c.base, codec: how, pool: d.pool, grant: d.grant}
	defer func() { // also when a decoder panics
		f.close()
		d.regions = append(d.regions, f.regions...)
	}()
	for _, s := range c.arrays {
		if err := f.array(s); err != nil {
			return err
		}
	}
	return nil
}

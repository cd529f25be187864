package arrowfile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"hash"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/snapshot"
)

const (
	maxFooter   = 64 << 20 // bytes
	maxMessages = 1 << 22  // of one object
	maxTotal    = 1 << 50  // rows, and bytes by their own word, of one object
)

// Facts are what a Scanner has to know about a shard as a whole.
type Facts struct {
	// IDs are the ids of the dictionaries of all dictionary-encoded fields of
	// the schema: fields in pre-order, those of a dictionary's values after it.
	IDs []int64
	// Dictionaries are all dictionary messages in the order they apply.
	Dictionaries []Dictionary
}

// Dictionary is one dictionary message.
type Dictionary struct {
	Place
	ID    int64
	Delta bool  // it adds to what the id stands for; else it replaces that
	Bytes int64 // counted like those of a segment
	Codec int8  // 0: not compressed
}

// Batch is what a Scanner has to know about a segment, one record batch.
type Batch struct {
	Place
	Dictionaries int  // that many of the shard's dictionary messages apply
	Codec        int8 // 0: not compressed
}

// Describe reads the metadata of an IPC file or stream; the content decides
// which it is, not the name. Errors name the object and wrap
// snapshot.ErrCorrupt, snapshot.ErrUnsupported, or what reading returned. In a
// store much is read at once if the ledger (nil: none) has memory for it.
func Describe(ctx context.Context, obj *bucket.Object, l *budget.Ledger) (*snapshot.Shard, error) {
	d := &describer{
		w:     &window{obj: obj},
		hash:  sha256.New(),
		facts: &Facts{},
		kinds: map[int64]values{},
		known: map[int64]bool{},
		shard: &snapshot.Shard{Key: obj.Key(), Size: obj.Size(), Pin: string(obj.Pin())},
	}
	defer d.w.widen(l)()
	if err := d.describe(ctx); err != nil {
		return nil, inObject(obj.Key(), err)
	}
	d.shard.Facts = d.facts
	d.hash.Sum(d.shard.Meta[:0])
	return d.shard, nil
}

// values is what a dictionary holds.
type values struct {
	typ arrow.DataType
	ids []int64
}

// describer gathers the facts of one object.
type describer struct {
	w     *window
	shard *snapshot.Shard
	facts *Facts
	hash  hash.Hash
	types []arrow.DataType
	kinds map[int64]values // by dictionary id
	known map[int64]bool   // dictionary ids that have been defined
	rows  int64
	bytes int64
}

func (d *describer) describe(ctx context.Context) (err error) {
	defer guard(&err)
	size := d.w.obj.Size()
	if size == 0 {
		return corruptf("the file is empty")
	}
	head, err := d.w.bytes(ctx, 0, int(min(size, 8)))
	if err != nil {
		return err
	}
	switch {
	case bytes.HasPrefix(head, []byte(magic)):
		d.shard.Format = snapshot.Arrow
		return d.file(ctx)
	case bytes.HasPrefix(head, []byte("FEA1")):
		return unsupportedf("a Feather version 1 file; write it again as version 2")
	case bytes.HasPrefix(head, []byte("PAR1")):
		return corruptf("not Arrow IPC: it is a Parquet file")
	}
	d.shard.Format = snapshot.Stream
	return d.stream(ctx)
}

// schema takes the schema, from a message or a footer.
func (d *describer) schema(t table) error {
	s, ids, err := readSchema(t)
	if err != nil {
		return err
	}
	d.shard.Schema, d.facts.IDs, d.types = s, ids, types(s.Fields())
	at := 0
	for _, t := range d.types {
		for _, dt := range dictionaries(t) {
			below := ids[at+1 : at+1+len(dictionaries(dt.ValueType))]
			if err := d.kind(ids[at], values{dt.ValueType, below}); err != nil {
				return err
			}
			at++
		}
	}
	return nil
}

// kind notes what a dictionary holds; fields may share one.
func (d *describer) kind(id int64, v values) error {
	if old, ok := d.kinds[id]; ok && (!arrow.TypeEqual(old.typ, v.typ) || !slices.Equal(old.ids, v.ids)) {
		return corruptf("fields do not agree about what dictionary %d holds", id)
	}
	d.kinds[id] = v
	return nil
}

// dictionary takes a dictionary message.
func (d *describer) dictionary(m *message) error {
	if len(d.facts.Dictionaries) == maxMessages {
		return unsupportedf("more than %d dictionary messages", maxMessages)
	}
	head, err := m.dictionary()
	if err != nil {
		return err
	}
	v, ok := d.kinds[head.id]
	switch {
	case !ok:
		return corruptf("dictionary %d belongs to no field", head.id)
	case head.delta && !d.known[head.id]:
		return corruptf("dictionary %d is added to before it is there", head.id)
	case d.known[head.id] && !head.delta && d.shard.Format == snapshot.Arrow:
		return corruptf("dictionary %d is there twice; only streams may replace one", head.id)
	}
	cols, err := head.batch.columns([]arrow.DataType{v.typ}, v.ids)
	if err != nil {
		return err
	}
	d.known[head.id] = true
	d.facts.Dictionaries = append(d.facts.Dictionaries, Dictionary{
		Place: m.place, ID: head.id, Delta: head.delta, Bytes: cols[0].size(), Codec: int8(head.batch.codec),
	})
	return nil
}

// batch takes a record batch: it becomes a segment.
func (d *describer) batch(m *message) error {
	if len(d.shard.Segments) == maxMessages {
		return unsupportedf("more than %d record batches", maxMessages)
	}
	b, err := m.batch()
	if err != nil {
		return err
	}
	cols, err := b.columns(d.types, d.facts.IDs)
	if err != nil {
		return err
	}
	seg := snapshot.Segment{Rows: b.rows, Facts: Batch{
		Place: m.place, Dictionaries: len(d.facts.Dictionaries), Codec: int8(b.codec),
	}}
	for _, c := range cols {
		seg.Bytes += c.size()
	}
	if b.rows > 0 && len(d.known) < len(d.kinds) {
		return d.undefined()
	}
	if seg.Bytes < 0 || seg.Bytes > maxTotal-d.bytes || seg.Rows > maxTotal-d.rows {
		return corruptf("more rows or bytes than any file holds")
	}
	d.rows, d.bytes = d.rows+seg.Rows, d.bytes+seg.Bytes
	d.shard.Segments = append(d.shard.Segments, seg)
	return nil
}

func (d *describer) undefined() error {
	for _, id := range d.facts.IDs {
		if !d.known[id] {
			return corruptf("dictionary %d is used and not there", id)
		}
	}
	return nil
}

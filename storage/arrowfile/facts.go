package arrowfile

import (
	"math"

	"github.com/headrace/headrace/storage/snapshot"
)

// Pack writes what a shard keeps of its messages, in a form that never changes.
func Pack(sh *snapshot.Shard, e *snapshot.Encoder) {
	f := sh.Facts.(*Facts)
	e.Number(int64(len(f.IDs)))
	for _, id := range f.IDs {
		e.Signed(id)
	}
	e.Number(int64(len(f.Dictionaries)))
	for _, m := range f.Dictionaries {
		packPlace(e, m.Place, m.Codec)
		e.Signed(m.ID)
		e.Number(m.Bytes)
		e.Number(map[bool]int64{true: 1}[m.Delta])
	}
	for _, seg := range sh.Segments {
		b := seg.Facts.(Batch)
		packPlace(e, b.Place, b.Codec)
		e.Number(int64(b.Dictionaries))
	}
}

func packPlace(e *snapshot.Encoder, p Place, codec int8) {
	e.Number(p.Offset)
	e.Number(int64(p.Meta))
	e.Number(p.Body)
	e.Number(int64(codec))
}

// Unpack reads what Pack wrote, and what makes no sense with the rest of the
// shard makes d fail.
func Unpack(sh *snapshot.Shard, d *snapshot.Decoder) {
	f := &Facts{}
	for range d.Count(1) {
		f.IDs = append(f.IDs, d.Signed())
	}
	var want int
	for _, t := range types(sh.Schema.Fields()) {
		want += len(dictionaries(t))
	}
	if len(f.IDs) != want {
		d.Fail("facts of another Arrow file")
	}
	for range d.Count(6) {
		place, codec := unpackPlace(sh, d)
		m := Dictionary{Place: place, Codec: codec, ID: d.Signed(), Bytes: d.Number(math.MaxInt64), Delta: d.Number(1) == 1}
		f.Dictionaries = append(f.Dictionaries, m)
	}
	for i := range sh.Segments {
		place, codec := unpackPlace(sh, d)
		sh.Segments[i].Facts = Batch{Place: place, Codec: codec, Dictionaries: int(d.Number(int64(len(f.Dictionaries))))}
	}
	sh.Facts = f
}

func unpackPlace(sh *snapshot.Shard, d *snapshot.Decoder) (Place, int8) {
	p := Place{Offset: d.Number(sh.Size), Meta: int32(d.Number(math.MaxInt32)), Body: d.Number(sh.Size)}
	if p.end() > sh.Size {
		d.Fail("a message behind the end of its file")
	}
	return p, int8(d.Number(int64(zstdFrame)))
}

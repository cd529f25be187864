package parquetfile

import (
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/parquet"

	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/parquetfile/encoding"
)

// values decode what a leaf column stores, in two steps: first they are told
// which values will be wanted, and measure them if that takes looking; then they
// write them, and zeros where the rows are null. There is one kind for each way
// in which Arrow lays values out; what a kind has no use for may be nil.
type values struct {
	// dictionary reads the n entries of the column chunk's dictionary, from a page that it may keep.
	dictionary func(b *body, n int) error
	// open begins with the values of a page, which are in b.
	open func(p *dataPage, b []byte) error
	// begin forgets what was taken; take says that the next n values of p will be written.
	begin func()
	take  func(p *dataPage, n int) error
	// skip passes the next n values of p.
	skip func(p *dataPage, n int) error
	// write writes what was taken, to the buffers behind the validity. It is nil if there are none.
	write func(dst [][]byte) error
	// bytes says how much that is, of byte arrays.
	bytes func() int64
	free  func()
}

// decoders decode the values of one page, by the type of the column.
type decoders struct {
	fixed *fixedDecoder
	bools encoding.Booleans
	small *bytesDecoder[int32]
	large *bytesDecoder[int64]
}

// fixedDecoder decodes values of a fixed width.
type fixedDecoder struct {
	encoding parquet.Encoding
	plain    encoding.Fixed
	split    encoding.Split
	ints     encoding.Delta[int32]
	longs    encoding.Delta[int64]
	front    encoding.FrontBytes[int32]
	indices  encoding.Hybrid
}

// portion is about how many bytes are decoded before anything else is done
// with them, such as making room for nulls, or asking whether anybody still
// wants them.
const portion = 128 << 10

// fixedValues are values of a fixed width.
type fixedValues struct {
	leaf     *leafReader
	physical parquet.Type
	stored   int // bytes of a value in the file
	width    int // and in a frame
	// convert makes n values of a frame from stored ones; nil: they are the same.
	convert func(dst, src []byte, n int) error
	late    bool // the dictionary is as stored, as a value that cannot be converted is only wrong where it is used
	entries entries
	dict    []byte
	tmp     room
}

func (v *fixedValues) values() values {
	return values{dictionary: v.dictionary, open: v.open, skip: v.skip, write: v.write, free: v.free}
}

func (v *fixedValues) free() {
	v.entries.free()
	v.tmp.free()
}

func (v *fixedValues) dictionary(b *body, n int) (err error) {
	size := n * v.stored
	switch {
	case len(b.plain) < size:
		return fmt.Errorf("%d values of %d bytes in %d bytes", n, v.stored, len(b.plain))
	case v.convert != nil && !v.late:
		if v.dict, err = v.entries.bytes(n*v.width, 0); err != nil {
			return err
		}
		return v.convert(v.dict, b.plain[:size], n)
	}
	if v.dict, err = v.entries.keep(b); err == nil {
		v.dict = v.dict[:size]
	}
	return err
}

// dictWidth is the bytes of an entry of the dictionary.
func (v *fixedValues) dictWidth() int {
	if v.late {
		return v.stored
	}
	return v.width
}

func (v *fixedValues) open(p *dataPage, b []byte) (err error) {
	if p.fixed == nil {
		p.fixed = new(fixedDecoder)
	}
	d := p.fixed
	switch d.encoding = p.encoding; {
	case p.indexed():
		return d.indices.ResetIndices(b)
	case p.encoding == parquet.Encodings.Plain:
		return d.plain.Reset(b, v.stored)
	case p.encoding == parquet.Encodings.ByteStreamSplit:
		return d.split.Reset(b, v.stored)
	case p.encoding == parquet.Encodings.DeltaByteArray && v.physical == parquet.Types.FixedLenByteArray:
		return d.front.Reset(b)
	case p.encoding == parquet.Encodings.DeltaBinaryPacked && v.physical == parquet.Types.Int32:
		return d.ints.Reset(b)
	case p.encoding == parquet.Encodings.DeltaBinaryPacked && v.physical == parquet.Types.Int64:
		return d.longs.Reset(b)
	}
	return refusef("encoding %s of %s", p.encoding, v.physical)
}

func (v *fixedValues) skip(p *dataPage, n int) error {
	if err := v.leaf.open(p); err != nil {
		return err
	}
	d := p.fixed
	switch {
	case p.indexed():
		return d.indices.Skip(n)
	case p.encoding == parquet.Encodings.Plain:
		return d.plain.Skip(n)
	case p.encoding == parquet.Encodings.ByteStreamSplit:
		return d.split.Skip(n)
	case p.encoding == parquet.Encodings.DeltaByteArray:
		return d.front.Skip(n)
	case v.physical == parquet.Types.Int32:
		return d.ints.Skip(n)
	}
	return d.longs.Skip(n)
}

func (v *fixedValues) write(dst [][]byte) error {
	l, out := v.leaf, dst[0]
	some := max(portion/max(v.width, 1)&^63, 64)
	for slot := 0; slot < l.slots; slot += some {
		n := min(some, l.slots-slot)
		part := out[slot*v.width:][:n*v.width]
		stored := l.valid.count(slot, n)
		if err := v.read(part[:stored*v.width], slot); err != nil {
			return err
		}
		if stored < n {
			encoding.Spread(part, v.width, l.valid.bits, slot, n)
		}
		if err := l.source.ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// read fills dst, of slots from slot on, with the next values.
func (v *fixedValues) read(dst []byte, slot int) error {
	l, done := v.leaf, 0
	for n := len(dst) / max(v.width, 1); done < n; {
		p := l.pages[0]
		k := min(p.owed, n-done)
		if err := l.open(p); err != nil {
			return err
		}
		part := dst[done*v.width:][:k*v.width]
		var err error
		if v.convert == nil || p.indexed() && !v.late {
			err = v.decode(p, part, k)
		} else {
			err = v.converted(p, part, k)
		}
		if err != nil {
			return v.inRow(err, slot, done)
		}
		done += k
		l.written(k)
	}
	return nil
}

// decode fills dst with the next k values of p, as they are stored or as they are in the dictionary.
func (v *fixedValues) decode(p *dataPage, dst []byte, k int) error {
	d := p.fixed
	switch {
	case p.indexed():
		return v.gather(d, dst)
	case p.encoding == parquet.Encodings.Plain:
		return d.plain.Decode(dst)
	case p.encoding == parquet.Encodings.ByteStreamSplit:
		return d.split.Decode(dst)
	case p.encoding == parquet.Encodings.DeltaByteArray:
		return d.front.DecodeFixed(dst, v.stored)
	case v.physical == parquet.Types.Int32:
		return d.ints.Decode(numbers[int32](dst)[:k])
	}
	return d.longs.Decode(numbers[int64](dst)[:k])
}

// gather fills dst with the entries of the dictionary that come next.
func (v *fixedValues) gather(d *fixedDecoder, dst []byte) error {
	var some [1024]uint32
	width := v.dictWidth()
	for len(dst) > 0 {
		indices := some[:min(len(some), len(dst)/width)]
		if err := d.indices.Decode(indices); err != nil {
			return err
		}
		if err := encoding.Gather(dst, v.dict, width, indices); err != nil {
			return err
		}
		dst = dst[len(indices)*width:]
	}
	return nil
}

// converted fills dst with the next k values of p, in the form that they are served in.
func (v *fixedValues) converted(p *dataPage, dst []byte, k int) error {
	const most = 1 << 12
	for done := 0; done < k; done += most {
		n := min(most, k-done)
		src, err := v.tmp.bytes(n*v.stored, 0)
		if err != nil {
			return err
		}
		if err := v.decode(p, src, n); err != nil {
			return err
		}
		if err := v.convert(dst[done*v.width:][:n*v.width], src, n); err != nil {
			return v.find(err, src, done, n)
		}
	}
	return nil
}

// misplaced is an error about one of the values that are being decoded.
type misplaced struct {
	error
	value int
}

// find finds the value that err is about among n in src, which come behind others.
func (v *fixedValues) find(err error, src []byte, behind, n int) error {
	one := make([]byte, v.width)
	for i := range n {
		if err := v.convert(one, src[i*v.stored:][:v.stored], 1); err != nil {
			return misplaced{err, behind + i}
		}
	}
	return err
}

// inRow makes an error about a value, one of those behind before others in the
// slots from slot on, one about its row.
func (v *fixedValues) inRow(err error, slot, before int) error {
	var at misplaced
	if !errors.As(err, &at) {
		return err
	}
	before += at.value
	for valid := &v.leaf.valid; ; slot++ {
		if valid.nulls() > 0 && !bitutil.BitIsSet(valid.bits, slot) {
			continue
		}
		if before == 0 {
			return &frame.RowError{Row: int64(slot), Err: at.error}
		}
		before--
	}
}

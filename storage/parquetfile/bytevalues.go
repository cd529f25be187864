package parquetfile

import (
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/parquet"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/parquetfile/encoding"
)

// bytesDecoder decodes the byte arrays of one page.
type bytesDecoder[O encoding.Offset] struct {
	plain   encoding.Bytes[O]
	lengths encoding.LengthBytes[O]
	front   encoding.FrontBytes[O]
	indices encoding.Hybrid
}

// byteValues are byte arrays.
type byteValues[O encoding.Offset] struct {
	leaf    *leafReader
	of      func(p *dataPage) **bytesDecoder[O]
	entries entries
	heap    int64 // bytes charged for what dict has on the Go heap
	dict    encoding.Dictionary
	size    int64 // bytes of what was taken
}

func (v *byteValues[O]) values() values {
	return values{
		dictionary: v.dictionary, open: v.open, begin: func() { v.size = 0 }, take: v.take, skip: v.skip, write: v.write,
		bytes: func() int64 { return v.size }, free: v.free,
	}
}

func (v *byteValues[O]) free() {
	v.entries.free()
	v.leaf.grant.CreditHeap(budget.Scratch, v.heap)
	v.heap = 0
}

func (v *byteValues[O]) dictionary(b *body, n int) error {
	const perEntry = 8
	if n > len(b.plain)/4 && len(b.pieces) == 0 {
		return fmt.Errorf("%d values in %d bytes", n, len(b.plain))
	}
	if err := v.leaf.grant.ChargeHeap(budget.Scratch, int64(n)*perEntry); err != nil {
		return err
	}
	v.heap += int64(n) * perEntry
	if len(b.pieces) > 0 {
		err := v.dict.Reset(b.plain, n, b.more()...)
		if err == nil {
			_, err = v.entries.keep(b)
		}
		return err
	}
	own, err := v.entries.keep(b)
	if err != nil {
		return err
	}
	return v.dict.Reset(own, n)
}

func (v *byteValues[O]) open(p *dataPage, b []byte) error {
	at := v.of(p)
	if *at == nil {
		*at = new(bytesDecoder[O])
	}
	d := *at
	switch {
	case p.indexed():
		return d.indices.ResetIndices(b)
	case p.encoding == parquet.Encodings.Plain:
		d.plain.Reset(b, p.more()...)
		return nil
	case p.encoding == parquet.Encodings.DeltaLengthByteArray:
		return d.lengths.Reset(b)
	case p.encoding == parquet.Encodings.DeltaByteArray:
		return d.front.Reset(b)
	}
	return refusef("encoding %s of BYTE_ARRAY", p.encoding)
}

// take measures the next n values of p, behind those that were taken already.
func (v *byteValues[O]) take(p *dataPage, n int) error {
	if err := v.leaf.open(p); err != nil {
		return err
	}
	if p.owed > 0 {
		return fmt.Errorf("%d values of a page taken before the last ones were written", n)
	}
	size, err := v.measure(p, *v.of(p), n)
	v.size += size
	return err
}

func (v *byteValues[O]) measure(p *dataPage, d *bytesDecoder[O], n int) (int64, error) {
	switch {
	case p.indexed():
		return v.measureIndices(d.indices, n)
	case p.encoding == parquet.Encodings.Plain:
		return d.plain.Measure(n)
	case p.encoding == parquet.Encodings.DeltaLengthByteArray:
		return d.lengths.Measure(n)
	}
	return d.front.Measure(n)
}

func (v *byteValues[O]) measureIndices(indices encoding.Hybrid, n int) (size int64, err error) {
	var some [1024]uint32
	for n > 0 {
		k := min(n, len(some))
		if err := indices.Decode(some[:k]); err != nil {
			return 0, err
		}
		part, err := v.dict.Measure(some[:k])
		if err != nil {
			return 0, err
		}
		size, n = size+part, n-k
	}
	return size, nil
}

func (v *byteValues[O]) skip(p *dataPage, n int) error {
	if err := v.leaf.open(p); err != nil {
		return err
	}
	d := *v.of(p)
	switch {
	case p.indexed():
		return d.indices.Skip(n)
	case p.encoding == parquet.Encodings.Plain:
		return d.plain.Skip(n)
	case p.encoding == parquet.Encodings.DeltaLengthByteArray:
		return d.lengths.Skip(n)
	}
	return d.front.Skip(n)
}

func (v *byteValues[O]) write(dst [][]byte) error {
	l, offsets := v.leaf, numbers[O](dst[0])
	offsets[0] = 0
	for done := 0; done < l.stored; {
		p := l.pages[0]
		// A portion of long values is few of them.
		k := min(p.owed, l.stored-done, max(1, portion*l.stored/max(int(v.size), 1)), portion/int(unsafe.Sizeof(O(0))))
		if err := v.decode(p, offsets[done:done+k+1], dst[1]); err != nil {
			return err
		}
		done += k
		l.written(k)
		if err := l.source.ctx.Err(); err != nil {
			return err
		}
	}
	if l.valid.nulls() > 0 {
		encoding.SpreadOffsets(offsets, l.valid.bits, 0, l.slots)
	}
	return nil
}

func (v *byteValues[O]) decode(p *dataPage, offsets []O, data []byte) error {
	d := *v.of(p)
	switch {
	case p.indexed():
		return v.gather(d, offsets, data)
	case p.encoding == parquet.Encodings.Plain:
		return d.plain.Decode(offsets, data)
	case p.encoding == parquet.Encodings.DeltaLengthByteArray:
		return d.lengths.Decode(offsets, data)
	}
	return d.front.Decode(offsets, data)
}

func (v *byteValues[O]) gather(d *bytesDecoder[O], offsets []O, data []byte) error {
	var some [1024]uint32
	for n := len(offsets) - 1; n > 0; n = len(offsets) - 1 {
		k := min(n, len(some))
		if err := d.indices.Decode(some[:k]); err != nil {
			return err
		}
		if err := encoding.GatherBytes(&v.dict, some[:k], offsets[:k+1], data); err != nil {
			return err
		}
		offsets = offsets[k:]
	}
	return nil
}

package parquetfile

import (
	"github.com/apache/arrow-go/v18/parquet"

	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/parquetfile/encoding"
)

// boolValues are booleans, one bit each.
type boolValues struct{ leaf *leafReader }

func (v *boolValues) values() values {
	return values{open: v.open, skip: v.skip, write: v.write}
}

func (v *boolValues) open(p *dataPage, b []byte) error {
	switch p.encoding {
	case parquet.Encodings.RLE:
		return p.bools.ResetRLE(b)
	case parquet.Encodings.Plain:
		p.bools.Reset(b)
		return nil
	}
	return refusef("encoding %s of BOOLEAN", p.encoding)
}

func (v *boolValues) skip(p *dataPage, n int) error {
	if err := v.leaf.open(p); err != nil {
		return err
	}
	return p.bools.Skip(n)
}

func (v *boolValues) write(dst [][]byte) error {
	l := v.leaf
	for done := 0; done < l.stored; {
		p := l.pages[0]
		k := min(p.owed, l.stored-done)
		if err := l.open(p); err != nil {
			return err
		}
		if err := p.bools.Decode(dst[0], done, k); err != nil {
			return err
		}
		done += k
		l.written(k)
	}
	if l.valid.nulls() > 0 {
		encoding.SpreadBits(dst[0], 0, l.valid.bits, 0, l.slots)
	}
	return l.source.ctx.Err()
}

// noValues are those of a column of type null.
func noValues() values {
	none := func(*dataPage, int) error { return refusef("values in a column of nulls") }
	return values{dictionary: func(*body, int) error { return nil }, take: none, skip: none}
}

// decimalValues are decimals in byte arrays, each as long as its number needs.
type decimalValues struct {
	byteValues[int32]
	width int // in a frame
	tmp   [2]room
}

func (v *decimalValues) values() values {
	out := v.byteValues.values()
	out.write, out.bytes, out.free = v.write, nil, v.free
	return out
}

func (v *decimalValues) free() {
	v.byteValues.free()
	v.tmp[0].free()
	v.tmp[1].free()
}

func (v *decimalValues) write(dst [][]byte) error {
	l := v.leaf
	var parts [2][]byte
	for i, size := range []int{4 * (l.slots + 1), int(v.size)} {
		var err error
		if parts[i], err = v.tmp[i].bytes(size, 0); err != nil {
			return err
		}
	}
	if err := v.byteValues.write(parts[:]); err != nil {
		return err
	}
	offsets := numbers[int32](parts[0])
	for i := range l.slots {
		one := dst[0][i*v.width:][:v.width]
		if offsets[i] == offsets[i+1] {
			clear(one) // null, or a zero that somebody wrote without any digits
			continue
		}
		if err := encoding.DecimalsOfBytes(one, v.width, offsets[i:i+2], parts[1]); err != nil {
			return &frame.RowError{Row: int64(i), Err: err}
		}
	}
	return nil
}

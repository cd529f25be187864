package parquetfile

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"math/bits"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/klauspost/compress/zstd"

	"github.com/headrace/headrace/storage/parquetfile/encoding"
)

const (
	// maxLevelBytes is the most bytes of repetition levels that are looked at in one page.
	maxLevelBytes = 1 << 20
	// maxLevelWindow is how far back in a page ZSTD may reach while they are.
	maxLevelWindow = 8 << 20
)

// errLevels is all there is to say of levels that make no sense here: the page
// will be decoded, and what is wrong with it is told then.
var errLevels = errors.New("repetition levels that cannot be counted")

// tally is what repetition levels say of rows.
type tally struct {
	rows  int64 // that begin
	fresh bool  // one does with the first value
}

// row counts n rows that begin with value at and those behind it.
func (t *tally) row(at, n int64) {
	t.fresh = t.fresh || at == 0
	t.rows += n
}

// countRows counts the rows that begin in a data page, whose body is in body
// with the compression codec. It decompresses just the repetition levels, up to
// most, which come first.
func countRows(p page, most int16, codec compress.Compression, body io.Reader) (t tally, err error) {
	buffered := bufio.NewReader(body)
	length := p.levels
	var r io.Reader = buffered
	if p.kind == pageData {
		plain, done, err := unpack(codec, buffered)
		if err != nil {
			return t, err
		}
		defer done()
		var size [4]byte
		if _, err := io.ReadFull(plain, size[:]); err != nil {
			return t, err
		}
		r, length = plain, int64(binary.LittleEndian.Uint32(size[:]))
	}
	if length < 0 || length > min(p.raw, maxLevelBytes) || p.kind == pageData && p.repeats != parquet.Encodings.RLE {
		return t, errLevels
	}
	b := make([]byte, length)
	if _, err := io.ReadFull(r, b); err != nil {
		return t, err
	}
	if err := t.count(b, p.values, most); err != nil {
		return t, err
	}
	if p.kind == pageDataV2 && (t.rows != p.rows || !t.fresh) {
		return t, errLevels
	}
	return t, nil
}

// unpack returns what a compressed page decompresses to, as far as it is read;
// done must be called afterwards.
func unpack(codec compress.Compression, r *bufio.Reader) (plain io.Reader, done func(), err error) {
	switch codec {
	case compress.Codecs.Uncompressed:
		return r, func() {}, nil
	case compress.Codecs.Snappy:
		if _, err := binary.ReadUvarint(r); err != nil { // the length
			return nil, nil, err
		}
		return &unsnappy{r: r}, func() {}, nil
	case compress.Codecs.Zstd:
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxLevelWindow))
		if err != nil {
			return nil, nil, err
		}
		return d, d.Close, nil
	case compress.Codecs.Gzip:
		d, err := gzip.NewReader(r)
		return d, func() {}, err
	case compress.Codecs.Brotli:
		c, err := compress.GetCodec(codec)
		if err != nil {
			return nil, nil, err
		}
		stream, ok := c.(compress.StreamingCodec)
		if !ok {
			return nil, nil, errLevels
		}
		d := stream.NewReader(r)
		return d, func() { _ = d.Close() }, nil
	}
	return nil, nil, errLevels
}

// count counts the zeros in n run-length encoded levels, up to most.
func (t *tally) count(b []byte, n int64, most int16) error {
	width := bits.Len16(uint16(most))
	for at := int64(0); at < n; {
		head, used := binary.Uvarint(b)
		if used <= 0 || head < 2 || head > 1<<32 {
			return errLevels
		}
		b = b[used:]
		run, size := int64(head>>1), (width+7)/8
		if head&1 == 1 {
			run, size = run*8, int(run)*width
		}
		if size > len(b) {
			return errLevels
		}
		run = min(run, n-at)
		if head&1 == 1 {
			if err := t.packed(b[:size], at, run, width, most); err != nil {
				return err
			}
		} else if level := number(b[:size]); level > int(most) {
			return errLevels
		} else if level == 0 {
			t.row(at, run)
		}
		b, at = b[size:], at+run
	}
	return nil
}

// number is one or two bytes, the lower first.
func number(b []byte) int {
	if len(b) == 1 {
		return int(b[0])
	}
	return int(binary.LittleEndian.Uint16(b))
}

// packed counts n levels of width bits each, the first of which is that of value at.
func (t *tally) packed(b []byte, at, n int64, width int, most int16) error {
	i := int64(0)
	for ; width == 1 && i+8 <= n; i += 8 {
		if zeros := ^b[i/8]; zeros != 0 {
			t.fresh = t.fresh || at+i == 0 && zeros&1 == 1
			t.rows += int64(bits.OnesCount8(zeros))
		}
	}
	for ; i < n; i++ {
		level := 0
		for bit := range int64(width) {
			place := i*int64(width) + bit
			level |= int(b[place/8]>>(place%8)&1) << bit
		}
		if level > int(most) {
			return errLevels
		}
		if level == 0 {
			t.row(at+i, 1)
		}
	}
	return nil
}

// findLevels makes the levels of p ready to be read.
func (l *leafReader) findLevels(p *dataPage) (err error) {
	most := int(l.column.MaxRepetitionLevel())
	if p.kind == pageDataV2 {
		if most > 0 {
			if err := p.rep.Reset(p.stored[:p.levels], most); err != nil {
				return err
			}
		}
		if l.most > 0 {
			return p.def.Reset(p.stored[p.levels:][:p.defined], l.most)
		}
		return nil
	}
	if l.most == 0 {
		return nil
	}
	return l.readUnfolded(p.page, &p.body, func() error { return l.findPrefixed(p) })
}

// findPrefixed finds them where each kind has its length before it and the values behind it.
func (l *leafReader) findPrefixed(p *dataPage) (err error) {
	rest := p.plain
	if most := int(l.column.MaxRepetitionLevel()); most > 0 {
		if rest, err = p.rep.ResetPrefixed(rest, most, encoding.Encoding(p.repeats)); err != nil {
			return err
		}
	}
	rest, err = p.def.ResetPrefixed(rest, l.most, encoding.Encoding(p.defines))
	p.front = len(p.plain) - len(rest)
	return err
}

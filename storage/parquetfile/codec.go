package parquetfile

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// BoundDecompression replaces arrow-go's decoders for snappy and zstd by ones
// that fail where a page would outgrow the size it claims. arrow-go's own take
// whatever the bytes ask for: a megabyte of zstd can ask for ten thousand. They
// also read a page that is compressed to nothing, which a column of nulls may
// be. And it adds one for the LZ4 of old, which arrow-go does without. The registry is the whole process's and has no lock, so a program calls
// this once, first thing in main; without it everything else works, unbounded.
func BoundDecompression() error {
	d, err := zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return fmt.Errorf("zstd: %w", err)
	}
	for _, c := range []struct {
		codec, stock compress.Compression
		decode       func(dst, src []byte) ([]byte, error)
	}{
		{compress.Codecs.Snappy, compress.Codecs.Snappy, decodeSnappy},
		{compress.Codecs.Zstd, compress.Codecs.Zstd, func(dst, src []byte) ([]byte, error) { return d.DecodeAll(src, dst[:0:len(dst)]) }},
		{compress.Codecs.Lz4, compress.Codecs.Lz4Raw, decodeOldLZ4},
	} {
		stock, err := compress.GetCodec(c.stock)
		if err != nil {
			return err
		}
		compress.RegisterCodec(c.codec, bounded{stock, c.decode})
	}
	return nil
}

// bounded is a codec whose decoder keeps to the room it is given.
type bounded struct {
	compress.Codec
	decode func(dst, src []byte) ([]byte, error)
}

// DecodeWithError is what arrow-go calls to decompress a page.
func (b bounded) DecodeWithError(dst, src []byte) ([]byte, error) {
	if len(src) == 0 && len(dst) == 0 {
		return dst, nil
	}
	return b.decode(dst, src)
}

func decodeSnappy(dst, src []byte) ([]byte, error) {
	n, err := snappy.DecodedLen(src)
	if err != nil {
		return nil, err
	}
	if n > len(dst) {
		return nil, fmt.Errorf("snappy: %d bytes where the page has %d", n, len(dst))
	}
	return snappy.Decode(dst, src)
}

// decodeOldLZ4 decodes what the codec LZ4 was before it was given up: some
// wrote blocks of LZ4 behind two lengths each, as Hadoop does, others the bare
// block.
func decodeOldLZ4(dst, src []byte) ([]byte, error) {
	if n, ok := decodeHadoop(dst, src); ok {
		return dst[:n], nil
	}
	n, err := lz4.UncompressBlock(src, dst)
	if err != nil {
		return nil, fmt.Errorf("lz4: %w", err)
	}
	return dst[:n], nil
}

// decodeHadoop decodes blocks behind two lengths of 4 bytes, the largest byte
// first: of what the block becomes, and of the block.
func decodeHadoop(dst, src []byte) (done int, ok bool) {
	for len(src) > 0 {
		if len(src) < 8 {
			return 0, false
		}
		raw, size := binary.BigEndian.Uint32(src), binary.BigEndian.Uint32(src[4:])
		if src = src[8:]; int64(size) > int64(len(src)) || int64(raw) > int64(len(dst)-done) {
			return 0, false
		}
		n, err := lz4.UncompressBlock(src[:size], dst[done:done+int(raw)])
		if err != nil || n != int(raw) {
			return 0, false
		}
		done, src = done+n, src[size:]
	}
	return done, true
}

// checkCodec tells whether there is a decoder for a compression.
func checkCodec(c compress.Compression) error {
	switch c {
	case compress.Codecs.Uncompressed, compress.Codecs.Snappy, compress.Codecs.Zstd, compress.Codecs.Lz4Raw, compress.Codecs.Lz4,
		compress.Codecs.Gzip, compress.Codecs.Brotli:
		return nil
	}
	return refusef("compression %s", c)
}

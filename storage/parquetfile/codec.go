package parquetfile

import (
	"fmt"

	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

// BoundDecompression replaces arrow-go's decoders for snappy and zstd by ones
// that fail where a page would outgrow the size it claims. arrow-go's own take
// whatever the bytes ask for: a megabyte of zstd can ask for ten thousand. They
// also read a page that is compressed to nothing, which a column of nulls may
// be. The registry is the whole process's and has no lock, so a program calls
// this once, first thing in main; without it everything works, unbounded.
func BoundDecompression() error {
	d, err := zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return fmt.Errorf("zstd: %w", err)
	}
	for codec, decode := range map[compress.Compression]func(dst, src []byte) ([]byte, error){
		compress.Codecs.Snappy: decodeSnappy,
		compress.Codecs.Zstd:   func(dst, src []byte) ([]byte, error) { return d.DecodeAll(src, dst[:0:len(dst)]) },
	} {
		stock, err := compress.GetCodec(codec)
		if err != nil {
			return err
		}
		compress.RegisterCodec(codec, bounded{stock, decode})
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

// checkCodec tells whether there is a decoder for a compression.
func checkCodec(c compress.Compression) error {
	if _, err := compress.GetCodec(c); err != nil {
		return refusef("compression %s", c)
	}
	return nil
}

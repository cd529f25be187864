package parquetfile

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// unzstd is shared by all scanners: a call keeps no state. It stops where a
// page would outgrow the room that there is for it.
var unzstd = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderConcurrency(0))
})

// inflater decompresses pages. It keeps the decoders that need memory of their
// own for the next page.
type inflater struct {
	gzip   *gzip.Reader
	brotli *brotli.Reader
}

// inflate decompresses src into dst, which it fills, or fails. Nothing that src
// says makes it take more memory than that.
func (i *inflater) inflate(codec compress.Compression, dst, src []byte) error {
	n, err := i.decode(codec, dst, src)
	if err == nil && n != len(dst) {
		err = fmt.Errorf("%d bytes", n)
	}
	if err != nil {
		return fmt.Errorf("%s: the page decompresses to %d bytes, says its header: %w", codec, len(dst), err)
	}
	return nil
}

func (i *inflater) decode(codec compress.Compression, dst, src []byte) (n int, err error) {
	if len(dst) == 0 && len(src) == 0 {
		return 0, nil // a page of nulls may be compressed to nothing
	}
	switch codec {
	case compress.Codecs.Uncompressed:
		return copy(dst, src), nil
	case compress.Codecs.Snappy:
		out, err := decodeSnappy(dst, src)
		return len(out), err
	case compress.Codecs.Zstd:
		d, err := unzstd()
		if err != nil {
			return 0, err
		}
		out, err := d.DecodeAll(src, dst[:0:len(dst)])
		return len(out), err
	case compress.Codecs.Lz4Raw:
		return lz4.UncompressBlock(src, dst)
	case compress.Codecs.Lz4:
		out, err := decodeOldLZ4(dst, src)
		return len(out), err
	case compress.Codecs.Gzip:
		return i.ungzip(dst, src)
	case compress.Codecs.Brotli:
		return i.unbrotli(dst, src)
	}
	return 0, refusef("compression %s", codec)
}

func (i *inflater) ungzip(dst, src []byte) (int, error) {
	if i.gzip == nil {
		i.gzip = new(gzip.Reader)
	}
	if err := i.gzip.Reset(bytes.NewReader(src)); err != nil {
		return 0, err
	}
	return whole(i.gzip, dst)
}

func (i *inflater) unbrotli(dst, src []byte) (int, error) {
	if i.brotli == nil {
		i.brotli = new(brotli.Reader)
	}
	if err := i.brotli.Reset(bytes.NewReader(src)); err != nil {
		return 0, err
	}
	return whole(i.brotli, dst)
}

// whole fills dst from r, which must end with it.
func whole(r io.Reader, dst []byte) (int, error) {
	n, err := io.ReadFull(r, dst)
	if err != nil {
		return n, err
	}
	var more [1]byte
	switch k, err := r.Read(more[:]); {
	case k > 0:
		return n + k, nil
	case err != nil && err != io.EOF:
		return n, err
	}
	return n, nil
}

package codec

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/headrace/headrace/storage/message"
)

// Compression of a body's buffers, each by itself.
type Compression int

// None sends buffers in place, LZ4 and Zstd as frames of those formats.
const (
	None Compression = iota
	LZ4
	Zstd
)

// codec is the format's word for it.
func (c Compression) codec() message.Codec {
	switch c {
	case LZ4:
		return message.LZ4
	case Zstd:
		return message.Zstd
	default:
		return message.Uncompressed
	}
}

// prefix is the length of the uncompressed length, or of -1, before a compressed buffer.
const prefix = 8

// compressor holds the tables of one stream's compression.
type compressor struct {
	lz4  *lz4.Compressor
	zstd *zstd.Encoder
}

// compress replaces the buffers of a layout by compressed ones. One that would not get smaller stays in place behind a
// prefix that says so.
func (c *compressor) compress(kind Compression, l *layout) error {
	if err := c.open(kind); err != nil {
		return err
	}
	for i := range l.buffers {
		b := &l.buffers[i]
		if b.size == 0 {
			continue
		}
		pieces := l.pieces[b.first : b.first+b.count : b.first+b.count]
		src, err := l.contiguous(pieces, b.size)
		if err != nil {
			return err
		}
		dst, err := l.arena.reserve(prefix + c.bound(len(src)))
		if err != nil {
			return err
		}
		n := c.frame(dst[prefix:], src)
		b.first = len(l.pieces)
		if n < len(src) {
			binary.LittleEndian.PutUint64(dst, uint64(len(src)))
			l.arena.keep(prefix + n)
			l.pieces = append(l.pieces, piece{data: dst[: prefix+n : prefix+n], copy: true})
			b.count, b.size = 1, prefix+n
			continue
		}
		raw, err := l.arena.take(prefix)
		if err != nil {
			return err
		}
		binary.LittleEndian.PutUint64(raw, ^uint64(0))
		l.pieces = append(append(l.pieces, piece{data: raw, copy: true}), pieces...)
		b.count, b.size = b.count+1, b.size+prefix
	}
	return nil
}

// contiguous joins the pieces of one buffer.
func (l *layout) contiguous(pieces []piece, size int) ([]byte, error) {
	if len(pieces) == 1 {
		return pieces[0].data, nil
	}
	out, err := l.arena.take(size)
	if err != nil {
		return nil, err
	}
	at := 0
	for _, p := range pieces {
		at += copy(out[at:], p.data)
	}
	return out, nil
}

func (c *compressor) open(kind Compression) (err error) {
	switch {
	case kind == LZ4 && c.lz4 == nil:
		c.lz4 = new(lz4.Compressor)
	case kind == Zstd && c.zstd == nil:
		c.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
			zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false))
		if err != nil {
			return fmt.Errorf("zstd: %w", err)
		}
	}
	return nil
}

// bound is the most bytes that frame writes for n bytes.
func (c *compressor) bound(n int) int {
	if c.zstd != nil {
		return c.zstd.MaxEncodedSize(n)
	}
	return len(lz4Head) + n + 4*(n/lz4Block+1) + len(lz4Tail)
}

// frame compresses src into dst, which has room for bound bytes, and returns the length.
func (c *compressor) frame(dst, src []byte) int {
	if c.lz4 != nil {
		return c.lz4Frame(dst, src)
	}
	out := c.zstd.EncodeAll(src, dst[:0])
	if unsafe.SliceData(out) != unsafe.SliceData(dst) {
		return copy(dst, out)
	}
	return len(out)
}

// An LZ4 frame: magic number; independent blocks of up to 4 MiB, no checksums, no sizes; the header's own check byte.
const (
	lz4Head  = "\x04\x22\x4d\x18\x60\x70\x73"
	lz4Tail  = "\x00\x00\x00\x00"
	lz4Block = 4 << 20
	lz4Raw   = 1 << 31 // in a block's length: not compressed
)

func (c *compressor) lz4Frame(dst, src []byte) int {
	at := copy(dst, lz4Head)
	for len(src) > 0 {
		block := src[:min(len(src), lz4Block)]
		src = src[len(block):]
		out := dst[at+4:]
		n, err := c.lz4.CompressBlock(block, out[:len(block)])
		length := uint32(n)
		if err != nil || n == 0 || n >= len(block) {
			n = copy(out, block)
			length = uint32(n) | lz4Raw
		}
		binary.LittleEndian.PutUint32(dst[at:], length)
		at += 4 + n
	}
	return at + copy(dst[at:], lz4Tail)
}

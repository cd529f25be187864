package arrowfile

import (
	"bytes"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

// The most that one byte can become: a match of LZ4 adds at most 255 bytes for
// each of its length; the smallest block of zstd has 4 bytes, the largest
// decodes to 128 KiB.
const (
	lz4Ratio  = 255
	zstdRatio = 32 << 10
)

// inflater decompresses the buffers of one body into regions.
type inflater struct {
	r       io.ReaderAt
	base    int64 // where the body begins
	codec   codec
	pool    *frame.Pool
	grant   *budget.Grant
	regions []*frame.Region

	zstdDecoder *zstd.Decoder
	lz4Reader   *lz4.Reader
}

// array decompresses all buffers of s and below. On error, as later, the
// regions are the caller's to free.
func (f *inflater) array(s *stored) error {
	for i := range s.parts {
		if err := f.part(&s.parts[i], s.nulls == 0); err != nil {
			return err
		}
	}
	for _, kid := range s.kids {
		if err := f.array(kid); err != nil {
			return err
		}
	}
	return nil
}

// part decompresses one buffer: its decoded length in 8 bytes, then a frame of
// the codec, or after the length -1 the bytes themselves.
func (f *inflater) part(p *part, full bool) error {
	if p.len == 0 || p.validity && full {
		return p.check(p.len)
	}
	var head [8]byte
	if p.len < int64(len(head)) {
		return corruptf("a compressed buffer of %d bytes", p.len)
	}
	if _, err := f.r.ReadAt(head[:], f.base+p.off); err != nil {
		return err
	}
	p.off, p.len = p.off+int64(len(head)), p.len-int64(len(head))
	n := le64(head[:])
	if n == -1 {
		return p.check(p.len)
	}
	ratio := int64(lz4Ratio)
	if f.codec == zstdFrame {
		ratio = zstdRatio
	}
	if n < 0 || n/ratio > p.len {
		return corruptf("a buffer of %d bytes that claims to decompress to %d", p.len, n)
	}
	if err := p.check(n); err != nil {
		return err
	}
	if n == 0 {
		p.len = 0
		return nil
	}
	return f.inflate(p, int(n))
}

// check refuses a buffer that decodes to fewer bytes than its rows need.
func (p *part) check(n int64) error {
	if n < p.need {
		return corruptf("a buffer of %d bytes where its rows need %d", n, p.need)
	}
	return nil
}

func (f *inflater) inflate(p *part, n int) error {
	in, err := f.pool.Alloc(f.grant, budget.Input, int(p.len))
	if err != nil {
		return err
	}
	defer in.Free()
	if _, err := f.r.ReadAt(in.Bytes(), f.base+p.off); err != nil {
		return err
	}
	out, err := f.pool.Alloc(f.grant, budget.Scratch, n)
	if err != nil {
		return err
	}
	f.regions = append(f.regions, out)
	p.mem = out.Bytes()
	if f.codec == zstdFrame {
		return f.zstd(p.mem, in.Bytes())
	}
	return f.lz4(p.mem, in.Bytes())
}

func (f *inflater) zstd(dst, src []byte) error {
	if f.zstdDecoder == nil {
		dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			return err
		}
		f.zstdDecoder = dec
	}
	out, err := f.zstdDecoder.DecodeAll(src, dst[:0:len(dst)])
	if err != nil {
		return corruptf("zstd: %v", err)
	}
	if len(out) != len(dst) {
		return corruptf("a buffer decompresses to %d bytes and claims %d", len(out), len(dst))
	}
	if &out[0] != &dst[0] {
		copy(dst, out) // the decoder may have needed more room while it worked
	}
	return nil
}

func (f *inflater) lz4(dst, src []byte) error {
	if f.lz4Reader == nil {
		f.lz4Reader = lz4.NewReader(nil)
	}
	f.lz4Reader.Reset(bytes.NewReader(src))
	if _, err := io.ReadFull(f.lz4Reader, dst); err != nil {
		return corruptf("lz4: %v", err)
	}
	var more [1]byte
	switch n, err := f.lz4Reader.Read(more[:]); {
	case n > 0:
		return corruptf("a buffer decompresses to more than the %d bytes it claims", len(dst))
	case err != nil && !errors.Is(err, io.EOF):
		return corruptf("lz4: %v", err)
	}
	return nil
}

// close ends the decoders; the regions stay.
func (f *inflater) close() {
	if f.zstdDecoder != nil {
		f.zstdDecoder.Close()
	}
}

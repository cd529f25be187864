package parquetfile

import (
	"unsafe"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"

	"github.com/headrace/headrace/storage/budget"
)

// unfold makes the values of a page readable. Long values that do not compress,
// such as images, are stored as they are, but for a few bytes here and there: they
// stay where they are, to be copied once, into the frame.
func (l *leafReader) unfold(p page, b *body) error {
	if b.plain == nil && l.scattered(p) {
		if err := l.scatter(p, b); err != nil {
			return err
		}
	}
	return l.inflate(p, b)
}

// readUnfolded has the values of a page read, a second time in one piece where not
// all that should be in one is: then it is known whether they are wrong.
func (l *leafReader) readUnfolded(p page, b *body, read func() error) error {
	err := l.unfold(p, b)
	if err == nil {
		err = read()
	}
	if err == nil || len(b.pieces) == 0 {
		return err
	}
	b.home.release()
	b.pieces, b.plain, b.home = b.pieces[:0], nil, nil
	if err := l.inflate(p, b); err != nil {
		return err
	}
	return read()
}

// scattered tells whether the values of a page may be long and not compressed, as far as its header says.
func (l *leafReader) scattered(p page) bool {
	const long = 4 << 10
	compressed := l.chunk.codec == compress.Codecs.Snappy && !p.bare
	values := l.column.PhysicalType() == parquet.Types.ByteArray && (p.encoding == parquet.Encodings.Plain || p.kind == pageDict)
	return compressed && values && p.values <= p.raw/long && p.size >= p.raw-p.raw/8 && !l.whole
}

// scatter finds the pieces of a page. There are none where it would have to write more than an eighth of it.
func (l *leafReader) scatter(p page, b *body) error {
	src, raw := p.compressed(b)
	if raw == 0 {
		return nil
	}
	if err := l.roomFor(b, 16+raw>>13); err != nil {
		return err
	}
	made, home, err := l.space(2*front + raw/8)
	if err != nil {
		return err
	}
	t := text{pieces: b.pieces[:0], made: made[:0]}
	if !t.decode(src, raw) {
		home.release()
		return nil
	}
	b.pieces, b.plain, b.home = t.pieces, t.pieces[0], home
	return nil
}

// roomFor makes room for n pieces of a page.
func (l *leafReader) roomFor(b *body, n int) error {
	const perPiece = int64(unsafe.Sizeof(b.pieces[0]))
	more := perPiece * int64(n-cap(b.pieces))
	if more <= 0 {
		return nil
	}
	if err := l.grant.ChargeHeap(budget.Scratch, more); err != nil {
		return err
	}
	l.heap += more
	b.pieces = make([][]byte, 0, n)
	return nil
}

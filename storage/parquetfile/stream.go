package parquetfile

import (
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/headrace/headrace/storage/budget"
)

// stream gives the pages of one column chunk, in order.
type stream struct {
	input
	chunk    chunk
	column   *schema.Column
	inflater *inflater
	limit    int64 // most bytes of a page, stored or decompressed
	number   int   // of the next page, among those of the chunk
	seen     int64 // values in the data pages so far, nulls and empty lists included; -1: not known
	here     mark  // the page whose header came last
	dict     bool  // there was a dictionary
	shared   *window
}

// body is what comes behind the header of a page.
type body struct {
	stored []byte   // as in the file, in window
	window *window  // nil: nothing is held
	plain  []byte   // decompressed, without the levels of a page of version 2
	home   *window  // of plain, if it is not part of stored
	pieces [][]byte // if there are any, plain is the first, and all of them together are what it would be
}

// next reads the header of the next page. ok is false when there is none.
func (s *stream) next() (p page, ok bool, err error) {
	if s.seen >= s.chunk.values || s.seen < 0 && s.at >= s.end {
		return p, false, nil
	}
	if s.at >= s.end {
		return p, false, fmt.Errorf("num_values %d, but its pages have %d", s.chunk.values, s.seen)
	}
	s.here = mark{at: s.at, values: s.seen, number: s.number}
	if p, err = s.header(); err == nil {
		err = p.check(s.column, s.seen != 0, s.dict, s.limit)
	}
	if p.kind == pageDict {
		s.dict = true
	} else if s.seen >= 0 {
		s.seen += p.values
	}
	if err == nil && s.seen > s.chunk.values {
		err = fmt.Errorf("num_values %d, but its pages have %d", s.chunk.values, s.seen)
	}
	if err != nil {
		return p, false, fmt.Errorf("page %d at %d: %w", s.here.number, s.here.at, err)
	}
	return p, true, nil
}

// header parses the header of the next page and moves behind it.
func (s *stream) header() (page, error) {
	for n := int64(256); ; n *= 8 {
		b, err := s.peek(n)
		if err != nil {
			return page{}, err
		}
		t := thrift{b: b}
		p := parsePage(&t)
		if !t.bad {
			p.header = int64(t.pos)
			s.at += p.header
			if p.size > s.end-s.at {
				return p, fmt.Errorf("compressed_page_size %d, the chunk ends after %d", p.size, s.end-s.at)
			}
			return p, nil
		}
		if int64(len(b)) < n || n >= maxHeader {
			return page{}, fmt.Errorf("page header: %w", errThrift)
		}
	}
}

// pass moves behind the body of the page whose header came last.
func (s *stream) pass(p page) {
	s.at += p.size
	s.number++
}

// load reads the body of the page whose header came last, and checks it.
func (s *stream) load(p page, b *body) (err error) {
	at := s.at
	if b.stored, b.window, err = s.take(p.size); err != nil {
		return err
	}
	if p.checked {
		sealed := seal{at: at, end: s.at, number: s.number, crc: p.crc}
		if err := sealed.verify(b.stored, func() error { return s.source.refill(b.stored, at) }); err != nil {
			return err
		}
	}
	s.number++
	return nil
}

// inflate makes the values of a page readable. It is done when somebody needs them.
func (s *stream) inflate(p page, b *body) error {
	if b.plain != nil || p.raw == 0 && p.size == 0 {
		return nil
	}
	src, raw := p.compressed(b)
	if s.chunk.codec == compress.Codecs.Uncompressed || p.bare {
		b.plain = src // some writers tell another uncompressed_page_size
		return nil
	}
	if raw == 0 {
		return nil // nothing to decompress, whatever stands for it
	}
	plain, home, err := s.space(raw)
	if err != nil {
		return err
	}
	if err := s.inflater.inflate(s.chunk.codec, plain, src); err != nil {
		home.release()
		return err
	}
	b.plain, b.home = plain, home
	if len(src) == len(b.stored) { // there are no levels in it
		b.window.release()
		b.stored, b.window = nil, nil
	}
	return nil
}

// compressed returns what of a page's body is, and how long it is when it no longer is.
func (p page) compressed(b *body) (src []byte, raw int) {
	levels := int64(0)
	if p.kind == pageDataV2 {
		levels = p.levels + p.defined
	}
	return b.stored[levels:], int(p.raw - levels)
}

// space returns n bytes for a decompressed page, and the memory they are in,
// which is the caller's to release. Small pages share some: there may be
// thousands in a block.
func (s *stream) space(n int) ([]byte, *window, error) {
	const small, shared = 4 << 10, 16 << 10
	if w := s.shared; w != nil && n <= small {
		if w.users == 1 {
			w.n = 0
		}
		if b := w.region.Bytes()[w.n:]; n <= len(b) {
			w.n += int64(n)
			return b[:n:n], w.hold(), nil
		}
	}
	size := n
	if n <= small {
		size = shared
	}
	region, err := s.pool.Alloc(s.grant, budget.Scratch, size)
	if err != nil {
		return nil, nil, err
	}
	w := &window{region: region, n: int64(n), users: 1}
	if n <= small {
		s.unshare()
		s.shared = w.hold()
	}
	return region.Bytes()[:n:n], w, nil
}

// unshare lets go of the memory that small pages share.
func (s *stream) unshare() {
	if s.shared != nil {
		s.shared.release()
		s.shared = nil
	}
}

// free gives back what the body holds.
func (b *body) free() {
	if b.window != nil {
		b.window.release()
	}
	if b.home != nil {
		b.home.release()
	}
	*b = body{pieces: b.pieces[:0]}
}

// more returns the pieces behind plain.
func (b *body) more() [][]byte { return b.pieces[min(1, len(b.pieces)):] }

// checkLevels looks at what the header of a page of version 2 says of its levels.
func (p page) checkLevels(column *schema.Column) error {
	switch {
	case p.kind != pageDataV2:
		return nil
	case p.levels < 0 || p.defined < 0 || p.levels+p.defined > min(p.size, p.raw):
		return fmt.Errorf("levels of %d and %d bytes in a page of %d, %d uncompressed", p.levels, p.defined, p.size, p.raw)
	case column.MaxRepetitionLevel() == 0 && p.rows != p.values:
		return fmt.Errorf("num_rows %d, but num_values %d in a column without lists", p.rows, p.values)
	case p.nulls < 0 || p.nulls > p.values:
		return fmt.Errorf("num_nulls %d of %d values", p.nulls, p.values)
	}
	return nil
}

var errNoDictionary = errors.New("dictionary indices without a dictionary")

// indexed tells whether the values of a page are indices of the dictionary.
func (p page) indexed() bool {
	return p.encoding == parquet.Encodings.PlainDict || p.encoding == parquet.Encodings.RLEDict
}

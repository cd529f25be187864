package parquetfile

import (
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// maxPage is the most bytes that a page may have, compressed or not, if nobody says otherwise.
const maxPage = 256 << 20

// The types of pages.
const (
	pageData   = 0
	pageIndex  = 1
	pageDict   = 2
	pageDataV2 = 3
)

// page is what a page header says.
type page struct {
	kind      int64
	raw, size int64 // body bytes: decompressed, as stored
	values    int64
	rows      int64 // version 2 only
	encoding  parquet.Encoding
	repeats   parquet.Encoding // of the repetition levels, version 1 only
	defines   parquet.Encoding // of the definition levels, version 1 only
	levels    int64            // bytes of the repetition levels, version 2 only
	defined   int64            // bytes of the definition levels, version 2 only
	nulls     int64            // version 2 only
	bare      bool             // not compressed whatever the chunk says, version 2 only
	checked   bool             // there is a checksum
	crc       uint32           // of the body as stored
	header    int64            // length of the header
}

// pages sums up the pages of a column chunk.
type pages struct {
	heap  int64  // bytes that decoding takes on the Go heap, beyond what goes through the allocator
	empty []hole // the data pages without values
	seals []seal // the pages with checksums

	values, rows int64 // rows of pages of version 2 only
	dict, first  bool  // there are a dictionary and pages of version 1
}

// walkPages reads all page headers of a chunk before arrow-go sees any. It
// adds up values and rows, refuses by name what arrow-go would panic on or get
// wrong, and checks the counts from which it allocates without a second
// thought: a forged one would end the process, not the stream.
//
// charge is told of the Go heap that its lists take, before they take it.
func walkPages(r io.ReaderAt, c chunk, leaf *schema.Column, rows, limit int64, charge func(int64) error) (pages, error) {
	const some = 64 // pages
	var out pages
	for at, number := c.start, 0; out.values < c.values; number++ {
		if number%some == 0 {
			if err := charge(some * 2 * perSeal); err != nil { // a list that grows is copied
				return out, err
			}
		}
		p, err := readPage(r, at, c.end)
		if err == nil {
			err = p.check(leaf, out.values > 0, out.dict, limit)
		}
		if err == nil && p.kind != pageDict && !p.indexed() && !decodes(p.encoding, leaf.PhysicalType()) {
			err = refusef("encoding %s of %s", p.encoding, leaf.PhysicalType())
		}
		if err != nil {
			return out, fmt.Errorf("page at %d: %w", at, err)
		}
		out.add(p, leaf, c, at, number)
		at += p.header + p.size
	}
	switch {
	case out.values != c.values:
		return out, fmt.Errorf("num_values %d, but its pages have %d", c.values, out.values)
	case !out.first && c.values > 0 && out.rows != rows:
		return out, fmt.Errorf("num_rows %d, but its pages have %d", rows, out.rows)
	}
	return out, nil
}

// add counts page number number of a chunk, whose header is at.
func (s *pages) add(p page, leaf *schema.Column, c chunk, at int64, number int) {
	body, end := at+p.header, at+p.header+p.size
	s.heap = max(s.heap, p.heap(leaf))
	if p.checked && p.size > 0 {
		s.seals = append(s.seals, seal{at: body, end: end, number: number, crc: p.crc})
	}
	if p.kind == pageDict {
		s.dict = true
		return
	}
	if p.values == 0 {
		s.empty = append(s.empty, hole{from: at, to: end, start: c.start, end: c.end})
	}
	s.first = s.first || p.kind == pageData
	s.values += p.values
	s.rows += p.rows
}

// readPage reads the page header at, in a chunk that ends at end.
func readPage(r io.ReaderAt, at, end int64) (page, error) {
	const first, most = 256, 16 << 20
	for n := int64(first); ; n *= 8 {
		b := make([]byte, min(n, max(0, end-at)))
		if _, err := r.ReadAt(b, at); err != nil && err != io.EOF {
			return page{}, err
		}
		t := thrift{b: b}
		p := parsePage(&t)
		if !t.bad {
			if p.header = int64(t.pos); p.size > end-at-p.header {
				return p, fmt.Errorf("compressed_page_size %d, the chunk ends after %d", p.size, end-at-p.header)
			}
			return p, nil
		}
		if int64(len(b)) < n || n >= most {
			return page{}, fmt.Errorf("page header: %w", errThrift)
		}
	}
}

// parsePage parses a page header. The part of it that is the kind of page's own
// is field 5 for kind 0, and so on.
func parsePage(t *thrift) page {
	p := page{kind: -1}
	var body int64
	for last := int64(0); !t.bad; {
		kind := t.field(&last)
		switch {
		case kind == 0:
			t.bad = t.bad || p.kind < 0 || body != p.kind+5
			return p
		case last == 1:
			p.kind = t.integer(kind)
		case last == 2:
			p.raw = t.integer(kind)
		case last == 3:
			p.size = t.integer(kind)
		case last == 4:
			p.checked, p.crc = true, uint32(t.integer(kind))
		case (last == 5 || last == 7 || last == 8) && kind == thriftStruct:
			body = last
			p.parseBody(t, last)
		default:
			if last == 6 {
				body = last
			}
			t.skip(kind, 0)
		}
	}
	return p
}

// parseBody reads the part of a header that is the kind of page's own, the
// given field of the header.
func (p *page) parseBody(t *thrift, of int64) {
	encoding := int64(2)
	if of == 8 {
		encoding = 4
	}
	for last := int64(0); !t.bad; {
		kind := t.field(&last)
		switch {
		case kind == 0:
			return
		case last == 1:
			p.values = t.integer(kind)
		case last == encoding:
			p.encoding = parquet.Encoding(t.integer(kind))
		case last == 3 && of == 8:
			p.rows = t.integer(kind)
		case last == 2 && of == 8:
			p.nulls = t.integer(kind)
		case last == 3 && of == 5:
			p.defines = parquet.Encoding(t.integer(kind))
		case last == 4 && of == 5:
			p.repeats = parquet.Encoding(t.integer(kind))
		case last == 5 && of == 8:
			p.defined = t.integer(kind)
		case last == 6 && of == 8:
			p.levels = t.integer(kind)
		case last == 7 && of == 8:
			p.bare = kind == thriftFalse
			t.bad = t.bad || kind != thriftFalse && kind != thriftTrue
		default:
			t.skip(kind, 0)
		}
	}
}

// check looks at one page; late means that values came before it, dict that a
// dictionary did.
func (p page) check(leaf *schema.Column, late, dict bool, limit int64) error {
	switch {
	case p.size < 0 || p.raw < 0 || p.values < 0 || p.rows < 0:
		return fmt.Errorf("negative size or count: %d bytes, %d uncompressed, %d values, %d rows", p.size, p.raw, p.values, p.rows)
	case p.size > limit || p.raw > limit:
		return refusef("page of %d bytes, %d uncompressed, the limit is %d: the setting limits.page_bytes", p.size, p.raw, limit)
	case p.kind == pageIndex:
		return refusef("an index page")
	case p.kind == pageDict:
		return p.checkDict(leaf, late || dict)
	case p.indexed():
		if !dict && p.values > 0 {
			return errNoDictionary
		}
		return p.checkLevels(leaf)
	}
	return p.checkLevels(leaf)
}

func (p page) checkDict(leaf *schema.Column, late bool) error {
	width := fixedWidth(leaf.PhysicalType(), leaf.TypeLength())
	if leaf.PhysicalType() == parquet.Types.ByteArray {
		width = 4 // each has its length before it
	}
	switch {
	case late:
		return errors.New("a dictionary that is not the first page")
	case leaf.PhysicalType() == parquet.Types.Boolean:
		return refusef("a dictionary of BOOLEAN")
	case p.encoding != parquet.Encodings.Plain && p.encoding != parquet.Encodings.PlainDict:
		return refusef("a dictionary in encoding %s", p.encoding)
	case p.values*width > p.raw:
		return fmt.Errorf("a dictionary of %d values in %d bytes", p.values, p.raw)
	}
	return nil
}

// heap says how many bytes of the Go heap it takes to decode p.
func (p page) heap(leaf *schema.Column) int64 {
	const slice, length = 24, 4 // of a Go slice; of a length that is decoded ahead
	switch {
	case p.kind == pageDict && leaf.PhysicalType() == parquet.Types.ByteArray, p.kind == pageDict && leaf.PhysicalType() == parquet.Types.FixedLenByteArray:
		return 2 * slice * p.values
	case p.kind == pageDict:
		return 2 * p.raw
	case p.encoding == parquet.Encodings.DeltaByteArray:
		return 2*length*p.values + p.raw
	case p.encoding == parquet.Encodings.DeltaLengthByteArray:
		return length * p.values
	}
	return 0
}

// decodes tells whether arrow-go decodes an encoding of a type.
func decodes(e parquet.Encoding, t parquet.Type) bool {
	is := func(types ...parquet.Type) bool {
		for _, one := range types {
			if one == t {
				return true
			}
		}
		return false
	}
	physical := parquet.Types
	switch e {
	case parquet.Encodings.Plain:
		return true
	case parquet.Encodings.RLE:
		return is(physical.Boolean)
	case parquet.Encodings.DeltaBinaryPacked:
		return is(physical.Int32, physical.Int64)
	case parquet.Encodings.DeltaLengthByteArray, parquet.Encodings.DeltaByteArray:
		return is(physical.ByteArray)
	case parquet.Encodings.ByteStreamSplit:
		return is(physical.Int32, physical.Int64, physical.Float, physical.Double, physical.FixedLenByteArray)
	}
	return false
}

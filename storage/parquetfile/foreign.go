package parquetfile

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/headrace/headrace/storage/budget"
)

// checkPages walks the pages of the columns that arrow-go reads and charges what
// they will take on the Go heap.
func (s *Scanner) checkPages(f *footer) error {
	for col := range f.meta.Schema.NumColumns() {
		if !s.leaves[col] {
			continue
		}
		d := f.meta.Schema.Column(col)
		if err := s.checkLeaf(f, col); err != nil {
			return fmt.Errorf("column %q: %w", d.Path(), err)
		}
		root := f.meta.Schema.Root().FieldIndexByField(f.meta.Schema.ColumnRoot(col))
		for i := range s.columns {
			if c := &s.columns[i]; c.root == root {
				c.nested = c.nested || d.MaxRepetitionLevel() > 0
			}
		}
	}
	return nil
}

// checkLeaf does so for one leaf column.
func (s *Scanner) checkLeaf(f *footer, col int) error {
	c := f.chunk(s.group, col)
	if err := checkCodec(c.codec); err != nil {
		return err
	}
	d := f.meta.Schema.Column(col)
	sum, err := walkPages(bare{s.source}, c, d, s.rows, s.page, func(n int64) error { return s.charge(budget.Scratch, n) })
	if err != nil {
		return err
	}
	s.source.holes = append(s.source.holes, sum.empty...)
	if len(sum.seals) > 0 {
		s.source.seals = append(s.source.seals, &sealed{
			start: c.start, end: c.end, seals: sum.seals, page: room{pool: s.pool, grant: s.grant},
			blame: func(err error) error {
				return blame(s.name, fmt.Errorf("row group %d, column %q: %w", s.group, d.Path(), err))
			},
		})
	}
	if err := s.charge(budget.Input, min(bufferSize(s.wanted), c.size)); err != nil {
		return err
	}
	return s.charge(budget.Scratch, sum.heap)
}

// openColumns opens a reader per column. arrow-go makes its own manifest,
// which ours replaces.
func (s *Scanner) openColumns(f *footer, nodes []pqarrow.SchemaField) error {
	return guard(func() error {
		props := parquet.NewReaderProperties(s.scratch)
		props.BufferedStreamEnabled = true
		props.BufferSize = bufferSize(s.wanted)
		props.MaxCompressedPageSize, props.MaxUncompressedPageSize = s.page, s.page
		r, err := file.NewParquetReader(s.source, file.WithReadProps(props), file.WithMetadata(f.meta))
		if err != nil {
			return err
		}
		if s.files, err = pqarrow.NewFileReader(r, pqarrow.ArrowReadProperties{}, s.scratch); err != nil {
			return err
		}
		s.files.Manifest.Fields = nodes
		for i := range s.columns {
			if !s.columns[i].foreign {
				continue
			}
			if err := s.openColumn(i); err != nil {
				return fmt.Errorf("column %q: %w", s.columns[i].field.Name, err)
			}
		}
		return nil
	})
}

// openColumn opens the reader of column number i. arrow-go opens the children of structs on goroutines of its own, where
// nobody could recover a panic: for want of memory there is none, and what bytes make it panic does so before, here.
func (s *Scanner) openColumn(i int) error {
	if err := s.rehearse(i); err != nil {
		return err
	}
	return s.scratch.Lend(func() (err error) {
		s.columns[i].reader, err = s.reader(i)
		return err
	})
}

// take decodes the next n rows of a column and charges what they have on the Go
// heap, which is the caller's to credit.
func (s *Scanner) take(c *column, n int64) (arrow.Array, int64, error) {
	a, err := s.decode(c, n)
	if err != nil {
		return nil, 0, s.explain(err, c.field.Name)
	}
	heap := heapBytes(a.Data())
	if err := s.grant.Charge(budget.Scratch, heap); err != nil {
		a.Release()
		return nil, 0, s.explain(err, c.field.Name)
	}
	c.at += n
	return a, heap, nil
}

// decode returns the next n rows of a column as one array.
func (s *Scanner) decode(c *column, n int64) (a arrow.Array, err error) {
	err = guard(func() error {
		if a, err = s.batch(c, n); err != nil {
			return inRows(c, err)
		}
		if got := int64(a.Len()); got != n {
			return fmt.Errorf("%d rows from row %d on, but its pages have %d", n, c.at, got)
		}
		if !c.nested || c.at+n < s.rows {
			return nil
		}
		// The pages of flat columns were counted; in others a row may begin anywhere.
		rest, err := s.batch(c, 1)
		if err != nil {
			return err
		}
		defer rest.Release()
		if rest.Len() > 0 {
			return fmt.Errorf("num_rows %d, but its pages have more", s.rows)
		}
		return nil
	})
	return a, err
}

// inRows says which rows err is about. INT96 timestamps may lie centuries
// outside what nanoseconds reach, and only the text of the error tells that
// this is so, and where.
func inRows(c *column, err error) error {
	text := err.Error()
	if !strings.Contains(text, "outside the Arrow nanosecond range") {
		return fmt.Errorf("rows from %d on: %w", c.at, err)
	}
	var index int64
	_, place, _ := strings.Cut(text, "INT96 timestamp at index ")
	if _, err := fmt.Sscanf(place, "%d", &index); err != nil || c.nested {
		return refusef("rows from %d on: an INT96 timestamp outside of what nanoseconds reach, 1677 to 2262", c.at)
	}
	return refusef("row %d: an INT96 timestamp outside of what nanoseconds reach, 1677 to 2262", c.at+index)
}

func (s *Scanner) batch(c *column, n int64) (arrow.Array, error) {
	chunked, err := c.reader.NextBatch(n)
	if err != nil {
		return nil, err
	}
	defer chunked.Release()
	switch chunks := chunked.Chunks(); len(chunks) {
	case 0:
		return array.MakeArrayOfNull(s.scratch, chunked.DataType(), 0), nil
	case 1:
		chunks[0].Retain()
		return chunks[0], nil
	default:
		return array.Concatenate(chunks, s.scratch)
	}
}

package parquetfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

// stepBytes is about how much a scanner decodes at once. It is well above a
// block and well below a frame.
const stepBytes = 16 << 20

// Scanner decodes the rows of one row group, front to back. It holds one page
// and one dictionary per column, never the row group. It is used by one
// goroutine; after an error all it can do is Close.
type Scanner struct {
	name    string
	obj     *bucket.Object
	group   int
	rows    int64 // of the row group
	at      int64 // the next row
	target  *arrow.Schema
	columns []column
	source  *source
	far     *bucket.Object // what the source reads, if it reads ahead
	marks   *marks         // where rows begin
	files   *pqarrow.FileReader
	leaves  map[int]bool // the leaf columns that are read by arrow-go
	page    int64        // the most bytes of one
	wanted  int          // how many leaf columns are read
	inflate inflater
	scratch *frame.Scratch
	pool    *frame.Pool
	grant   *budget.Grant
	pays    *budget.Grant // for the frames of this Next
	charges []charge      // for as long as the scanner is open
	perRow  float64       // bytes a row has in a frame, by the last measure
	failed  error
}

// openOwn begins to read a column without arrow-go.
func (s *Scanner) openOwn(f *footer, c *column, from *pqarrow.SchemaField) error {
	c.own = new(ownColumn)
	p := planner{footer: f, column: c.own, open: func(col int) *leafReader {
		chunk := f.chunk(s.group, col)
		l := &leafReader{rows: s.rows, marks: s.marks.get(s.group, col)}
		l.input = input{source: s.source, pool: s.pool, grant: s.grant, at: chunk.start, end: chunk.end, step: windowSize(s.wanted, s.source.obj.Remote())}
		l.long = max(l.step, min(16<<20/int64(s.wanted), aBlock))
		l.col, l.chunk, l.inflater, l.limit = col, chunk, &s.inflate, s.page
		l.init(f.meta.Schema.Column(col))
		return l
	}}
	c.own.root = p.plan(from, c.field.Type)
	if p.err != nil {
		return p.err
	}
	for _, l := range c.own.leaves {
		if err := checkCodec(l.chunk.codec); err != nil {
			return err
		}
	}
	return c.own.start()
}

// charge is memory that arrow-go takes without asking.
type charge struct {
	kind  budget.Kind
	bytes int64
}

// column is one column of the projection.
type column struct {
	field   arrow.Field // as served
	own     *ownColumn  // nil: arrow-go reads it
	foreign bool        // it does
	reader  *pqarrow.ColumnReader
	nested  bool  // below a list: only its levels tell where rows end
	root    int   // its place in the file's schema
	at      int64 // the next row that the reader gives
}

// Options of scans.
type Options struct {
	// PageBytes is the most bytes that a page may have, as stored or
	// decompressed; 0 stands for 256 MiB.
	PageBytes int64
	// Columns, if set, is told how many columns a scan reads by itself ("own")
	// and how many by "arrow-go".
	Columns func(ctx context.Context, reader string, n int)

	arrowGo bool // all of them, to compare
}

// Open begins to read row group segment of sh, the columns and the part of
// them that p wants. All memory beyond the frames is charged to g until Close.
func (o Options) Open(ctx context.Context, obj *bucket.Object, sh *snapshot.Shard, segment int, p *schema.Projection, pool *frame.Pool, g *budget.Grant) (*Scanner, error) {
	if segment < 0 || segment >= len(sh.Segments) {
		return nil, fmt.Errorf("parquet file %q has %d row groups, not number %d", obj.Key(), len(sh.Segments), segment)
	}
	f, err := reopen(ctx, obj, sh)
	if err != nil {
		return nil, err
	}
	seg := sh.Segments[segment]
	s := &Scanner{
		name: obj.Key(), obj: obj, group: segment, rows: seg.Rows, target: p.Schema,
		source: &source{ctx: ctx, obj: obj, store: obj}, marks: sh.Facts.(*facts).marks, leaves: make(map[int]bool), scratch: pool.Scratch(g), pool: pool, grant: g,
	}
	if seg.Rows > 0 {
		s.perRow = float64(seg.Bytes) / float64(seg.Rows)
	}
	s.page = cmp.Or(o.PageBytes, maxPage)
	if err := s.open(f, o.arrowGo); err != nil {
		err = s.explain(err, "")
		s.Close()
		return nil, err
	}
	if o.Columns != nil {
		for reader, n := range s.readers() {
			o.Columns(ctx, reader, n)
		}
	}
	return s, nil
}

// readers counts the columns by who reads them.
func (s *Scanner) readers() map[string]int {
	n := make(map[string]int, 2)
	for i := range s.columns {
		if s.columns[i].own != nil {
			n["own"]++
		} else {
			n["arrow-go"]++
		}
	}
	return n
}

func (s *Scanner) open(f *footer, arrowGo bool) error {
	nodes := make([]pqarrow.SchemaField, s.target.NumFields())
	manifest, err := s.manifest(f)
	if err != nil {
		return err
	}
	s.columns = make([]column, len(nodes))
	all := make(map[int]bool)
	for i, want := range s.target.Fields() {
		at := f.schema.FieldIndices(want.Name)
		if len(at) != 1 {
			return fmt.Errorf("%w: %q", schema.ErrUnknownColumn, want.Name)
		}
		leaves := make(map[int]bool)
		if nodes[i], err = prune(&manifest.Fields[at[0]], f.schema.Field(at[0]), want, leaves); err != nil {
			return fmt.Errorf("%w: %w", schema.ErrMismatch, err)
		}
		maps.Copy(all, leaves)
		s.wanted += len(leaves)
		s.columns[i].field, s.columns[i].root = want, at[0]
		if s.columns[i].foreign = arrowGo || !owns(f, &nodes[i], want.Type); s.columns[i].foreign {
			maps.Copy(s.leaves, leaves)
		}
	}
	s.approach(f, all)
	for i := range s.columns {
		if s.columns[i].foreign {
			continue
		}
		if err := s.openOwn(f, &s.columns[i], &nodes[i]); err != nil {
			return fmt.Errorf("column %q: %w", s.columns[i].field.Name, err)
		}
	}
	if len(s.leaves) == 0 {
		return nil
	}
	if err := s.checkPages(f); err != nil {
		return err
	}
	return s.openColumns(f, nodes)
}

// manifest returns arrow-go's plan of the file's fields, made to decode to
// what we serve.
func (s *Scanner) manifest(f *footer) (m *pqarrow.SchemaManifest, err error) {
	err = guard(func() error {
		if m, err = pqarrow.NewSchemaManifest(f.meta.Schema, nil, nil); err == nil {
			_, err = f.serve(m)
		}
		return err
	})
	return m, err
}

func (s *Scanner) reader(i int) (*pqarrow.ColumnReader, error) {
	return s.files.GetFieldReader(s.source.ctx, i, s.leaves, []int{s.group})
}

// rehearse opens all that column number i is made of, one by one, as arrow-go does below structs, and gives it back.
func (s *Scanner) rehearse(i int) error {
	fields := s.files.Manifest.Fields
	whole := fields[i]
	defer func() { fields[i] = whole }()
	var below func(f pqarrow.SchemaField) error
	below = func(f pqarrow.SchemaField) error {
		for _, child := range f.Children {
			if err := below(child); err != nil {
				return err
			}
		}
		if len(f.Children) > 0 {
			return nil
		}
		fields[i] = f
		r, err := s.reader(i)
		if r != nil {
			r.Release()
		}
		return err
	}
	if !belowStruct(whole) {
		return nil
	}
	return below(whole)
}

// belowStruct tells whether a field is a struct or holds one.
func belowStruct(f pqarrow.SchemaField) bool {
	return f.Field.Type.ID() == arrow.STRUCT || slices.ContainsFunc(f.Children, belowStruct)
}

// bufferSize is how many bytes a column reads at once when n columns do:
// much for few, for the sake of stores that are far away, 1 MiB for all if it can be.
func bufferSize(n int) int64 {
	return min(max(1<<20/int64(max(n, 1)), 16<<10), 256<<10)
}

// windowSize is how many bytes of a column we read at once: of an object in a
// store not so few that the round trip is what takes time, and for few columns a
// page of 1 MiB, which most writers aim at and go a little beyond.
func windowSize(n int, remote bool) int64 {
	if remote {
		return min(max(8<<20/int64(max(n, 1)), 256<<10), 1<<20+64<<10)
	}
	return bufferSize(n)
}

func (s *Scanner) charge(k budget.Kind, n int64) error {
	if err := s.grant.Charge(k, n); err != nil {
		return err
	}
	s.charges = append(s.charges, charge{k, n})
	return nil
}

// explain says where err happened and whose fault it was: the store's, the
// caller's, the ledger's, else the file's.
func (s *Scanner) explain(err error, column string) error {
	where := fmt.Sprintf("row group %d", s.group)
	if column != "" {
		where += fmt.Sprintf(", column %q", column)
	}
	if s.source.err != nil {
		return s.source.err
	}
	for _, not := range []error{context.Canceled, context.DeadlineExceeded, schema.ErrUnknownColumn, schema.ErrMismatch, budget.ErrExhausted, budget.ErrTooLarge} {
		if errors.Is(err, not) {
			return fmt.Errorf("parquet file %q: %s: %w", s.name, where, err)
		}
	}
	return blame(s.name, fmt.Errorf("%s: %w", where, err))
}

// Skip passes over rows. Whole pages of them are not even read where their
// headers, or another scanner before this one, tell how many rows they have; in
// lists that may take their levels. What is left is decoded and dropped, as is
// all in the columns that arrow-go reads.
func (s *Scanner) Skip(ctx context.Context, rows int64) error {
	if err := s.ready(ctx, rows); err != nil {
		return err
	}
	for i := range s.columns {
		if s.failed = s.pass(ctx, i, s.at+rows); s.failed != nil {
			return s.failed
		}
	}
	s.at += rows
	return nil
}

// pass moves column number i to row to.
func (s *Scanner) pass(ctx context.Context, i int, to int64) error {
	c := &s.columns[i]
	if c.own != nil {
		s.share(c.own)
		if err := guard(func() error { return c.own.skip(int(to - c.at)) }); err != nil {
			return s.explain(err, c.field.Name)
		}
		s.share(c.own)
		c.at = to
		return nil
	}
	for c.at < to {
		if err := ctx.Err(); err != nil {
			return err
		}
		a, heap, err := s.take(c, min(to-c.at, s.stepRows()))
		if err != nil {
			return err
		}
		a.Release()
		s.grant.Credit(budget.Scratch, heap)
	}
	return nil
}

// Next decodes the next rows into frames of at most frame.MaxFrame, in the
// columns, types and order of the projection. Usually it is one frame.
// Frames are charged to g; nil is the grant of Open.
func (s *Scanner) Next(ctx context.Context, g *budget.Grant, rows int64) (leases []*frame.Lease, err error) {
	s.pays = cmp.Or(g, s.grant)
	err = s.advance(ctx, rows, func(n int64, columns []frame.Column) error {
		more, err := s.assemble(n, columns)
		leases = append(leases, more...)
		return err
	})
	if err != nil {
		for _, l := range leases {
			l.Release()
		}
		return nil, err
	}
	s.rest()
	return leases, nil
}

// ready tells whether the next rows can be asked for, and lets ctx govern the reads.
func (s *Scanner) ready(ctx context.Context, rows int64) error {
	if s.failed != nil {
		return s.failed
	}
	if rows < 0 || rows > s.rows-s.at {
		return fmt.Errorf("parquet file %q: row group %d: %d rows asked for, %d are left", s.name, s.group, rows, s.rows-s.at)
	}
	s.source.ctx = ctx
	return nil
}

// stepRows is how many rows are decoded at once.
func (s *Scanner) stepRows() int64 { return max(1, int64(stepBytes/max(s.perRow, 1))) }

// advance decodes rows in steps of about stepBytes and gives each to use.
func (s *Scanner) advance(ctx context.Context, rows int64, use func(n int64, columns []frame.Column) error) error {
	if err := s.ready(ctx, rows); err != nil {
		return err
	}
	for rows > 0 {
		n := min(rows, s.stepRows())
		if s.failed = s.step(ctx, n, use); s.failed != nil {
			return s.failed
		}
		rows, s.at = rows-n, s.at+n
	}
	return nil
}

// step decodes n rows, or for columns of our own finds out what they take, and
// gives them to use.
func (s *Scanner) step(ctx context.Context, n int64, use func(n int64, columns []frame.Column) error) error {
	if err := s.ahead(n); err != nil {
		return s.explain(err, "")
	}
	columns := make([]frame.Column, len(s.columns))
	var arrays []arrow.Array
	var charged int64
	defer func() {
		for _, a := range arrays {
			a.Release()
		}
		s.grant.Credit(budget.Scratch, charged)
	}()
	for i := range s.columns {
		if err := ctx.Err(); err != nil {
			return err
		}
		c := &s.columns[i]
		if c.own != nil {
			if err := s.takeOwn(c, n, &columns[i]); err != nil {
				return err
			}
			continue
		}
		a, heap, err := s.take(c, n)
		if err != nil {
			return err
		}
		arrays = append(arrays, a)
		charged += heap
		columns[i] = frame.ColumnOf(a)
		retype(&columns[i], c.field.Type)
	}
	return use(n, columns)
}

// takeOwn prepares the next n rows of a column that we read ourselves.
func (s *Scanner) takeOwn(c *column, n int64, out *frame.Column) error {
	err := guard(func() (err error) {
		*out, err = c.own.take(int(n))
		return err
	})
	if err != nil {
		return s.explain(err, c.field.Name)
	}
	c.at += n
	return nil
}

// Close ends the scan and frees all its memory but the frames.
func (s *Scanner) Close() {
	for i := range s.columns {
		if r := s.columns[i].reader; r != nil {
			_ = guard(func() error { r.Release(); return nil })
		}
		s.columns[i].reader = nil
		if own := s.columns[i].own; own != nil {
			own.close()
			s.share(own)
		}
	}
	for _, c := range s.source.seals {
		c.page.free()
	}
	s.retreat()
	s.scratch.Close()
	for _, c := range s.charges {
		s.grant.Credit(c.kind, c.bytes)
	}
	s.charges = nil
}

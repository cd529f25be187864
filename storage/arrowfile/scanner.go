package arrowfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

// Scanner decodes the rows of one record batch in order. It belongs to one
// goroutine. Errors name the object and the batch.
type Scanner struct {
	name string
	want *schema.Projection
	dec  *decoder
	cols *columns
	pos  int64         // rows passed
	file *frame.File   // the object, mapped; nil: rows are copied
	pays *budget.Grant // for frames
}

// Open starts to read a segment that Describe has found in obj; the shard's
// schema, in plain form, has all that p names. Buffers of compressed batches
// are decompressed here, those of p's columns only. All memory is charged to g.
func Open(ctx context.Context, obj *bucket.Object, sh *snapshot.Shard, segment int, p *schema.Projection, pool *frame.Pool, g *budget.Grant) (s *Scanner, err error) {
	s = &Scanner{name: fmt.Sprintf("%s: record batch %d", obj.Key(), segment), want: p}
	facts, at := sh.Facts.(*Facts), sh.Segments[segment].Facts.(Batch)
	s.dec = &decoder{obj: obj, pool: pool, grant: g, messages: facts.Dictionaries[:at.Dictionaries]}
	defer func() {
		if err != nil {
			s.Close()
			s, err = nil, inObject(s.name, err)
		}
	}()
	defer guard(&err)
	if codec(at.Codec) == uncompressed && sh.Segments[segment].Bytes >= frame.LeastMapped {
		// Before the batch is read: reading it finds out whether the bytes under the lease are the pinned ones.
		s.file = mapped(obj, pool)
	}
	s.dec.approach(ctx, at.Place)
	if s.cols, err = s.dec.batch(ctx, at.Place, sh.Schema, facts.IDs, p.Schema); err != nil {
		return s, err
	}
	if slices.ContainsFunc(s.cols.arrays, (*stored).encoded) {
		s.unmap()
	}
	return s, nil
}

// mapped returns obj as a mapped file, nil if it cannot be mapped. Why not is
// of no interest: it can always be read.
func mapped(obj *bucket.Object, pool *frame.Pool) (f *frame.File) {
	_ = obj.Descriptor(func(fd uintptr) { f, _ = pool.Map(fd) })
	return f
}

func (s *Scanner) unmap() {
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
}

// Close gives all memory back, except the frames that Next has returned.
func (s *Scanner) Close() {
	s.unmap()
	s.dec.close()
}

// Skip passes over rows.
func (s *Scanner) Skip(_ context.Context, rows int64) error {
	if rows < 0 || rows > s.cols.rows-s.pos {
		return fmt.Errorf("%s: %d rows asked for after %d of %d", s.name, rows, s.pos, s.cols.rows)
	}
	s.pos += rows
	return nil
}

// Next returns the next rows with the projection's schema, in one frame, or in
// several where one would be larger than frame.MaxFrame. After an error the
// scanner is good for nothing but Close.
// Frames are charged to g; nil is the grant of Open.
func (s *Scanner) Next(ctx context.Context, g *budget.Grant, rows int64) (out []*frame.Lease, err error) {
	s.pays = cmp.Or(g, s.dec.grant)
	defer func() {
		if err != nil {
			for _, l := range out {
				l.Release()
			}
			out, err = nil, inObject(s.name, err)
		}
	}()
	defer guard(&err)
	if rows < 0 || rows > s.cols.rows-s.pos {
		return nil, fmt.Errorf("%d rows asked for after %d of %d", rows, s.pos, s.cols.rows)
	}
	for end := s.pos + rows; s.pos < end; {
		l, n, err := s.frame(ctx, end-s.pos)
		if err != nil {
			return out, err
		}
		out = append(out, l)
		s.pos += n
	}
	return out, nil
}

// frame returns a frame of the next rows, at least one and at most most of
// them, and tells how many they are.
func (s *Scanner) frame(ctx context.Context, most int64) (_ *frame.Lease, rows int64, err error) {
	if l, err := s.inPlace(ctx, most); l != nil || err != nil {
		return l, most, err
	}
	return s.copied(ctx, most)
}

// inPlace returns a frame of the next rows where they lie in the file, nil if
// they have to be copied. What cannot be done once is not tried again.
func (s *Scanner) inPlace(ctx context.Context, rows int64) (*frame.Lease, error) {
	if s.file == nil {
		return nil, nil
	}
	p, err := s.dec.piece(ctx, s.cols, s.pos, s.pos+rows)
	if err != nil {
		return nil, err
	}
	l, err := s.file.Frame(s.pays, s.want.Schema, p.Piece)
	if errors.Is(err, frame.ErrNotInPlace) {
		s.unmap()
		return nil, nil
	}
	return l, frame.Behind(err, s.pos)
}

// copied is like frame and copies. What dictionary indices decode to is not
// known before, so that a frame may be put together from several pieces.
func (s *Scanner) copied(ctx context.Context, most int64) (_ *frame.Lease, rows int64, err error) {
	scratch := s.dec.pool.Scratch(s.dec.grant)
	defer scratch.Close()
	var pieces []frame.Piece
	var total int64
	for step := most; rows < most; {
		p, err := s.dec.piece(ctx, s.cols, s.pos+rows, s.pos+rows+min(step, most-rows))
		if err != nil {
			return nil, 0, err
		}
		defer p.free()
		size, err := s.size(p, scratch)
		if err != nil {
			return nil, 0, err
		}
		if total+size <= frame.MaxFrame || rows == 0 && p.To == 1 { // a row that is larger goes alone
			pieces, total, rows = append(pieces, p.Piece), total+size, rows+p.To
			continue
		}
		p.free()
		if rows > 0 {
			break
		}
		step = fewer(p.To, size)
	}
	l, err := s.dec.pool.Assemble(s.pays, budget.Frames, s.want.Schema, pieces)
	return l, rows, frame.Behind(err, s.pos)
}

// size decodes p and returns the bytes of a frame of it. If its dictionaries
// could make it too large for that, it returns what they could make it.
func (s *Scanner) size(p *piece, scratch *frame.Scratch) (int64, error) {
	if p.bound > frame.MaxFrame && p.To > 1 {
		return p.bound, nil
	}
	if err := p.decode(scratch); err != nil {
		return 0, err
	}
	size, err := frame.Measure(s.want.Schema, []frame.Piece{p.Piece})
	if errors.Is(err, frame.ErrOverflow) && p.To > 1 {
		return 1 << 31, nil // as much as 32-bit offsets reach, at least
	}
	return size, err
}

// fewer returns how many rows to try after n of them took size bytes, too many.
func fewer(n, size int64) int64 {
	return max(1, min(n-1, int64(float64(n)*frame.MaxFrame/float64(size))))
}

// InPlace tells whether columns of a segment can be shown where they lie in a local file: as far as is known before the batch
// is read, which says where its buffers are.
func InPlace(sh *snapshot.Shard, segment int, p *schema.Projection) bool {
	if codec(sh.Segments[segment].Facts.(Batch).Codec) != uncompressed || !frame.InPlace(p.Schema) {
		return false
	}
	for _, f := range p.Schema.Fields() {
		at := sh.Schema.FieldIndices(f.Name)
		if len(at) != 1 || encodedWithin(sh.Schema.Field(at[0]).Type) {
			return false
		}
	}
	return true
}

// encodedWithin tells whether values of a type must be decoded.
func encodedWithin(t arrow.DataType) bool {
	switch t := t.(type) {
	case *arrow.DictionaryType, *arrow.RunEndEncodedType:
		return true
	case arrow.ExtensionType:
		return encodedWithin(t.StorageType())
	case arrow.NestedType:
		return slices.ContainsFunc(t.Fields(), func(f arrow.Field) bool { return encodedWithin(f.Type) })
	}
	return false
}

// Need estimates the bytes that reading a segment takes beyond the frames:
// nothing but dictionaries for a batch that is not compressed, else what its
// buffers may decompress to. What it turns out to be is charged exactly.
func Need(sh *snapshot.Shard, segment int, _ *schema.Projection) int64 {
	seg := sh.Segments[segment]
	at := seg.Facts.(Batch)
	need := inflated(seg.Bytes, codec(at.Codec))
	dictionaries := sh.Facts.(*Facts).Dictionaries[:at.Dictionaries]
	current := map[int64]int64{}
	for _, m := range dictionaries {
		if !m.Delta {
			current[m.ID] = 0
		}
		current[m.ID] += inflated(m.Bytes, codec(m.Codec)) + m.Bytes
	}
	for _, n := range current {
		need += n
	}
	return need
}

// Keeps estimates what of that a scanner keeps from block to block, and what it has at its most when it goes on: what was
// decompressed when it began, and nothing else.
func Keeps(sh *snapshot.Shard, segment int, p *schema.Projection) (between, onward int64) {
	seg := sh.Segments[segment]
	between = Need(sh, segment, p)
	if n := inflated(seg.Bytes, codec(seg.Facts.(Batch).Codec)); n > 0 {
		between += seg.Bytes - n
	}
	return between, between
}

// inflated guesses what buffers decompress to: their fixed-width parts are
// counted in full already.
func inflated(n int64, how codec) int64 {
	if how == uncompressed {
		return 0
	}
	return 3 * n
}

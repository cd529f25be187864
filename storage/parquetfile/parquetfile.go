// Package parquetfile reads one format, Parquet: it describes a shard and decodes blocks of a segment into frames.
//
// A Parquet file is never served in place: its pages are decoded once per
// block and set of columns. What decides which rows a block has, the numbers of
// the footer, is read and checked here.
//
// Behind the Scanner are two readers with one output. Ours, column by column:
// an input reads a column chunk in windows, a stream finds its pages, checks
// and decompresses them, a leafReader reads the levels of the rows that are
// wanted, which tells how large the frame will be, and then values decode what
// is stored to where it belongs in the frame. Where rows begin in the pages is
// remembered as marks, with the facts of the shard. Long byte arrays that Snappy
// did not make shorter are not decompressed first: the page stays as it was read,
// and its pieces are copied to the frame. arrow-go reads what is
// rare, lists of lists above all, into memory from which the frame is copied.
//
// Errors wrap snapshot.ErrCorrupt or snapshot.ErrUnsupported and name the file
// and what in it is wrong, except those of the store and of the ledger, which
// pass through as they are.
//
// Ten minutes of fuzzing each, on one processor that was busy with other things,
// found no panic and no error without a class: FuzzFooter 487,770 inputs,
// FuzzDescribe 99,365, FuzzPageHeader 618,151, FuzzLevels 286,843, FuzzIndex
// 64,132,045. FuzzScan, which also compares the two readers, had 429,243 and no
// difference.
package parquetfile

import (
	"context"
	"fmt"
	"iter"
	"weak"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/snapshot"
)

// facts are what a shard keeps of its file between scans: enough to read the
// footer again, not the footer itself, which unfolds to many times its length.
type facts struct {
	footer int64   // its length in bytes
	chunks []int64 // for each leaf column, the bytes of its largest chunk
	dicts  []int64 // and of its largest dictionary, as stored; none after a restart
	leaves []int32 // for each column, its first leaf; then their number
	remote bool
	deep   []bool               // for each column, whether it has lists of lists
	parsed weak.Pointer[footer] // while somebody uses it, or the collector has not come by
	marks  *marks               // where rows begin, as scanners found out
}

// Describe reads the footer of obj: its schema as it is served, with dictionary
// and extension types made plain, and one segment per row group.
func Describe(ctx context.Context, obj *bucket.Object) (*snapshot.Shard, error) {
	b, err := readFooter(ctx, obj)
	if err != nil {
		return nil, err
	}
	f, err := parseFooter(obj.Size(), b)
	if err != nil {
		return nil, blame(obj.Key(), err)
	}
	known := f.facts()
	known.remote = obj.Remote()
	return &snapshot.Shard{
		Key: obj.Key(), Size: obj.Size(), Pin: string(obj.Pin()), Format: snapshot.Parquet,
		Schema: f.schema, Segments: f.segments(), Meta: f.sum, Facts: known,
	}, nil
}

func (f *footer) facts() *facts {
	leaves := f.meta.Schema.NumColumns()
	out := &facts{
		footer: f.length, chunks: make([]int64, leaves), dicts: make([]int64, leaves),
		parsed: weak.Make(f), marks: &marks{of: map[[2]int][]mark{}},
	}
	for rg := range f.meta.RowGroups {
		for col := range out.chunks {
			out.chunks[col] = max(out.chunks[col], f.chunkBytes(rg, col))
			out.dicts[col] = max(out.dicts[col], f.dictBytes(rg, col))
		}
	}
	root := f.meta.Schema.Root()
	out.deep = make([]bool, root.NumFields())
	for col := range out.chunks {
		at := root.FieldIndexByField(f.meta.Schema.ColumnRoot(col))
		for len(out.leaves) <= at {
			out.leaves = append(out.leaves, int32(col))
		}
		out.deep[at] = out.deep[at] || f.meta.Schema.Column(col).MaxRepetitionLevel() > 1
	}
	out.leaves = append(out.leaves, int32(len(out.chunks)))
	return out
}

// reopen returns the footer that sh was described from, parsed again unless it
// still is. A footer that is another one is the store's ErrChanged.
func reopen(ctx context.Context, obj *bucket.Object, sh *snapshot.Shard) (*footer, error) {
	known, ok := sh.Facts.(*facts)
	if !ok || sh.Format != snapshot.Parquet {
		return nil, fmt.Errorf("shard %q was not described as Parquet", sh.Key)
	}
	if f := known.parsed.Value(); f != nil {
		return f, nil
	}
	b := make([]byte, known.footer)
	if err := obj.ReadAt(ctx, b, obj.Size()-trailer-known.footer); err != nil {
		return nil, err
	}
	f, err := parseFooter(obj.Size(), b)
	if err != nil {
		return nil, blame(obj.Key(), err)
	}
	if f.sum != sh.Meta {
		return nil, fmt.Errorf("%w: %q has another footer than when it was described", bucket.ErrChanged, obj.Key())
	}
	return f, nil
}

// Need estimates the memory, in bytes, that decoding one block of a segment
// takes beyond its frames: what Keeps says, and the pages of the block, stored
// and decompressed, the first and last of which have more than is wanted.
// Where arrow-go reads columns it takes another copy, since builders double and
// conversions copy. It is a guess for admission; what is used is charged as it is taken.
func Need(sh *snapshot.Shard, segment int, p *schema.Projection) int64 {
	seg := sh.Segments[segment]
	if _, ok := sh.Facts.(*facts); !ok || seg.Rows == 0 {
		return 0
	}
	copies := 2.0
	for _, foreign := range wanted(sh, p) {
		if foreign {
			copies = 3
		}
	}
	return keeps(sh, p) + int64(copies*float64(seg.Bytes)/float64(seg.Blocks())*Share(sh, p))
}

// Keeps estimates what of that a scanner keeps from block to block, and what it has at its most when it goes on.
func Keeps(sh *snapshot.Shard, segment int, p *schema.Projection) (between, onward int64) {
	if onward = Need(sh, segment, p); onward == 0 {
		return 0, 0
	}
	return keeps(sh, p), onward
}

// keeps is of each wanted column a dictionary, what is read at once, and a page. A dictionary is large where writers put
// values of many KiB into it, and is then stored and decompressed at once. Columns that arrow-go reads take another page.
func keeps(sh *snapshot.Shard, p *schema.Projection) (need int64) {
	const page, floor = 1 << 20, 32 << 10 // what writers aim at; what takes memory however little there is
	known, leaves := sh.Facts.(*facts), int64(0)
	for col, foreign := range wanted(sh, p) {
		c := min(known.chunks[col], page)
		dict := c
		if known.dicts != nil {
			dict = max(dict, known.dicts[col])
		}
		need += dict + max(2*c, dict) + floor
		leaves++
		if foreign {
			need += c
		}
	}
	return need + leaves*windowSize(int(leaves), known.remote)
}

// Share estimates which part of a shard's decoded bytes the wanted columns are.
func Share(sh *snapshot.Shard, p *schema.Projection) float64 {
	known, ok := sh.Facts.(*facts)
	if !ok {
		return 1
	}
	var part, all int64
	for _, c := range known.chunks {
		all += c
	}
	for col := range wanted(sh, p) {
		part += known.chunks[col]
	}
	return float64(part) / float64(max(all, 1))
}

// wanted yields each leaf column that p has a part of, and whether arrow-go reads it.
func wanted(sh *snapshot.Shard, p *schema.Projection) iter.Seq2[int32, bool] {
	return func(yield func(int32, bool) bool) {
		known, ok := sh.Facts.(*facts)
		if !ok {
			return
		}
		for _, field := range p.Schema.Fields() {
			for _, i := range sh.Schema.FieldIndices(field.Name) {
				for col := known.leaves[i]; col < known.leaves[i+1]; col++ {
					if !yield(col, known.deep[i]) {
						return
					}
				}
			}
		}
	}
}

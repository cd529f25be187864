// Package parquetfile reads one format, Parquet: it describes a shard and decodes blocks of a segment into frames.
//
// A Parquet file is never served in place: its pages are decoded once per
// block and set of columns. arrow-go does that behind the Scanner; what decides
// which rows a block has, the numbers of the footer, is read and checked here.
//
// Errors wrap snapshot.ErrCorrupt or snapshot.ErrUnsupported and name the file
// and what in it is wrong, except those of the store and of the ledger, which
// pass through as they are.
//
// Ten minutes of fuzzing each, on one processor that was busy with other things,
// found no panic and no error without a class: FuzzFooter 487,770 inputs,
// FuzzDescribe 99,365.
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
	footer int64                // its length in bytes
	chunks []int64              // for each leaf column, the bytes of its largest chunk
	leaves []int32              // for each column, its first leaf; then their number
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
	return &snapshot.Shard{
		Key: obj.Key(), Size: obj.Size(), Pin: string(obj.Pin()), Format: snapshot.Parquet,
		Schema: f.schema, Segments: f.segments(), Meta: f.sum, Facts: f.facts(),
	}, nil
}

func (f *footer) facts() *facts {
	out := &facts{footer: f.length, chunks: make([]int64, f.meta.Schema.NumColumns()), parsed: weak.Make(f), marks: &marks{of: map[[2]int][]mark{}}}
	for rg := range f.meta.RowGroups {
		for col := range out.chunks {
			out.chunks[col] = max(out.chunks[col], f.chunkBytes(rg, col))
		}
	}
	root := f.meta.Schema.Root()
	for col := range out.chunks {
		for len(out.leaves) <= root.FieldIndexByField(f.meta.Schema.ColumnRoot(col)) {
			out.leaves = append(out.leaves, int32(col))
		}
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
// takes beyond its frames: pages and buffers of the wanted columns, and three
// times the block, since builders double and conversions copy. It is a guess
// for admission; what is used is charged as it is taken.
func Need(sh *snapshot.Shard, segment int, p *schema.Projection) int64 {
	const page = 1 << 20 // what writers aim at
	seg := sh.Segments[segment]
	if seg.Rows == 0 {
		return 0
	}
	var need, leaves int64
	for c := range wanted(sh, p) {
		need += 4 * min(c, page)
		leaves++
	}
	block := float64(seg.Bytes) / float64(seg.Blocks())
	return need + leaves*bufferSize(int(leaves)) + int64(3*block*Share(sh, p))
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
	for c := range wanted(sh, p) {
		part += c
	}
	return float64(part) / float64(max(all, 1))
}

// wanted yields the bytes of the largest chunk of each leaf column that p has a part of.
func wanted(sh *snapshot.Shard, p *schema.Projection) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		known, ok := sh.Facts.(*facts)
		if !ok {
			return
		}
		for _, field := range p.Schema.Fields() {
			for _, i := range sh.Schema.FieldIndices(field.Name) {
				for _, c := range known.chunks[known.leaves[i]:known.leaves[i+1]] {
					if !yield(c) {
						return
					}
				}
			}
		}
	}
}

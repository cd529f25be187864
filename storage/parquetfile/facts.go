package parquetfile

import (
	"math"

	"github.com/headrace/headrace/storage/snapshot"
)

// Pack writes what a shard keeps of its file, in a form that never changes.
func Pack(sh *snapshot.Shard, e *snapshot.Encoder) {
	f := sh.Facts.(*facts)
	e.Number(f.footer)
	e.Number(int64(len(f.chunks)))
	for _, c := range f.chunks {
		e.Number(c)
	}
	e.Number(int64(len(f.leaves)))
	for _, l := range f.leaves {
		e.Number(int64(l))
	}
	for _, deep := range f.deep {
		e.Number(map[bool]int64{true: 1}[deep])
	}
}

// Place says whether the file lies in a store, which is no fact about what it is.
func (f *facts) Place(remote bool) { f.remote = remote }

// Unpack reads what Pack wrote, and what makes no sense with the rest of the
// shard makes d fail.
func Unpack(sh *snapshot.Shard, d *snapshot.Decoder) {
	f := &facts{footer: d.Number(maxFooter), marks: &marks{of: map[[2]int][]mark{}}}
	f.chunks = make([]int64, d.Count(1))
	for i := range f.chunks {
		f.chunks[i] = d.Number(math.MaxInt64)
	}
	f.leaves = make([]int32, d.Count(1))
	for i := range f.leaves {
		f.leaves[i] = int32(d.Number(int64(len(f.chunks))))
		if i > 0 && f.leaves[i] < f.leaves[i-1] {
			d.Fail("leaf columns out of order")
		}
	}
	f.deep = make([]bool, sh.Schema.NumFields())
	for i := range f.deep {
		f.deep[i] = d.Number(1) == 1
	}
	if f.footer > sh.Size-trailer || len(f.leaves) != sh.Schema.NumFields()+1 {
		d.Fail("facts of another Parquet file")
	}
	sh.Facts = f
}

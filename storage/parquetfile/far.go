package parquetfile

import (
	"maps"
	"slices"

	"github.com/headrace/headrace/storage/bucket"
)

// approach lets the chunks of leaf columns be read ahead if the object lies in a
// store: there every read costs a round trip, and readers make many small ones.
// What is on its way is compressed input, charged like all of it; without memory
// for that, reads go to the store as they are made.
func (s *Scanner) approach(f *footer, leaves map[int]bool) {
	if !s.obj.Remote() {
		return
	}
	var ranges []bucket.Range
	for _, col := range slices.Sorted(maps.Keys(leaves)) {
		c := f.chunk(s.group, col)
		ranges = append(ranges, bucket.Range{Off: c.start, Len: c.end - c.start})
	}
	s.far = s.obj.Ahead(s.source.ctx, bucket.Reading{Ranges: ranges, Memory: s.pool.Ahead(s.grant)})
	s.source.obj = s.far
}

// retreat ends that.
func (s *Scanner) retreat() {
	if s.far != nil {
		_ = s.far.Close() // it was only read
	}
}

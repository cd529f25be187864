package parquetfile

import (
	"errors"
	"maps"
	"slices"

	"github.com/headrace/headrace/storage/bucket"
)

// approach lets the chunks of leaf columns be read ahead if the object lies in a
// store: there every read costs a round trip, and readers make many small ones.
// What is on its way is compressed input, charged like all of it; without memory
// for that, reads go to the store as they are made. Of a large row group that is
// how it is unless there is plenty: what is fetched for later blocks would be
// lost with the scanner, and has others close theirs.
func (s *Scanner) approach(f *footer, leaves map[int]bool) {
	if !s.obj.Remote() {
		return
	}
	var ranges []bucket.Range
	var all int64
	for _, col := range slices.Sorted(maps.Keys(leaves)) {
		c := f.chunk(s.group, col)
		ranges = append(ranges, bucket.Range{Off: c.start, Len: c.end - c.start})
		all += c.end - c.start
	}
	memory := s.pool.Ahead(s.grant)
	if all > aBlock {
		memory = s.spare(memory)
	}
	s.far = s.obj.Ahead(s.source.ctx, bucket.Reading{Ranges: ranges, Memory: memory})
	s.source.obj = s.far
}

// aBlock is how many bytes of a row group are no more than what its first block needs.
const aBlock = 4 << 20

var errScarce = errors.New("memory is not plenty")

// spare gives memory only while there is plenty.
func (s *Scanner) spare(memory func(n int) ([]byte, func(), error)) func(n int) ([]byte, func(), error) {
	return func(n int) ([]byte, func(), error) {
		if !s.grant.Plenty(int64(n)) {
			return nil, nil, errScarce
		}
		return memory(n)
	}
}

// retreat ends that.
func (s *Scanner) retreat() {
	if s.far != nil {
		_ = s.far.Close() // it was only read
	}
}

package parquetfile

import (
	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/storage/budget"
)

const (
	// joinBytes is how much of an object in a store is read with one request where that saves others.
	joinBytes = 4 << 20
	// atOnce is how many requests a scan has under way.
	atOnce = 8
)

// own lists the readers of all columns that we read ourselves.
func (s *Scanner) own() (all []*leafReader) {
	for i := range s.columns {
		if c := s.columns[i].own; c != nil {
			all = append(all, c.leaves...)
		}
	}
	return all
}

// join reads the wanted columns of a small row group with one request, if they
// lie close together in a store.
func (s *Scanner) join() error {
	leaves := s.own()
	if !s.source.obj.Remote() || len(leaves) < 2 {
		return nil
	}
	from, to, size := leaves[0].chunk.start, int64(0), int64(0)
	for _, l := range leaves {
		from, to, size = min(from, l.chunk.start), max(to, l.chunk.end), size+l.chunk.size
	}
	if to-from > min(joinBytes, 2*size) {
		return nil
	}
	region, err := s.pool.Alloc(s.grant, budget.Input, int(to-from))
	if err != nil {
		return err
	}
	w := &window{region: region, from: from, n: to - from, users: 1}
	defer w.release()
	if err := s.source.fill(region.Bytes(), from); err != nil {
		return err
	}
	for _, l := range leaves {
		l.window = w.hold()
	}
	return nil
}

// ahead reads what the next n rows of all columns will most likely need, at
// once: in a store each read is a round trip.
func (s *Scanner) ahead(n int64) error {
	leaves := s.own()
	if !s.source.obj.Remote() || len(leaves) < 2 {
		return nil
	}
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, l := range leaves {
		g.Go(func() error { return l.ahead(n) })
	}
	return g.Wait()
}

// ahead reads what the next n rows will most likely need: their part of the
// chunk, and a page that begins before them.
func (l *leafReader) ahead(n int64) error {
	const page = 1 << 20
	if len(l.pages) > 0 && !l.nested {
		n -= int64(l.pages[0].left)
	}
	if n <= 0 {
		return nil
	}
	part := int64(float64(l.chunk.size) * float64(n) / float64(l.rows))
	want := min(part+min(page, l.chunk.size/16), l.end-l.at)
	if want <= 0 || l.window.reaches(l.at, l.at+want) {
		return nil
	}
	return l.input.fill(want)
}

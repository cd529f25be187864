package parquetfile

import (
	"golang.org/x/sync/errgroup"
)

// atOnce is how many columns of a scan wait for a store at a time.
const atOnce = 32

// own lists the readers of all columns that we read ourselves.
func (s *Scanner) own() (all []*leafReader) {
	for i := range s.columns {
		if c := s.columns[i].own; c != nil {
			all = append(all, c.leaves...)
		}
	}
	return all
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

// rest keeps no more of what was read than what the next rows need: it may be long until they are asked for.
func (s *Scanner) rest() {
	if !s.source.obj.Remote() {
		return
	}
	for _, l := range s.own() {
		l.rest()
	}
}

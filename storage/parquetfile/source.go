package parquetfile

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"
)

// source gives arrow-go the bytes of an object. It reads under the context of
// the call that the scanner is in, and keeps the first error of the store:
// arrow-go may wrap it, panic over it or take it for the end of a page, but it
// is not the file's fault and must not be told as such.
//
// It also leaves out pages without values: pyarrow writes them between others,
// and arrow-go takes one for the end of its column. What follows in the column
// chunk moves up, and the chunk ends early by as much. And it checks pages that
// have a checksum.
type source struct {
	ctx   context.Context
	obj   object
	store object // the same object, never read ahead
	pos   int64
	holes []hole // in order of from
	seals []*sealed
	mu    sync.Mutex
	err   error
}

// object is what is read: an object of the store.
type object interface {
	ReaderAt(ctx context.Context) io.ReaderAt
	Size() int64
	Remote() bool
}

// hole is a range of bytes to leave out of a chunk.
type hole struct{ from, to, start, end int64 }

// ReadAt reads at off as if the holes of the chunk that off lies in were not there.
func (s *source) ReadAt(p []byte, off int64) (int, error) {
	start, end := int64(-1), s.obj.Size()
	var done int
	for _, h := range s.holes {
		if start < 0 && off >= h.start && off < h.end {
			start, end = h.start, h.end
		}
		if h.start != start {
			continue
		}
		if off < h.from {
			n, err := s.read(p[done:min(int64(len(p)), int64(done)+h.from-off)], off)
			done, off = done+n, off+int64(n)
			if err != nil || done == len(p) {
				return done, err
			}
		}
		off += h.to - h.from
	}
	left := min(int64(len(p)-done), max(0, end-off))
	n, err := s.read(p[done:done+int(left)], off)
	if done += n; err == nil && done < len(p) {
		err = io.EOF
	}
	return done, err
}

// bare reads a source as if it had no holes.
type bare struct{ s *source }

// ReadAt reads at off, like io.ReaderAt.
func (b bare) ReadAt(p []byte, off int64) (int, error) { return b.s.read(p, off) }

// fill fills p with the bytes from off on.
func (s *source) fill(p []byte, off int64) error {
	n, err := s.read(p, off)
	if n < len(p) && (err == nil || errors.Is(err, io.EOF)) {
		return io.ErrUnexpectedEOF
	}
	if n == len(p) {
		return nil
	}
	return err
}

// refill fills p anew, past whatever was read ahead.
func (s *source) refill(p []byte, off int64) error {
	anew := source{ctx: s.ctx, obj: s.store}
	defer func() { s.err = anew.err }()
	return anew.fill(p, off)
}

// read reads as many bytes as p has, of checked pages where arrow-go reads them.
func (s *source) read(p []byte, off int64) (done int, err error) {
	for _, c := range s.seals {
		if off < c.start || off >= c.end {
			continue
		}
		for done < len(p) && err == nil {
			var n int
			if n, err = c.read(s, s.plain, p[done:], off+int64(done)); n == 0 && err == nil {
				err = io.ErrNoProgress
			}
			done += n
		}
		return done, err
	}
	return s.plain(p, off)
}

// plain reads bytes as they come.
func (s *source) plain(p []byte, off int64) (int, error) {
	if err := s.failed(nil); err != nil {
		return 0, err
	}
	n, err := s.obj.ReaderAt(s.ctx).ReadAt(p, off)
	if err != nil && err != io.EOF {
		return n, s.failed(err)
	}
	return n, err
}

// failed keeps err, unless one came before, and returns the one that is kept.
func (s *source) failed(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = cmp.Or(s.err, err)
	return s.err
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.ReadAt(p, s.pos)
	s.pos += int64(n)
	return n, err
}

func (s *source) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += s.pos
	case io.SeekEnd:
		offset += s.obj.Size()
	}
	if offset < 0 {
		return 0, errors.New("seek to before the beginning")
	}
	s.pos = offset
	return offset, nil
}

package parquetfile

import (
	"context"
	"errors"
	"io"

	"github.com/headrace/headrace/storage/bucket"
)

// source gives arrow-go the bytes of an object. It reads under the context of
// the call that the scanner is in, and keeps the first error of the store:
// arrow-go may wrap it, panic over it or take it for the end of a page, but it
// is not the file's fault and must not be told as such.
type source struct {
	ctx context.Context
	obj *bucket.Object
	pos int64
	err error
}

func (s *source) ReadAt(p []byte, off int64) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.obj.ReaderAt(s.ctx).ReadAt(p, off)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
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

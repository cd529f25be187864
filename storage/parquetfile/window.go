package parquetfile

import (
	"fmt"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

// maxHeader is the most bytes that a page header may have. Statistics of long
// values make them long.
const maxHeader = 16 << 20

// input reads the bytes of one column chunk from front to back, many pages with
// one read. What it shows lies in windows, which stay as long as a page holds
// them: the bytes of a page that is not compressed are decoded where they are.
type input struct {
	source *source
	pool   *frame.Pool
	grant  *budget.Grant
	at     int64 // in the file, the next byte
	end    int64 // of the chunk
	step   int64 // bytes to read at once
	long   int64 // and where all that comes is needed
	window *window
}

// window is memory that is there as long as somebody holds it: a run of the
// file's bytes, or decompressed pages.
type window struct {
	region *frame.Region
	from   int64 // of the file
	n      int64 // bytes that are in use
	users  int   // whose memory it is, and pages
}

func (w *window) hold() *window {
	w.users++
	return w
}

func (w *window) release() {
	if w.users--; w.users == 0 {
		w.region.Free()
	}
}

// reaches tells whether bytes [from, to) of the file are there.
func (w *window) reaches(from, to int64) bool {
	return w != nil && from >= w.from && to <= w.from+w.n
}

// peek returns n bytes from here on, or as many as the chunk still has. They are
// good until the next call.
func (in *input) peek(n int64) ([]byte, error) {
	n = min(n, in.end-in.at)
	if !in.window.reaches(in.at, in.at+n) {
		if err := in.fill(n); err != nil {
			return nil, err
		}
	}
	w := in.window
	return w.region.Bytes()[in.at-w.from : min(w.n, in.end-w.from)], nil
}

// take returns the next n bytes and the window they are in, which is the
// caller's to release, and moves behind them.
func (in *input) take(n int64) ([]byte, *window, error) {
	if n > in.end-in.at {
		return nil, nil, fmt.Errorf("%d bytes where the chunk has %d", n, in.end-in.at)
	}
	const header = 512 // of the page behind, most likely
	if !in.window.reaches(in.at, in.at+n) {
		if err := in.fill(n + header); err != nil {
			return nil, nil, err
		}
	}
	b := in.window.region.Bytes()[in.at-in.window.from:][:n:n]
	in.at += n
	return b, in.window.hold(), nil
}

// fill shows n bytes from here on, and what one read brings beside them.
func (in *input) fill(n int64) error {
	size := min(max(in.step, n), in.end-in.at)
	old := in.window
	var kept []byte
	if old.reaches(in.at, in.at) {
		kept = old.region.Bytes()[in.at-old.from : old.n]
	}
	fresh := old
	if old == nil || old.users > 1 || int64(len(old.region.Bytes())) < size {
		region, err := in.pool.Alloc(in.grant, budget.Input, int(size))
		if err != nil {
			return err
		}
		fresh = &window{region: region, users: 1}
	}
	b := fresh.region.Bytes()[:size]
	fresh.from, fresh.n = in.at, int64(copy(b, kept))
	if fresh != old && old != nil {
		old.release()
	}
	in.window = fresh
	if err := in.source.fill(b[fresh.n:], in.at+fresh.n); err != nil {
		return err
	}
	fresh.n = size
	return nil
}

// fetch shows n bytes from here on, no more, and has nothing read ahead.
func (in *input) fetch(n int64) error {
	region, err := in.pool.Alloc(in.grant, budget.Input, int(n))
	if err != nil {
		return err
	}
	in.close()
	in.window = &window{region: region, from: in.at, users: 1}
	if err := in.source.refill(region.Bytes(), in.at); err != nil {
		return err
	}
	in.window.n = n
	return nil
}

// rest gives back the memory that is not needed to keep what was read and not yet used.
func (in *input) rest() {
	w := in.window
	if w == nil || w.users > 1 {
		return
	}
	left := w.from + w.n - in.at
	if left <= 0 || in.at < w.from {
		in.close()
		return
	}
	if 2*left > int64(len(w.region.Bytes())) {
		return
	}
	region, err := in.pool.Alloc(in.grant, budget.Input, int(left))
	if err != nil {
		return // it stays as it is
	}
	copy(region.Bytes(), w.region.Bytes()[in.at-w.from:w.n])
	w.release()
	in.window = &window{region: region, from: in.at, n: left, users: 1}
}

func (in *input) close() {
	if in.window != nil {
		in.window.release()
		in.window = nil
	}
}

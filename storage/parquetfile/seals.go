package parquetfile

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sort"
	"sync"
	"unsafe"
)

// seal is the place of a page's body whose header has a checksum of it.
type seal struct {
	at, end int64 // in the file
	number  int   // among the pages
	crc     uint32
}

// perSeal is what one takes on the Go heap.
const perSeal = int64(unsafe.Sizeof(seal{}))

// sealed is a column chunk that arrow-go reads, which knows nothing of
// checksums: its reads are cut into pages, and each page is read at once and
// checked before arrow-go gets any of it.
type sealed struct {
	start, end int64
	blame      func(error) error // says which column it is about
	seals      []seal            // in order

	mu   sync.Mutex // arrow-go may open columns on goroutines of its own
	last *seal      // the page that lies in page
	page room
}

// read reads, with plain, from off on: up to where a sealed page begins, or what p takes of one.
func (c *sealed) read(s *source, plain func(p []byte, off int64) (int, error), p []byte, off int64) (int, error) {
	i := sort.Search(len(c.seals), func(i int) bool { return c.seals[i].end > off })
	if i == len(c.seals) {
		return plain(p, off)
	}
	at := &c.seals[i]
	if off < at.at {
		return plain(p[:min(int64(len(p)), at.at-off)], off)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != at {
		if err := c.open(s, plain, at); err != nil {
			return 0, s.failed(err)
		}
	}
	body, err := c.page.bytes(int(at.end-at.at), 0)
	return copy(p, body[off-at.at:]), err
}

// open reads a page and checks it.
func (c *sealed) open(s *source, plain func(p []byte, off int64) (int, error), at *seal) error {
	c.last = nil
	body, err := c.page.bytes(int(at.end-at.at), 0)
	if err != nil {
		return err
	}
	if n, err := plain(body, at.at); n < len(body) {
		if err == nil || errors.Is(err, io.EOF) {
			err = c.blame(io.ErrUnexpectedEOF)
		}
		return err
	}
	if err := at.verify(body, func() error { return s.refill(body, at.at) }); err != nil {
		return c.blame(err)
	}
	c.last = at
	return nil
}

// verify checks the body of a page. A checksum that does not fit may be the
// fault of what lies between the store and us: so it is read once more.
func (at *seal) verify(body []byte, again func() error) error {
	if crc32.ChecksumIEEE(body) == at.crc {
		return nil
	}
	if err := again(); err != nil {
		return err
	}
	if sum := crc32.ChecksumIEEE(body); sum != at.crc {
		return fmt.Errorf("page %d at %d: its bytes have the CRC-32 %08x, its header says %08x, also when they are read again", at.number, at.at, sum, at.crc)
	}
	return nil
}

package snapshot

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash"
)

// identity names what the data is, wherever it lies and whoever looks: the
// SHA-256, in lower-case hex, of
//
//	"headrace snapshot 1\0", number of shards, and for each, sorted by key:
//	  length of key, key, size, cause: its length and text,
//	  number of segments, rows and bytes of each, the 32 bytes of Meta
//
// with all numbers as 8 bytes, little-endian. A shard that cannot be read has
// no segments, 32 zero bytes and one of the causes below; any other has the
// empty cause. Plans and cursors hold identities: this form is frozen.
func identity(sorted []*Shard) string {
	h := sha256.New()
	h.Write([]byte("headrace snapshot 1\x00"))
	number(h, int64(len(sorted)))
	for _, s := range sorted {
		text(h, s.Key)
		number(h, s.Size)
		text(h, cause(s.Err))
		segments := s.segments()
		number(h, int64(len(segments)))
		for _, seg := range segments {
			number(h, seg.Rows)
			number(h, seg.Bytes)
		}
		meta := s.Meta
		if s.Err != nil {
			meta = [32]byte{}
		}
		h.Write(meta[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// cause reduces an error to its class: the wording of errors changes with
// versions and machines, which must not change what the data is called.
func cause(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrUnsupported):
		return "unsupported"
	case errors.Is(err, ErrCorrupt):
		return "corrupt"
	}
	return "unreadable"
}

func number(h hash.Hash, n int64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	h.Write(b[:])
}

func text(h hash.Hash, s string) {
	number(h, int64(len(s)))
	h.Write([]byte(s))
}

// Identity names the object, wherever it lies: the SHA-256, in lower-case hex,
// of
//
//	"headrace object 1\0", length of key, key, size,
//	number of segments, rows and bytes of each, the 32 bytes of Meta
//
// with all numbers as 8 bytes, little-endian. Splits are keyed by it, so that
// rows never change sides when other files come: this form is frozen.
func (s *Shard) Identity() string {
	h := sha256.New()
	h.Write([]byte("headrace object 1\x00"))
	text(h, s.Key)
	number(h, s.Size)
	segments := s.segments()
	number(h, int64(len(segments)))
	for _, seg := range segments {
		number(h, seg.Rows)
		number(h, seg.Bytes)
	}
	h.Write(s.Meta[:])
	return hex.EncodeToString(h.Sum(nil))
}

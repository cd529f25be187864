package snapshot

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/headrace/headrace/schema"
)

// Sum is the SHA-256 of what it names.
type Sum [sha256.Size]byte

// Codec writes and reads what one format keeps of its files: Shard.Facts and
// Segment.Facts. Unpack gets a shard with everything else filled in, and has
// its decoder fail on what makes no sense with that.
type Codec struct {
	Pack   func(*Shard, *Encoder)
	Unpack func(*Shard, *Decoder)
}

// Codecs are those of all formats.
type Codecs map[Format]Codec

// pack writes the facts of one object, whatever its key and pin:
//
//	size, format, 32 bytes of Meta, cause and text of why it cannot be read; and if it can:
//	32 bytes: SHA-256 of its schema as an IPC message,
//	number of segments, rows and bytes of each, the format's own
//
// Manifests hold the hash of this form: it is frozen.
func (c Codecs) pack(sh *Shard, schemaSum Sum) []byte {
	e := &Encoder{}
	e.Number(sh.Size)
	e.Text(string(sh.Format))
	e.raw(sh.Meta[:])
	e.Text(cause(sh.Err))
	if sh.Err != nil {
		e.Text(sh.Err.Error())
		return e.Bytes()
	}
	e.raw(schemaSum[:])
	e.Number(int64(len(sh.Segments)))
	for _, seg := range sh.Segments {
		e.Number(seg.Rows)
		e.Number(seg.Bytes)
	}
	c[sh.Format].Pack(sh, e)
	return e.Bytes()
}

// unpack reads what pack wrote; schemas are those that it may have.
func (c Codecs) unpack(key string, b []byte, schemas map[Sum]*arrow.Schema) (*Shard, error) {
	d := NewDecoder(b)
	sh := &Shard{Key: key, Size: d.Number(math.MaxInt64), Format: Format(d.Text()), Meta: d.sum()}
	if why := d.Text(); why != "" {
		sh.Err = knownError(why, d.Text())
		if cause(sh.Err) != why {
			d.Fail("no cause is called %q", why)
		}
		return sh, d.End()
	}
	codec, known := c[sh.Format]
	if sh.Schema = schemas[d.sum()]; sh.Schema == nil || !known {
		d.Fail("its schema is not there, or its format %q not known", sh.Format)
		return sh, d.End()
	}
	sh.Segments = make([]Segment, d.Count(2))
	for i := range sh.Segments {
		sh.Segments[i].Rows, sh.Segments[i].Bytes = d.Number(math.MaxInt64), d.Number(math.MaxInt64)
	}
	codec.Unpack(sh, d)
	return sh, d.End()
}

// recalled is the error of a shard as a manifest remembers it.
type recalled struct {
	text string
	kind error
}

func (r *recalled) Error() string { return r.text }
func (r *recalled) Unwrap() error { return r.kind }

// errUnreadable is what every error is that is neither of the other two.
var errUnreadable = errors.New("unreadable")

func knownError(cause, text string) error {
	kind := errUnreadable
	switch cause {
	case "corrupt":
		kind = ErrCorrupt
	case "unsupported":
		kind = ErrUnsupported
	}
	return &recalled{text, kind}
}

// Facts are those of many objects, each once, with the schemas they have.
type Facts struct {
	codecs   Codecs
	packed   map[Sum][]byte
	messages map[Sum][]byte
	schemas  map[Sum]*arrow.Schema
	sums     map[*arrow.Schema]Sum
	of       map[Sum]Sum // the schema of facts that were added
	segments int
}

// maxSegments bounds the segments of all objects in one set: what a forged file
// may make us take memory for.
const maxSegments = 1 << 24

// NewFacts returns an empty set.
func NewFacts(c Codecs) *Facts {
	return &Facts{codecs: c, packed: map[Sum][]byte{}, messages: map[Sum][]byte{}, schemas: map[Sum]*arrow.Schema{}, sums: map[*arrow.Schema]Sum{}, of: map[Sum]Sum{}}
}

// Add puts in the facts of a shard and returns their name.
func (f *Facts) Add(sh *Shard) Sum {
	var of Sum
	if sh.Err == nil {
		of = f.schema(sh.Schema)
	}
	b := f.codecs.pack(sh, of)
	sum := sumOf(b)
	f.packed[sum], f.of[sum] = b, of
	return sum
}

// schema puts in a schema and returns its name.
func (f *Facts) schema(s *arrow.Schema) Sum {
	if of, known := f.sums[s]; known {
		return of
	}
	message := schema.Message(s)
	of := sumOf(message)
	f.sums[s], f.messages[of], f.schemas[of] = of, message, s
	return of
}

// Shard returns the shard with the given key whose facts have the given name.
func (f *Facts) Shard(key string, sum Sum) (*Shard, error) {
	b, ok := f.packed[sum]
	if !ok {
		return nil, fmt.Errorf("%w: the facts of shard %q are not there", ErrManifest, key)
	}
	sh, err := f.codecs.unpack(key, b, f.schemas)
	if err != nil {
		return nil, fmt.Errorf("shard %q: %w", key, err)
	}
	if f.segments += len(sh.Segments); f.segments > maxSegments {
		return nil, fmt.Errorf("%w: more than %d segments", ErrManifest, maxSegments)
	}
	return sh, nil
}

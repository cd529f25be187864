package snapshot

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/headrace/headrace/schema"
)

// The files that snapshots are kept in. Each begins with one of these words and
// ends in the SHA-256 of all before: these forms are frozen, as is that of facts.
const (
	magicManifest = "headrace manifest 1\n"
	magicPack     = "headrace facts 1\n"
	magicPins     = "headrace pins 1\n"
)

// Manifest says what a snapshot consists of.
type Manifest struct {
	ID      string // the snapshot's identity
	Packs   []Sum  // where the facts are
	Objects []Entry
}

// Entry is one shard in a manifest.
type Entry struct {
	Key   string
	Facts Sum
}

// Marshal returns the canonical form:
//
//	32 bytes of the identity, number of packs, 32 bytes each,
//	number of shards, and for each, sorted by key, the key and 32 bytes
func (m *Manifest) Marshal() []byte {
	e := begin(magicManifest)
	id, _ := hex.DecodeString(m.ID)
	e.raw(id)
	e.Number(int64(len(m.Packs)))
	for _, p := range m.Packs {
		e.raw(p[:])
	}
	e.Number(int64(len(m.Objects)))
	for _, o := range m.Objects {
		e.Text(o.Key)
		e.raw(o.Facts[:])
	}
	return seal(e)
}

// ParseManifest reads the manifest of the snapshot with the given identity.
// ErrManifest tells why it is none.
func ParseManifest(id string, b []byte) (*Manifest, error) {
	d := open(magicManifest, b)
	m := &Manifest{}
	sum := d.sum()
	m.ID = hex.EncodeToString(sum[:])
	if m.ID != id {
		d.Fail("it is that of snapshot %s", m.ID)
	}
	m.Packs = make([]Sum, d.Count(len(Sum{})))
	for i := range m.Packs {
		m.Packs[i] = d.sum()
	}
	m.Objects = make([]Entry, d.Count(1+len(Sum{})))
	for i := range m.Objects {
		m.Objects[i] = Entry{d.Text(), d.sum()}
		if i > 0 && m.Objects[i].Key <= m.Objects[i-1].Key {
			d.Fail("keys out of order")
		}
	}
	return m, d.End()
}

// Shards returns the shards of a manifest, and proves that they are those that
// its name speaks of: their identity is.
func (m *Manifest) Shards(f *Facts) ([]*Shard, error) {
	shards := make([]*Shard, len(m.Objects))
	for i, o := range m.Objects {
		var err error
		if shards[i], err = f.Shard(o.Key, o.Facts); err != nil {
			return nil, err
		}
	}
	if id := identity(shards); id != m.ID {
		return nil, fmt.Errorf("%w: its shards are those of snapshot %s", ErrManifest, id)
	}
	return shards, nil
}

// Pack writes those of the facts that were added which have the given names,
// each once, with the schemas that they have, in canonical form:
//
//	number of schemas, each an IPC message; number of objects, the facts of each
//
// both sorted by SHA-256. A pack is named by that of all its bytes.
func (f *Facts) Pack(names []Sum) (name Sum, b []byte) {
	names = slices.Clone(names)
	slices.SortFunc(names, compareSums)
	names = slices.Compact(names)
	var schemas []Sum
	for _, n := range names {
		if s := f.of[n]; f.messages[s] != nil {
			schemas = append(schemas, s)
		}
	}
	slices.SortFunc(schemas, compareSums)
	schemas = slices.Compact(schemas)
	e := begin(magicPack)
	e.Number(int64(len(schemas)))
	for _, s := range schemas {
		e.Text(string(f.messages[s]))
	}
	e.Number(int64(len(names)))
	for _, n := range names {
		e.Text(string(f.packed[n]))
	}
	b = seal(e)
	return sumOf(b), b
}

func compareSums(a, b Sum) int { return bytes.Compare(a[:], b[:]) }

// Read adds what is in a pack and returns the names of the facts. ErrManifest
// tells why it is none, or not the one of that name.
func (f *Facts) Read(name Sum, b []byte) (names []Sum, err error) {
	if sumOf(b) != name {
		return nil, fmt.Errorf("%w: a pack's bytes are not those that its name says", ErrManifest)
	}
	d := open(magicPack, b)
	for range d.Count(1) {
		message := d.bytes()
		sum := sumOf(message)
		if f.schemas[sum] != nil {
			continue
		}
		s, err := schema.ParseMessage(message)
		if err != nil {
			return nil, cmp.Or(d.Err(), fmt.Errorf("%w: %w", ErrManifest, err))
		}
		f.schemas[sum], f.messages[sum], f.sums[s] = s, bytes.Clone(message), sum
	}
	for range d.Count(1) {
		facts := d.bytes()
		sum := sumOf(facts)
		f.packed[sum] = facts
		names = append(names, sum)
	}
	return names, d.End()
}

// MarshalPins writes the pins of a snapshot's shards, in their order; an empty
// one is not known. They are no part of the snapshot: they say where one gateway,
// or all, found its bytes.
func MarshalPins(shards []*Shard) []byte {
	e := begin(magicPins)
	e.Number(int64(len(shards)))
	for _, sh := range shards {
		e.Text(sh.Pin)
	}
	return seal(e)
}

// ParsePins reads the pins of so many shards.
func ParsePins(shards int, b []byte) ([]string, error) {
	d := open(magicPins, b)
	pins := make([]string, d.Count(1))
	for i := range pins {
		pins[i] = d.Text()
	}
	if len(pins) != shards {
		d.Fail("%d pins of %d shards", len(pins), shards)
	}
	return pins, d.End()
}

func begin(magic string) *Encoder { return &Encoder{b: []byte(magic)} }

func seal(e *Encoder) []byte {
	sum := sha256.Sum256(e.b)
	return append(e.b, sum[:]...)
}

// open checks what seal and begin wrote around a file.
func open(magic string, b []byte) *Decoder {
	d := NewDecoder(b)
	end := len(b) - sha256.Size
	if end < len(magic) || string(b[:len(magic)]) != magic {
		d.Fail("it does not begin with %q", magic)
		return d
	}
	if sha256.Sum256(b[:end]) != [sha256.Size]byte(b[end:]) {
		d.Fail("its checksum is wrong")
		return d
	}
	d.b = b[len(magic):end]
	return d
}

func sumOf(b []byte) Sum { return sha256.Sum256(b) }

package storage

import (
	"math"
	"sync"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

// absurd is a size that no machine has, in bytes. Claims beyond it are cut down
// to it, so that sums of them cannot overflow.
const absurd = 1 << 50

// Need is what reading blocks one by one takes, in bytes.
type Need struct {
	Block    int64 // the frames of the largest block
	Scratch  int64 // what a decoder has beyond frames
	Measured bool  // Scratch was, by reading the same object
}

// Work is what scanners work with, in bytes, as it was found or by the files'
// own word: what to expect of them, where Need is what to ask for.
type Work struct {
	Begin  int64 // the most that one has that begins with a block, in its segment
	Onward int64 // and one that goes on with it
	Open   int64 // what it keeps from block to block of the segment
}

// Sizes tells what reading columns of a snapshot takes: as far as the files'
// own words tell, and once some of it was decoded, as it turned out then. It is
// safe for concurrent use.
type Sizes struct {
	measures *measures
	snap     *snapshot.Snapshot
	p        *schema.Projection
	near     bool // the files are local

	mu   sync.Mutex // guards fits
	fits *snapshot.Fitter
}

// Sizes are those of snap with the columns of p.
func (s *Store) Sizes(snap *snapshot.Snapshot, p *schema.Projection) *Sizes {
	d := s.registry.known(snap.Dataset)
	return &Sizes{measures: &s.measures, snap: snap, p: p, near: d != nil && !d.mount.far, fits: snap.Fitter(p)}
}

// Need returns what reading any of the blocks takes.
func (s *Sizes) Need(blocks *snapshot.Blocks) (need Need) {
	last := -1
	var m measure
	for shard, segment := range blocks.Segments() {
		if shard != last {
			m, last = s.measures.of(s.snap, shard, s.p), shard
		}
		sh := s.snap.Shards[shard]
		seg := sh.Segments[segment]
		added, work := extra(s.fit(shard), s.p, seg)
		need.Block = max(need.Block, m.bytes((seg.Bytes-1)/max(seg.Blocks(), 1)+1, added, sh, s.p))
		scratch, measured := m.decoder(min(formats[sh.Format].need(sh, segment, s.p), absurd) + work)
		if scratch > need.Scratch {
			need.Scratch, need.Measured = scratch, measured
		}
	}
	return need
}

// Work returns what scanners work with that read any of the blocks.
func (s *Sizes) Work(blocks *snapshot.Blocks) (most Work) {
	for shard, segment := range blocks.Segments() {
		sh, m := s.snap.Shards[shard], s.measures.of(s.snap, shard, s.p)
		w := Work{Begin: int64(float64(m.scratch) / margin), Onward: m.onward, Open: m.open}
		if m.scratch == 0 {
			_, work := extra(s.fit(shard), s.p, sh.Segments[segment])
			between, onward := formats[sh.Format].keeps(sh, segment, s.p)
			w = Work{
				Begin:  min(formats[sh.Format].need(sh, segment, s.p), absurd) + work,
				Onward: min(onward, absurd) + work, Open: min(between, absurd),
			}
		}
		most = Work{Begin: max(most.Begin, w.Begin), Onward: max(most.Onward, w.Onward), Open: max(most.Open, w.Open)}
	}
	return most
}

// Frames returns what the frames of one block take, in bytes.
func (s *Sizes) Frames(b snapshot.Block) int64 {
	sh := s.snap.Shards[b.Shard]
	added, _ := extra(s.fit(b.Shard), s.p, sh.Segments[b.Segment])
	return s.measures.of(s.snap, b.Shard, s.p).bytes(b.Bytes, added, sh, s.p)
}

// Likely returns what the frames of one block take on the average of those that were decoded, in bytes: what to expect of
// many, where Frames is what to ask for.
func (s *Sizes) Likely(b snapshot.Block) int64 {
	m := s.measures.of(s.snap, b.Shard, s.p)
	if m.words == 0 {
		return s.Frames(b)
	}
	return frame.Cost(int64(math.Ceil(min(float64(min(b.Bytes, absurd))*m.frames/m.words, absurd))))
}

// Scratch returns what decoding one block takes beyond its frames, in bytes.
func (s *Sizes) Scratch(b snapshot.Block) int64 {
	sh := s.snap.Shards[b.Shard]
	_, work := extra(s.fit(b.Shard), s.p, sh.Segments[b.Segment])
	scratch, _ := s.measures.of(s.snap, b.Shard, s.p).decoder(min(formats[sh.Format].need(sh, b.Segment, s.p), absurd) + work)
	return scratch
}

// InPlace tells whether a block is shown where it lies in a mapped file, as far as the files tell: such blocks are not
// fetched, and none of them is kept.
func (s *Sizes) InPlace(b snapshot.Block) bool {
	sh := s.snap.Shards[b.Shard]
	shown := formats[sh.Format].inPlace
	return s.near && shown != nil && s.fit(b.Shard).Alike && shown(sh, b.Segment, s.p) && s.Frames(b) >= frame.LeastMapped
}

func (s *Sizes) fit(shard int) *schema.Fit {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fits.Of(shard)
}

// Word returns what the blocks have of the columns of p when decoded, in bytes,
// by their files' own word: whatever was measured, it stays the same.
func (s *Store) Word(snap *snapshot.Snapshot, p *schema.Projection, blocks *snapshot.Blocks) int64 {
	var sum, share float64
	last := -1
	for shard, segment := range blocks.Segments() {
		sh := snap.Shards[shard]
		if shard != last {
			share, last = formats[sh.Format].share(sh, p), shard
		}
		sum += float64(sh.Segments[segment].Bytes) * share
	}
	return int64(min(sum, absurd))
}

// Heaviest returns the key of the shard whose blocks need the most memory: the
// one to name when Need cannot be met.
func (s *Store) Heaviest(snap *snapshot.Snapshot, p *schema.Projection, blocks *snapshot.Blocks) (key string) {
	most := int64(-1)
	for shard, segment := range blocks.Segments() {
		sh := snap.Shards[shard]
		seg := sh.Segments[segment]
		need := min(seg.Bytes/max(seg.Blocks(), 1), absurd) + min(formats[sh.Format].need(sh, segment, p), absurd)
		if need > most {
			most, key = need, sh.Key
		}
	}
	return key
}

// measure is what decoding was found to take. Zero: not yet measured.
type measure struct {
	ratio   float64 // the most bytes of frames for each byte that the file speaks of
	frames  float64 // bytes of all frames that were decoded
	words   float64 // bytes of those that the file speaks of
	scratch int64   // the most that decoders had who came to an end
	vain    int64   // the most that those asked for who did not
	onward  int64   // the most that those had which went on in a segment
	open    int64   // the most that scanners had between blocks
	own     bool    // by reading the same object, not others of its dataset
}

// bytes is what a block takes whose file speaks of so many bytes, to which
// others are added so that it fits the schema.
func (m measure) bytes(word, added int64, sh *snapshot.Shard, p *schema.Projection) int64 {
	claim := float64(min(word, absurd))
	guess, found := claim*formats[sh.Format].share(sh, p)+float64(added), claim*m.ratio
	switch {
	case m.ratio == 0:
		found = guess
	case found < guess: // by blocks that may be the lightest of all
		found = min(guess, found*margin)
	}
	return frame.Cost(int64(math.Ceil(min(found, absurd))))
}

// decoder is what a decoder takes, unless it is only guessed.
func (m measure) decoder(guess int64) (scratch int64, measured bool) {
	if m.scratch > 0 {
		guess = m.scratch
	}
	return max(guess, m.vain), m.own && (m.scratch > 0 || m.vain > guess)
}

// measures remembers them by object and columns, and for objects not yet read
// the most of their dataset's. It sizes what streams ask for; it never decides
// what they get. The zero value is ready.
type measures struct {
	mu  sync.Mutex
	all map[measured]measure
}

// measured says what of; without a key, it is the whole dataset.
type measured struct{ dataset, key, pin, columns string }

// maxMeasures bounds the table. What is forgotten is measured again.
const maxMeasures = 8192

// margin is how much more than was found is asked for: the next block may need more.
const margin = 1.25

// leastMeasured is the size, in bytes, from which on a block says something about others than those of its object.
const leastMeasured = 64 << 10

// mostBorrowed is how far such a block is believed, as bytes of frames for each byte that files speak of: one bad file
// must not make all of its dataset seem too large.
const mostBorrowed = 8

func (ms *measures) of(snap *snapshot.Snapshot, shard int, p *schema.Projection) measure {
	sh := snap.Shards[shard]
	at := measured{snap.Dataset, sh.Key, sh.Pin, p.Fingerprint()}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if m, ok := ms.all[at]; ok {
		m.own = true
		return m
	}
	at.key, at.pin = "", ""
	m := ms.all[at]
	m.ratio, m.frames = min(m.ratio, mostBorrowed), min(m.frames, mostBorrowed*m.words)
	return m
}

// frames notes the memory of a block's frames.
func (ms *measures) frames(snap *snapshot.Snapshot, b snapshot.Block, p *schema.Projection, bytes int64) {
	if b.Bytes <= 0 {
		return
	}
	ms.note(snap, b.Shard, p, measure{ratio: float64(bytes) / float64(b.Bytes), frames: float64(bytes), words: float64(b.Bytes)}, b.Bytes >= leastMeasured)
}

// scratch notes the memory of a decoder, or what it asked for in vain.
func (ms *measures) scratch(snap *snapshot.Snapshot, shard int, p *schema.Projection, bytes int64, vain bool) {
	m := measure{scratch: int64(float64(bytes) * margin)}
	if vain {
		m = measure{vain: m.scratch}
	}
	if bytes > 0 {
		ms.note(snap, shard, p, m, true)
	}
}

// onward notes the memory of a decoder that went on in a segment.
func (ms *measures) onward(snap *snapshot.Snapshot, shard int, p *schema.Projection, bytes int64) {
	if bytes > 0 {
		ms.note(snap, shard, p, measure{onward: bytes}, true)
	}
}

// open notes the memory of a scanner that stays open for the next block.
func (ms *measures) open(snap *snapshot.Snapshot, shard int, p *schema.Projection, bytes int64) {
	if bytes > 0 {
		ms.note(snap, shard, p, measure{open: bytes}, true)
	}
}

func (ms *measures) note(snap *snapshot.Snapshot, shard int, p *schema.Projection, m measure, typical bool) {
	sh := snap.Shards[shard]
	at := measured{snap.Dataset, sh.Key, sh.Pin, p.Fingerprint()}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.raise(at, m)
	if typical {
		at.key, at.pin = "", ""
		ms.raise(at, m)
	}
}

func (ms *measures) raise(at measured, m measure) {
	old, known := ms.all[at]
	if !known && len(ms.all) >= maxMeasures {
		for some := range ms.all {
			delete(ms.all, some)
			break
		}
	}
	if ms.all == nil {
		ms.all = map[measured]measure{}
	}
	ms.all[at] = measure{
		ratio: max(old.ratio, m.ratio), frames: old.frames + m.frames, words: old.words + m.words,
		scratch: max(old.scratch, m.scratch), vain: max(old.vain, m.vain), onward: max(old.onward, m.onward), open: max(old.open, m.open),
	}
}

package storage

import (
	"fmt"
	"math"
	"path"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

// What decoding takes is guessed until it was measured, and then asked for: of the object, and of others of its dataset.
func TestNeedLearnsFromDecoding(t *testing.T) {
	r := one(t, folder(t, map[string]string{"a.parquet": "big.parquet", "b.parquet": "big.parquet"}))
	s := r.newest("d")
	p := schema.All(s.Schema)
	guess := r.Sizes(s, p).Need(s.Blocks(nil))
	if guess.Measured || guess.Block < frame.Cost(s.Blocks(nil).Largest()) || guess.Scratch == 0 {
		t.Errorf("at first %+v", guess)
	}
	if _, err := r.read(s, s.Blocks([]int{0})); err != nil {
		t.Fatal(err)
	}
	if got := r.Sizes(s, p).Need(s.Blocks(nil)); got.Measured {
		t.Errorf("frames and decoder of one grant were taken apart: %+v", got)
	}
	r.apart(s, p, s.Blocks([]int{0}))
	for _, shard := range []int{0, 1} {
		got := r.Sizes(s, p).Need(s.Blocks([]int{shard}))
		if got.Measured != (shard == 0) || got.Scratch == 0 || got.Block == 0 || got.Block > guess.Block {
			t.Errorf("shard %d: %+v after %+v", shard, got, guess)
		}
	}
}

// What scanners work with is foretold by files' own word, and then as it was found: a Parquet scanner reads the pages of each
// block, an Arrow one decompresses all of a batch when it begins.
func TestWorkOfScanners(t *testing.T) {
	for _, file := range []string{"noise.parquet", "packed.arrow"} {
		r := one(t, folder(t, map[string]string{"a" + path.Ext(file): file, "b" + path.Ext(file): file}))
		s := r.newest("d")
		p := schema.All(s.Schema)
		blocks := s.Blocks([]int{0})
		guess := r.Sizes(s, p).Work(blocks)
		if guess.Open == 0 || guess.Onward < guess.Open || guess.Begin < guess.Onward || blocks.Len() < 2 {
			t.Errorf("%s: by its own word %+v, %d blocks", file, guess, blocks.Len())
		}
		r.apart(s, p, blocks)
		sizes := r.Sizes(s, p)
		for _, shard := range []int{0, 1} {
			found := sizes.Work(s.Blocks([]int{shard}))
			if found.Open == 0 || found.Onward < found.Open || found.Begin < found.Onward || found.Begin > 2*guess.Begin || guess.Begin > 2*found.Begin ||
				found.Open > 2*guess.Open || guess.Open > 2*found.Open || (found.Onward == found.Open) != (file == "packed.arrow") {
				t.Errorf("%s, shard %d: %+v, by its own word %+v", file, shard, found, guess)
			}
		}
	}
}

// What is asked for a block is by the file's own word, which counts dictionaries too, until all were decoded; what is likely is what
// was found on the average.
func TestLikelySizes(t *testing.T) {
	r := one(t, folder(t, map[string]string{"a.parquet": "doubled.parquet", "b.parquet": "doubled.parquet"}))
	s := r.newest("d")
	p := schema.All(s.Schema)
	sizes, first := r.Sizes(s, p), s.Blocks([]int{0})
	if b := first.At(0); sizes.Likely(b) != sizes.Frames(b) {
		t.Errorf("%d bytes are likely before anything was read, %d are asked for", sizes.Likely(b), sizes.Frames(b))
	}
	r.apart(s, p, first)
	for _, shard := range []int{0, 1} {
		b := s.Blocks([]int{shard}).At(0)
		if want := frame.Cost(8 * (b.To - b.From)); sizes.Likely(b) != want || sizes.Frames(b) <= want {
			t.Errorf("shard %d: %d bytes are likely, %d are asked for, of %d", shard, sizes.Likely(b), sizes.Frames(b), want)
		}
	}
}

func TestNeedOfFewColumns(t *testing.T) {
	r := one(t, folder(t, map[string]string{"a.parquet": "optional.parquet"}))
	s := r.newest("d")
	none, err := schema.Project(s.Schema, [][]string{})
	must(t, err)
	if got := r.Sizes(s, none).Need(s.Blocks(nil)); got.Block != 0 || got.Scratch != 0 {
		t.Errorf("no column needs %+v", got)
	}
}

// The most that was seen counts, small blocks speak for nobody else, and the table does not grow for ever.
func TestMeasures(t *testing.T) {
	var ms measures
	p := schema.All(arrow.NewSchema(nil, nil))
	snap := &snapshot.Snapshot{Dataset: "d", Shards: []*snapshot.Shard{{Key: "a"}, {Key: "b"}}}
	ms.frames(snap, snapshot.Block{Shard: 0, Bytes: 100}, p, 1000)
	if m := ms.of(snap, 0, p); m.ratio != 10 || !m.own {
		t.Errorf("%+v", m)
	}
	if m := ms.of(snap, 1, p); m != (measure{}) {
		t.Errorf("a small block of another object counts: %+v", m)
	}
	ms.frames(snap, snapshot.Block{Shard: 0, Bytes: leastMeasured}, p, 3*leastMeasured)
	ms.frames(snap, snapshot.Block{Shard: 0, Bytes: leastMeasured}, p, 2*leastMeasured)
	ms.scratch(snap, 0, p, 400, false)
	ms.scratch(snap, 0, p, 0, false)
	ms.onward(snap, 0, p, 250)
	ms.onward(snap, 0, p, 200)
	ms.onward(snap, 0, p, 0)
	ms.open(snap, 0, p, 300)
	ms.open(snap, 0, p, 200)
	ms.open(snap, 0, p, 0)
	if m := ms.of(snap, 1, p); m != (measure{ratio: 3, frames: 5 * leastMeasured, words: 2 * leastMeasured, scratch: 500, onward: 250, open: 300}) {
		t.Errorf("of the dataset: %+v", m)
	}
	ms.frames(snap, snapshot.Block{Shard: 0, Bytes: leastMeasured}, p, 1000*leastMeasured)
	if mine, other := ms.of(snap, 0, p), ms.of(snap, 1, p); mine.ratio != 1000 || other.ratio != mostBorrowed {
		t.Errorf("one bad object: %+v, and the others of its dataset %+v", mine, other)
	}
	ms.scratch(snap, 0, p, 800, true)
	if n, sure := ms.of(snap, 1, p).decoder(100); n != 1000 || sure {
		t.Errorf("after another one asked for more in vain: %d, %v", n, sure)
	}
	for vain, want := range map[int64]int64{10: 100, 1000: 1000} { // who asked for little in vain might have gone on to more
		if n, sure := (measure{vain: vain, own: true}).decoder(100); n != want || sure != (vain == want) {
			t.Errorf("after %d in vain: %d, %v", vain, n, sure)
		}
	}
	ms.frames(snap, snapshot.Block{Shard: 1}, p, 1) // nothing can be said
	for i := range 2 * maxMeasures {
		snap.Shards[1].Key = fmt.Sprint(i)
		ms.scratch(snap, 1, p, 1, false)
	}
	if len(ms.all) > maxMeasures {
		t.Errorf("%d measures", len(ms.all))
	}
	if n := (measure{ratio: 1e300}).bytes(math.MaxInt64, 0, &snapshot.Shard{Format: snapshot.Arrow}, p); n < 1<<40 {
		t.Errorf("an absurd claim needs %d bytes", n)
	}
	const word = 1 << 20
	for ratio, want := range map[float64]int64{0: word, 0.5: frame.Cost(0.5 * margin * word), 0.9: word, 3: 3 * word} {
		if n := (measure{ratio: ratio}).bytes(word, 0, &snapshot.Shard{Format: snapshot.Arrow}, p); n != want {
			t.Errorf("found to be %v times what the file says, %d bytes need %d, want %d", ratio, int64(word), n, want)
		}
	}
}

// apart reads blocks with one grant for the decoder and one for frames.
func (r *rig) apart(snap *snapshot.Snapshot, p *schema.Projection, blocks *snapshot.Blocks) {
	r.t.Helper()
	loan, _ := r.ledger.Loan()
	defer loan.Close()
	frames, err := r.ledger.Try(0)
	must(r.t, err)
	defer frames.Close()
	reader := r.Open(snap, p, loan)
	defer reader.Close()
	reader.ChargeTo(frames)
	for i := range blocks.Len() {
		leases, err := reader.Block(r.t.Context(), blocks.At(i))
		must(r.t, err)
		for _, l := range leases {
			l.Release()
		}
	}
}

// scratch is what a decoder of some columns was found to need.
func (r *rig) scratch(snap *snapshot.Snapshot, columns []string) int64 {
	r.t.Helper()
	var paths [][]string
	for _, c := range columns {
		paths = append(paths, []string{c})
	}
	p, err := schema.Project(snap.Schema, paths)
	must(r.t, err)
	r.apart(snap, p, snap.Blocks(nil))
	return r.Sizes(snap, p).Need(snap.Blocks(nil)).Scratch
}

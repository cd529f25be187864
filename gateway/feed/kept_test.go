package feed

import (
	"testing"

	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/storage/cache"
)

// misses is how many blocks were loaded so far.
func (r *rig) misses() (n int64) {
	for _, c := range r.cache.Stats().Counts {
		n += c.Misses
	}
	return n
}

// job is a request of four ranks for so many epochs.
func job(shuffle sampler.Shuffle, from, epochs int64) request {
	q := request{dataset: "segments", columns: []string{"id", "text"}, ranks: 4}
	q.plan = sampler.Plan{Shuffle: shuffle, WindowBlocks: 3}
	if shuffle == sampler.ShuffleNone {
		q.plan = sampler.Plan{}
	}
	q.cut = sampler.Cut{Batch: 64, Start: sampler.Place{Epoch: from}, End: from + epochs, Tail: sampler.Keep}
	return q
}

// What fits is loaded in the first epoch, each block once for all ranks, and in no later one: whether they are epochs of
// one stream or each of streams of its own.
func TestWhatFitsIsLoadedInTheFirstEpochOnly(t *testing.T) {
	need(t)
	for _, shuffle := range []sampler.Shuffle{sampler.ShuffleNone, sampler.ShuffleWindow, sampler.ShuffleFull} {
		r := newKeepingRig(t, 1<<30, 0)
		w := r.walk(t, job(shuffle, 0, 2))
		r.together(t, w)
		if got := r.misses(); got != int64(w.Blocks.Len()) {
			t.Errorf("%v: %d loads in two epochs of %d blocks", shuffle, got, w.Blocks.Len())
		}
		for epoch := int64(2); epoch < 5; epoch++ {
			r.together(t, r.walk(t, job(shuffle, epoch, 1)))
		}
		if got := r.misses(); got != int64(w.Blocks.Len()) {
			t.Errorf("%v: %d loads in five epochs of %d blocks", shuffle, got, w.Blocks.Len())
		}
		if got := r.rows(); got != w.Blocks.Rows() {
			t.Errorf("%v: %d rows decoded of %d", shuffle, got, w.Blocks.Rows())
		}
		r.close(t)
	}
}

// With room for half of the blocks, half of them are hits from the second epoch on, in whatever order they are read.
func TestHalfThatFitsIsHalfThatHits(t *testing.T) {
	need(t)
	for _, shuffle := range []sampler.Shuffle{sampler.ShuffleNone, sampler.ShuffleWindow} {
		r := newKeepingRig(t, 1<<30, 0)
		r.together(t, r.walk(t, job(shuffle, 0, 1)))
		all := r.cache.Stats()
		r.close(t)

		r = newKeepingRig(t, 1<<30, all.Kept/2)
		w := r.walk(t, job(shuffle, 0, 1))
		blocks := int64(w.Blocks.Len())
		r.together(t, w)
		for epoch := int64(1); epoch < 4; epoch++ {
			before := r.misses()
			r.together(t, r.walk(t, job(shuffle, epoch, 1)))
			if got := r.misses() - before; got < (blocks-1)/2-1 || got > (blocks+1)/2+1 {
				t.Errorf("%v, epoch %d: %d of %d blocks were loaded", shuffle, epoch, got, blocks)
			}
		}
		if s := r.cache.Stats(); s.Active != cache.Pinned {
			t.Errorf("jobs that read each block once an epoch, and the policy is %s", s.Active)
		}
		r.close(t)
	}
}

// Columns that another job has already loaded with more are not loaded again.
func TestFewerColumnsOfWhatIsKept(t *testing.T) {
	need(t)
	r := newKeepingRig(t, 1<<30, 0)
	r.together(t, r.walk(t, job(sampler.ShuffleWindow, 0, 1)))
	before := r.misses()
	narrow := job(sampler.ShuffleWindow, 1, 1)
	narrow.columns = []string{"text"}
	r.together(t, r.walk(t, narrow))
	if got := r.misses() - before; got != 0 {
		t.Errorf("%d loads", got)
	}
	r.close(t)
}

package feed

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/storage/budget"
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

// What is found in memory does not end the scanner that follows its segment: it goes on behind. Here every other block of a
// segment is found.
func TestWhatIsFoundInMemoryIsPassed(t *testing.T) {
	need(t)
	all := request{dataset: "long", columns: []string{"id", "text"}, cut: sampler.Cut{End: 1, Tail: sampler.Keep}}
	half, shuffled := all, all
	half.workers = 2
	shuffled.plan = sampler.Plan{Shuffle: sampler.ShuffleWindow, WindowBlocks: 2}
	for _, q := range []request{all, shuffled} {
		r := newKeepingRig(t, 1<<30, 0)
		s := r.open(t, r.walk(t, half))
		take(t, s, math.MaxInt)
		s.Close()
		before := r.opened
		r.together(t, r.walk(t, q))
		if got, most := r.opened-before, max(1, q.plan.WindowBlocks); int64(got) > most {
			t.Errorf("%v: the segment was opened %d times for %d lanes", q.plan.Shuffle, got, most)
		}
		if got, want := r.misses(), r.walk(t, q).Blocks.Len(); got != int64(want) {
			t.Errorf("%v: %d loads of %d blocks", q.plan.Shuffle, got, want)
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

// What was warmed is not loaded again by the job, and another warming finds it all there.
func TestWarm(t *testing.T) {
	need(t)
	for _, shuffle := range []sampler.Shuffle{sampler.ShuffleNone, sampler.ShuffleWindow, sampler.ShuffleFull} {
		r := newKeepingRig(t, 1<<30, 0)
		w := r.walk(t, job(shuffle, 0, 1))
		blocks := int64(w.Blocks.Len())
		var last Warmth
		for range 2 {
			var before Warmth
			must(t, r.Warm(context.Background(), w, func(w Warmth) error {
				if w.Seen < before.Seen || w.Kept > w.Seen {
					t.Errorf("%+v after %+v", w, before)
				}
				before, last = w, w
				return nil
			}))
			if last.Blocks != blocks || last.Seen != blocks || last.Kept != blocks || last.Full {
				t.Errorf("%+v of %d blocks", last, blocks)
			}
		}
		if last.Loaded != 0 {
			t.Errorf("the second warming loaded %d bytes", last.Loaded)
		}
		r.together(t, w)
		if got := r.misses(); got != blocks {
			t.Errorf("%v: %d loads of %d blocks", shuffle, got, blocks)
		}
		r.close(t)
	}
}

// Warming ends where memory does: nothing that is kept goes for it, and nobody waits for it.
func TestWarmEndsWhereMemoryDoes(t *testing.T) {
	need(t)
	r := newKeepingRig(t, 1<<30, 0)
	w := r.walk(t, job(sampler.ShuffleWindow, 0, 1))
	must(t, r.Warm(context.Background(), w, func(Warmth) error { return nil }))
	all := r.cache.Stats().Kept
	r.account(t, budget.Options{Limit: 1 << 30}, all/2)
	var last Warmth
	for range 2 {
		must(t, r.Warm(context.Background(), w, func(w Warmth) error { last = w; return nil }))
		if !last.Full || last.Kept == 0 || last.Kept >= int64(w.Blocks.Len()) || r.cache.Stats().Kept > all/2 {
			t.Errorf("%+v, %d of %d bytes kept", last, r.cache.Stats().Kept, all)
		}
	}
	enough := errors.New("enough")
	if err := r.Warm(context.Background(), w, func(Warmth) error { return enough }); !errors.Is(err, enough) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.Warm(ctx, w, func(Warmth) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	r.close(t)
}

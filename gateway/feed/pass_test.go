package feed

import (
	"context"
	"slices"
	"testing"

	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/storage/cache"
)

// What epochs fetch is told block by block, against the least that could be: pinned comes down to that, up to the blocks of a
// window, and LRU, in the same order each time, does not.
func TestPassesTellWhatEpochsFetch(t *testing.T) {
	need(t)
	r := newKeepingRig(t, 1<<30, 0)
	r.together(t, r.walk(t, job(sampler.ShuffleWindow, 0, 1)))
	all := r.cache.Stats().Kept
	if got := r.Passes().Last; len(got) != 1 || got[0] != (Pass{Dataset: "segments", Read: all, Fetched: all}) {
		t.Errorf("%+v of %d bytes that all fit", got, all)
	}
	r.close(t)
	for policy, shuffle := range map[string]sampler.Shuffle{cache.Pinned: sampler.ShuffleWindow, cache.LRU: sampler.ShuffleNone} {
		r = newKeepingRig(t, 1<<30, all/2)
		must(t, r.cache.SetPolicy(policy))
		w := r.walk(t, job(shuffle, 0, 1))
		block := all / int64(w.Blocks.Len())
		for epoch := range int64(4) {
			r.together(t, r.walk(t, job(shuffle, epoch, 1)))
			p := r.Passes().Last[0]
			switch {
			case p.Epoch != epoch || p.Read != all || p.Fetched > all:
				t.Errorf("%s: %+v, an epoch is %d bytes", policy, p, all)
			case epoch == 0 && p.Fetched != all:
				t.Errorf("%s: %+v: not all of the first epoch", policy, p)
			case p.Least < all/2-4*block || p.Least > all/2+4*block:
				t.Errorf("%s: %+v: half of %d fits", policy, p, all)
			case epoch > 0 && (p.Fetched-p.Least > 4*block) != (policy == cache.LRU):
				t.Errorf("%s: %+v, blocks have %d bytes", policy, p, block)
			}
		}
		sums := r.Passes().Sums
		if len(sums) != 1 || sums[0].Read != 4*all || sums[0].Fetched < sums[0].Least {
			t.Errorf("%+v", sums)
		}
		r.close(t)
	}
}

// Of many epochs only the last ones are told one by one; the sums are of all.
func TestPassesAreForgottenButForTheirSums(t *testing.T) {
	need(t)
	r := newKeepingRig(t, 1<<30, 0)
	w := r.walk(t, job(sampler.ShuffleWindow, 0, 1))
	p := r.join(w)
	for epoch := range int64(2 * manyPasses) {
		for range 2 { // a window that was given up and is decoded again
			r.passes.count(p, epoch, "t", 0, 10, true)
		}
		r.passes.count(p, epoch, "u", 1, 5, false)
	}
	got := r.Passes()
	want := []Pass{
		{Tenant: "t", Dataset: "segments", Read: 20 * manyPasses, Fetched: 40 * manyPasses},
		{Tenant: "u", Dataset: "segments", Read: 10 * manyPasses},
	}
	if len(got.Last) != manyPasses || got.Last[0].Epoch != 2*manyPasses-1 || !slices.Equal(got.Sums, want) {
		t.Errorf("%d one by one, %+v", len(got.Last), got.Sums)
	}
	r.part(p)
	for _, a := range r.passes.last {
		if a.seen != nil {
			t.Fatalf("%+v has a bit for each block though nobody reads", a.Pass)
		}
	}
	must(t, r.Warm(context.Background(), w, func(Warmth) error { return nil }))
	if warmed := r.Passes(); !slices.Equal(warmed.Sums, want) {
		t.Errorf("warming counts as reading: %+v", warmed.Sums)
	}
	r.close(t)
}

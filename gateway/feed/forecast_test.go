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

// Forecasts of orders, policies and sizes of memory: nothing is read for them, and nothing is left of them.
func TestForecast(t *testing.T) {
	need(t)
	r := newKeepingRig(t, 1<<30, 0)
	asked := func(shuffle sampler.Shuffle) Walk { // of a full shuffle all is in use where one epoch of a stream ends and the next begins
		q := job(shuffle, 0, map[bool]int64{true: 2, false: 1}[shuffle == sampler.ShuffleFull])
		q.dataset = "alike"
		return r.walk(t, q)
	}
	tooLarge := func(shuffle sampler.Shuffle, limit int64) {
		t.Helper()
		f, err := r.Forecast(context.Background(), asked(shuffle), 4, cache.Pinned, limit, 0)
		if !errors.Is(err, budget.ErrTooLarge) {
			t.Errorf("%+v, %v, of %d bytes", f, err, limit)
		}
	}
	foresee := func(shuffle sampler.Shuffle, policy string, limit int64) Forecast {
		t.Helper()
		f, err := r.Forecast(context.Background(), asked(shuffle), 4, policy, limit, 0)
		must(t, err)
		if f.Limit != limit || f.Room < 0 || f.Room > max(0, limit-f.Reserved, f.Hot) || f.Hits < 0 || f.Hits > 1 || f.Fetched != f.Hot-int64(f.Hits*float64(f.Hot)) {
			t.Errorf("%+v", f)
		}
		return f
	}
	for _, shuffle := range []sampler.Shuffle{sampler.ShuffleNone, sampler.ShuffleWindow, sampler.ShuffleFull} {
		all := foresee(shuffle, cache.Auto, 1<<30)
		if all.Hits != 1 || all.Fetched != 0 || all.Policy != cache.Pinned {
			t.Errorf("%v: %+v, though all fits", shuffle, all)
		}
		one := all.Reserved - 3<<20 // each stream takes a MiB
		tooLarge(shuffle, one-1)
		tooLarge(shuffle, 1)
		if f := foresee(shuffle, cache.Pinned, all.Enough); f.Hits != 1 || f.Enough != all.Enough || f.Enough < f.Hot+f.Reserved {
			t.Errorf("%v: %+v, though that is enough", shuffle, f)
		}
		if f := foresee(shuffle, cache.Pinned, one); f.Reserved != all.Reserved || f.Hits > 0 && shuffle != sampler.ShuffleFull {
			t.Errorf("%v: %+v, though but one stream fits", shuffle, f)
		}
		least := foresee(shuffle, cache.Pinned, all.Reserved)
		if shuffle == sampler.ShuffleFull { // of which all is in use all the time
			if least.Hits != 1 {
				t.Errorf("%+v", least)
			}
			continue
		}
		if least.Hits != 0 || least.Room != 0 || least.Fetched != least.Hot {
			t.Errorf("%v: %+v, though streams take all", shuffle, least)
		}
		half := all.Reserved + all.Hot/2
		pinned := foresee(shuffle, cache.Pinned, half)
		if c := float64(pinned.Room) / float64(pinned.Hot); math.Abs(pinned.Hits-c) > .1 || c < .2 || c > .5 {
			t.Errorf("%v: %+v, room for %.2f", shuffle, pinned, c)
		}
		if f := foresee(shuffle, cache.LRU, half); shuffle != sampler.ShuffleWindow && f.Hits != 0 || f.Hits >= pinned.Hits {
			t.Errorf("%v: by LRU %+v", shuffle, f)
		}
	}
	dear := r.walk(t, job(sampler.ShuffleWindow, 0, 1)) // Arrow files that are local are not kept on disk
	all, err := r.Forecast(context.Background(), dear, 4, cache.Pinned, 1<<30, 0)
	must(t, err)
	for disk, want := range map[int64]float64{all.Hot / 2: .5, 1 << 40: 1} {
		f, err := r.Forecast(context.Background(), dear, 4, cache.Pinned, all.Reserved, disk)
		must(t, err)
		if f.Disk != disk || f.Hits != 0 || math.Abs(f.DiskHits-want) > .1 || f.Fetched != f.Hot-int64(f.DiskHits*float64(f.Hot)) {
			t.Errorf("with a disk of %d bytes %+v", disk, f)
		}
	}
	if r.rows() != 0 || len(r.Passes().Last) != 0 || r.cache.Stats().Active != cache.Adaptive {
		t.Errorf("%d rows were read, the policy is %s", r.rows(), r.cache.Stats().Active)
	}
	if _, err := r.Forecast(context.Background(), r.walk(t, job(sampler.ShuffleNone, 0, 1)), 1, "mru", 1<<20, 0); err == nil {
		t.Error("a policy that is not was taken")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.Forecast(ctx, r.walk(t, job(sampler.ShuffleNone, 0, 1)), 1, cache.LRU, 1<<20, 0); err == nil {
		t.Error("it went on though nobody waits for it")
	}
	r.close(t)
}

// Scanners have memory that blocks could have, as files tell before anything was read: with room for the blocks alone they do not
// stay, unless there is as much beside as the scanners of all lanes have.
func TestForecastsMakeRoomForScanners(t *testing.T) {
	need(t)
	r := newKeepingRig(t, 1<<30, 0)
	q := job(sampler.ShuffleWindow, 0, 1)
	q.dataset, q.ranks = "long", 1
	w := r.walk(t, q)
	work := r.store.Sizes(w.Snapshot, w.Projection).Work(w.Blocks)
	foresee := func(limit int64) Forecast {
		f, err := r.Forecast(context.Background(), w, 1, cache.Pinned, limit, 0)
		must(t, err)
		return f
	}
	all := foresee(1 << 30)
	if f := foresee(all.Reserved + all.Hot); f.Hits > .9 || work.Open == 0 || work.Onward < work.Open || work.Begin < work.Onward {
		t.Errorf("%+v, beside scanners of %+v", f, work)
	}
	if f := foresee(all.Enough); f.Hits != 1 || f.Room < f.Hot || f.Limit < all.Reserved+all.Hot+3*work.Open {
		t.Errorf("%+v, beside scanners of %+v", f, work)
	}
	r.close(t)
}

package disk

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/cache"
)

// Many at once, with too little memory and too small a disk, while files are damaged and deleted: all rows are right, no
// books are broken, and the memory of all together is never more than there is.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t, inMemory(t), 150_000, 20*8192)
	w.rows = 100
	sets := []*cache.Columns{onlyA, columns("a", "text"), columns("text"), columns("text", "b", "a")}
	for n := range 40 { // made before, for the sake of speed
		for _, c := range sets {
			w.record(block(n), c).Release()
		}
	}
	var all sync.WaitGroup
	end := make(chan struct{})
	for seed := range uint64(8) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, 1))
			for i := range 60 {
				if err := w.one(r, fmt.Sprint("plan ", i/20, seed%3), sets); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var meanwhile sync.WaitGroup
	meanwhile.Go(func() {
		r := rand.New(rand.NewPCG(9, 9))
		for {
			select {
			case <-end:
				return
			default:
			}
			w.harm(r)
			time.Sleep(time.Millisecond)
			if s := w.ledger.Stats(); s.Reserved > s.Limit {
				t.Errorf("%+v", s)
			}
			if s := w.tier.Stats(); s.Bytes > s.Limit {
				t.Errorf("%+v", s)
			}
		}
	})
	all.Wait()
	close(end)
	meanwhile.Wait()
	w.settle(t)
	s := w.tier.Stats()
	t.Logf("%d loads, %+v", w.loads.Load(), s)
	if s.Hits == 0 || s.Written == 0 || s.Evicted == 0 || s.Errors != 0 {
		t.Errorf("%+v, %v", s, w.events)
	}
	w.leave(t)
	w.enter(t, 150_000, 0)
	<-w.tier.found
	if s := w.tier.Stats(); len(files(t, w.dir)) != s.Blocks {
		t.Errorf("%d files of %d blocks", len(files(t, w.dir)), s.Blocks)
	}
	w.leave(t)
}

// one reads one block for a plan.
func (w *world) one(r *rand.Rand, plan string, sets []*cache.Columns) error {
	p := w.cache.Open(plan, true)
	defer w.cache.ClosePlan(p)
	g, err := w.ledger.Admit(context.Background(), 100_000)
	if err != nil {
		return err
	}
	defer g.Close()
	k, c := block(r.IntN(40)), sets[r.IntN(len(sets))]
	l, err := w.cache.Get(context.Background(), w.request(k, c, p, g))
	if errors.Is(err, budget.ErrExhausted) {
		return nil
	}
	if err != nil {
		return err
	}
	defer l.Release()
	time.Sleep(time.Millisecond) // what streams do meanwhile is what the writers have time for
	return w.same(l.Frames(), w.record(k, c))
}

// harm damages or deletes a file of a block.
func (w *world) harm(r *rand.Rand) {
	paths, err := filepath.Glob(filepath.Join(w.dir, folder, "*"+suffix))
	if err != nil || len(paths) == 0 {
		return
	}
	path := paths[r.IntN(len(paths))]
	if r.IntN(3) == 0 {
		_ = os.Remove(path)
		return
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return // it has gone
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > 0 {
		_, _ = f.WriteAt([]byte{byte(r.IntN(256))}, r.Int64N(info.Size()))
	}
}

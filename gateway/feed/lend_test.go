package feed

import (
	"context"
	"testing"
	"time"

	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/storage/budget"
)

// A scanner that waits for its client to read on gives its memory to whoever waits for some, and is made anew when the
// client does.
func TestScannersGiveTheirMemoryBack(t *testing.T) {
	need(t)
	r := newRig(t, 256<<20)
	q := request{dataset: "long", columns: []string{"id", "text"}, cut: sampler.Cut{Batch: 40, End: 1}}
	s := r.open(t, r.walk(t, q))
	n := take(t, s, 2)
	eventually(t, "a scanner waits", func() bool {
		st := r.ledger.Stats()
		return st.Lent > 0 && st.Lent == st.Used[budget.Scratch]+st.Used[budget.Input]
	})
	scanned := r.opened
	st := r.ledger.Stats()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	all, err := r.ledger.Admit(ctx, st.Limit-(st.Reserved-st.Lent))
	must(t, err)
	if st := r.ledger.Stats(); st.Lent != 0 {
		t.Errorf("after it was wanted back: %+v", st)
	}
	n += take(t, s, 1<<30)
	all.Close()
	if r.opened == scanned {
		t.Error("no scanner was made anew")
	}
	if want := s.walk.Schedule.Count(); int64(n) != want {
		t.Errorf("%d steps, want %d", n, want)
	}
	s.Close()
	r.close(t)
}

// A block that takes more to decode than its file lets expect is decoded in the large slot, though others wait in line
// for memory, and the slot goes on to whoever needs it next.
func TestBlockThatOutgrowsItsMemoryTakesTheLargeSlot(t *testing.T) {
	need(t)
	q := request{dataset: "page", columns: []string{"id"}, cut: sampler.Cut{Batch: 100_000, End: 1}}
	r, w := tight(t, q, 0)
	const large = 128 << 20
	limit := r.ledger.Stats().Limit + large
	r.account(t, budget.Options{Limit: limit, Large: large}, nothing)
	s := r.open(t, w)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	line := make(chan struct{})
	go func() {
		defer close(line)
		if g, err := r.ledger.Admit(ctx, r.ledger.Most()); err == nil { // not while the stream runs
			g.Close()
		}
	}()
	eventually(t, "somebody waits in line", func() bool { return r.ledger.Stats().Waiting == 1 })
	n := take(t, s, 3)
	if st := r.ledger.Stats(); st.Reserved < large || st.Lent > 0 {
		t.Errorf("the slot is not in use: %+v", st)
	}
	soon, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	slot, _, err := r.ledger.Large(soon)
	must(t, err)
	slot.Close()
	if n += take(t, s, 1<<30); n != 40 {
		t.Errorf("%d steps", n)
	}
	s.Close()
	cancel()
	<-line
	r.close(t)
}

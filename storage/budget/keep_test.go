package budget

import (
	"errors"
	"testing"
	"testing/synctest"
)

// hoard keeps bytes and gives them up when it is asked, unless they are in use.
type hoard struct {
	*Keeper
	kept, inUse int64
}

func newHoard(l *Ledger) *hoard {
	h := &hoard{}
	h.Keeper = l.Keep(h.give)
	return h
}

func (h *hoard) give(n int64) int64 {
	n = min(n, h.kept-h.inUse)
	if n > 0 {
		h.kept -= n
		h.Grant().Credit(Frames, n)
	}
	return n
}

// keep takes bytes over from a grant that has them.
func (h *hoard) keep(t *testing.T, from *Grant, n int64) {
	t.Helper()
	from.Close()
	if short, ok := h.Short(from, n); short > 0 || !ok {
		t.Fatalf("%d short of %d, %v", short, n, ok)
	}
	if !from.Pass(Frames, n, h.Grant()) {
		t.Fatal("not taken over")
	}
	h.kept += n
}

func charged(t *testing.T, l *Ledger, n int64) *Grant {
	t.Helper()
	g := admit(t, l, n)
	if err := g.Charge(Frames, n); err != nil {
		t.Fatal(err)
	}
	return g
}

func TestWhatIsKeptIsInNobodysWay(t *testing.T) {
	l := New(Options{Limit: 100, Large: 20})
	h := newHoard(l)
	first := charged(t, l, 50)
	h.keep(t, first, 50)
	if s := l.Stats(); s.Lent != 50 || s.Reserved != 50 || s.Used[Frames] != 50 {
		t.Fatalf("%+v", s)
	}
	g, err := l.Try(60)
	if err != nil || h.kept != 40 {
		t.Fatal(h.kept, err)
	}
	if err := g.Charge(Scratch, 70); err != nil || h.kept != 30 {
		t.Fatal(h.kept, err)
	}
	loan, _ := l.Loan()
	if err := loan.Charge(Scratch, 5); err != nil || h.kept != 25 {
		t.Fatal(h.kept, err)
	}
	if err := g.Charge(Scratch, 11); !errors.Is(err, ErrExhausted) { // the large slot's are nobody's for good
		t.Fatal(err)
	}
	loan.Credit(Scratch, 5)
	loan.Close()
	g.Credit(Scratch, 70)
	g.Close()
	h.give(25)
	h.Close()
	empty(t, l)
}

func TestKeeperHearsOfThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Limit: 100})
		h := newHoard(l)
		done := make(chan struct{})
		go func() {
			for {
				select {
				case <-h.Wake():
					h.Repay()
				case <-done:
					return
				}
			}
		}()
		first := charged(t, l, 60)
		h.keep(t, first, 60)
		g := admit(t, l, 50)
		if h.kept != 50 || h.Wanted() != 0 {
			t.Fatalf("%d are kept, %d wanted", h.kept, h.Wanted())
		}
		h.inUse = 50
		got := make(chan *Grant)
		go func() { got <- admit(t, l, 30) }()
		synctest.Wait()
		if _, ok := h.Short(g, 1); ok || h.Wanted() != 30 {
			t.Fatalf("%d wanted; more may be kept: %v", h.Wanted(), ok)
		}
		h.inUse = 10
		h.Repay()
		(<-got).Close()
		g.Close()
		h.inUse = 0
		h.give(20)
		close(done)
		h.Close()
		empty(t, l)
	})
}

// TestOthersAreAskedWhenTheKeeperHasNothingToGive, and only then.
func TestOthersAreAskedWhenTheKeeperHasNothingToGive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Limit: 100})
		h := newHoard(l)
		first := charged(t, l, 50)
		h.keep(t, first, 50)
		first.Close()
		h.inUse = 50
		loan, revoked := l.Loan()
		if err := loan.Charge(Scratch, 50); err != nil {
			t.Fatal(err)
		}
		got := make(chan *Grant)
		go func() { got <- admit(t, l, 40) }()
		synctest.Wait()
		select {
		case <-revoked:
			t.Fatal("the loan is wanted though the keeper was not asked")
		default:
		}
		<-h.Wake()
		h.Repay()
		<-revoked
		loan.Credit(Scratch, 50)
		loan.Close()
		(<-got).Close()
		h.inUse = 0
		h.give(50)
		h.Close()
		empty(t, l)
	})
}

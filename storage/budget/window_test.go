package budget

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// in admits a stream with a seat in a window of 6 bytes; its own need is 1.
func in(t *testing.T, l *Ledger, plan string, number int64) (*Grant, *Seat) {
	t.Helper()
	g, err := l.Admit(context.Background(), 1, Window{Plan: plan, Number: number, Bytes: 6})
	if err != nil {
		t.Fatal(err)
	}
	return g, g.Seats()[0]
}

// enter fails unless the seat's window is its own at once.
func enter(t *testing.T, s *Seat) *Grant {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	g, err := s.Enter(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// outside fails unless the seat waits.
func outside(t *testing.T, s *Seat) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if _, err := s.Enter(ctx); !errors.Is(err, ErrTimeout) {
		t.Fatalf("entered: %v", err)
	}
}

func reserved(t *testing.T, l *Ledger, firm, revocable int64, windows int) {
	t.Helper()
	if s := l.Stats(); s.Reserved-s.Revocable != firm || s.Revocable != revocable || s.Windows != windows {
		t.Fatalf("firm %d, revocable %d, windows %d; want %d, %d, %d", s.Reserved-s.Revocable, s.Revocable, s.Windows, firm, revocable, windows)
	}
}

func TestStreamsInOneWindowShareItsCharge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Limit: 8})
		a, sa := in(t, l, "p", 3)
		b, sb := in(t, l, "p", 3)
		if enter(t, sa) != enter(t, sb) {
			t.Fatal("two charges")
		}
		reserved(t, l, 8, 0, 1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := l.Admit(ctx, 1, Window{Plan: "q", Number: 3, Bytes: 6}); !errors.Is(err, ErrTimeout) {
			t.Fatalf("another plan: %v", err)
		}
		pays := enter(t, sa)
		if err := pays.Charge(Frames, 5); err != nil {
			t.Fatal(err)
		}
		a.Close()
		b.Close()
		reserved(t, l, 5, 0, 0) // until the last lease
		pays.Credit(Frames, 5)
		empty(t, l)
	})
}

func TestWhatNeverFitsIsRefused(t *testing.T) {
	l := New(Options{Limit: 20, Large: 5})
	for _, w := range [][]Window{{{Bytes: 15}}, {{Bytes: 8}, {Plan: "other", Bytes: 7}}, {{Bytes: 1 << 62}, {Plan: "other", Bytes: 1 << 62}}} {
		if _, err := l.Admit(context.Background(), 1, w...); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%v: %v", w, err)
		}
	}
	if _, err := l.Admit(context.Background(), 1, Window{Bytes: -1}); err == nil || errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	empty(t, l)
}

// Who runs ahead without room waits for the slowest, which goes on into the same
// memory and takes the others along.
func TestWhoRunsAheadWaitsForTheSlowest(t *testing.T) {
	for name, leave := range map[string]func(*Grant, *Seat){
		"moves on": func(_ *Grant, s *Seat) { s.Move(1) },
		"ends":     func(g *Grant, _ *Seat) { g.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := New(Options{Limit: 12})
				a, fast := in(t, l, "p", 0)
				b, slow := in(t, l, "p", 0)
				c, last := in(t, l, "p", 0)
				defer a.Close()
				defer b.Close()
				defer c.Close()
				fast.Move(1)
				outside(t, fast)
				last.Move(2)
				if l.Waiting().IsZero() || l.Stats().Waiting != 2 {
					t.Fatalf("%+v", l.Stats())
				}
				enter(t, slow)
				leave(b, slow)
				enter(t, fast)
				outside(t, last)
				fast.Move(2)
				slow.Move(2)
				if enter(t, fast) != enter(t, last) {
					t.Fatal("two charges")
				}
			})
		})
	}
}

func TestWhoRunsAheadTakesItsOwnIfThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Limit: 15})
		a, fast := in(t, l, "p", 0)
		b, slow := in(t, l, "p", 0)
		c := admit(t, l, 6)
		fast.Move(1)
		outside(t, fast)
		done := make(chan *Grant)
		go func() { done <- admit(t, l, 2) }()
		synctest.Wait()
		c.Close() // the line comes first; there is no room left for the other
		line := <-done
		outside(t, fast)
		line.Close()
		enter(t, fast)
		reserved(t, l, 14, 0, 2)
		slow.Move(1)
		if enter(t, slow) != enter(t, fast) {
			t.Fatal("two charges")
		}
		reserved(t, l, 8, 0, 1)
		a.Close()
		b.Close()
		empty(t, l)
	})
}

// Ranks that resume one window apart are all admitted; the one ahead waits.
func TestNewcomersWaitBehindTheNextWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Limit: 9})
		a, slow := in(t, l, "p", 4)
		b, ahead := in(t, l, "p", 5)
		outside(t, ahead)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		for _, number := range []int64{3, 6} {
			if _, err := l.Admit(ctx, 1, Window{Plan: "p", Number: number, Bytes: 6}); !errors.Is(err, ErrTimeout) {
				t.Fatalf("window %d: %v", number, err)
			}
		}
		slow.Move(5)
		if enter(t, ahead) != enter(t, slow) {
			t.Fatal("two charges")
		}
		a.Close()
		b.Close()
		empty(t, l)
	})
}

// Of two spans one may be waited for; what is free is for the other.
func TestNewcomersLeaveRoomForTheirOtherSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Limit: 17})
		a, slow := in(t, l, "p", 4)
		b, err := l.Admit(context.Background(), 1, Window{Plan: "p", Number: 5, Bytes: 6}, Window{Plan: "q", Number: 5, Bytes: 6})
		if err != nil {
			t.Fatal(err)
		}
		enter(t, b.Seats()[1])
		outside(t, b.Seats()[0])
		slow.Move(5)
		enter(t, b.Seats()[0])
		a.Close()
		b.Close()
		empty(t, l)
	})
}

func TestPrefetchBecomesTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Limit: 13, Large: 6})
		a, s := in(t, l, "p", 0)
		pays, _, ok := s.Ahead(1)
		if !ok {
			t.Fatal("13 bytes have room for another 6")
		}
		if _, _, ok := s.Ahead(2); ok {
			t.Fatal("two ahead")
		}
		reserved(t, l, 7, 6, 2)
		s.Move(1)
		if enter(t, s) != pays {
			t.Fatal("another charge")
		}
		s.Retract() // too late to mean anything
		reserved(t, l, 7, 0, 1)
		a.Close()
		empty(t, l)
	})
}

// A window that is somebody's prefetch takes firm memory, too, when it is entered.
func TestNewcomersInAWindowThatIsPrefetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Limit: 20, Large: 5})
		a, slow := in(t, l, "p", 0)
		b := admit(t, l, 2)
		pays, _, ok := slow.Ahead(1)
		if !ok {
			t.Fatal("no room")
		}
		c, fast := in(t, l, "p", 1)
		outside(t, fast)
		reserved(t, l, 10, 6, 2)
		b.Close()
		if enter(t, fast) != pays {
			t.Fatal("another charge")
		}
		reserved(t, l, 14, 0, 2)
		a.Close()
		c.Close()
		empty(t, l)
	})
}

// One that is not next to anybody's is entered only when there is firm memory for it.
func TestNewcomersFarAheadOfTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Limit: 20, Large: 5})
		a, slow := in(t, l, "p", 0)
		b := admit(t, l, 2)
		if _, _, ok := slow.Ahead(2); !ok {
			t.Fatal("no room")
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := l.Admit(ctx, 1, Window{Plan: "p", Number: 2, Bytes: 6}); !errors.Is(err, ErrTimeout) {
			t.Fatal(err)
		}
		slow.Move(1) // what it has reserved ahead is of no use any more
		reserved(t, l, 9, 0, 1)
		a.Close()
		b.Close()
		empty(t, l)
	})
}

// A window ahead is firm while another stream reads it, and a prefetch again when that has gone on.
func TestPrefetchThatAnotherPassedThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Limit: 24, Large: 4})
		a, slow := in(t, l, "p", 0)
		b, fast := in(t, l, "p", 0)
		pays, revoked, ok := slow.Ahead(1)
		if !ok {
			t.Fatal("no room")
		}
		fast.Move(1)
		if enter(t, fast) != pays {
			t.Fatal("another charge")
		}
		reserved(t, l, 14, 0, 2)
		fast.Move(2)
		enter(t, fast)
		reserved(t, l, 14, 6, 3)
		waiting := make(chan *Grant)
		go func() { waiting <- admit(t, l, 5) }()
		<-revoked
		slow.Retract()
		(<-waiting).Close()
		a.Close()
		b.Close()
		empty(t, l)
	})
}

// If frames of the old window are leased elsewhere, the prefetch of the next one
// may be too much; then it is wanted back and the old charge goes on.
func TestPrefetchBesideLeftoversIsWantedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Limit: 13, Large: 5})
		a, s := in(t, l, "p", 0)
		old := enter(t, s)
		if err := old.Charge(Frames, 2); err != nil {
			t.Fatal(err)
		}
		_, revoked, ok := s.Ahead(1)
		if !ok {
			t.Fatal("no room")
		}
		s.Move(1)
		<-revoked
		s.Retract()
		if enter(t, s) != old {
			t.Fatal("another charge")
		}
		reserved(t, l, 7, 0, 1)
		old.Credit(Frames, 2)
		a.Close()
		empty(t, l)
	})
}

func TestFramesArePassedToWhoLeasesThem(t *testing.T) {
	l := New(Options{Limit: 20})
	a, b := admit(t, l, 6), admit(t, l, 4)
	if err := a.Charge(Frames, 5); err != nil {
		t.Fatal(err)
	}
	if err := a.Pass(Frames, 4, b); err != nil {
		t.Fatal(err)
	}
	reserved(t, l, 10, 0, 0)
	full := admit(t, l, 10)
	if err := a.Pass(Frames, 1, b); !errors.Is(err, ErrExhausted) {
		t.Fatal(err)
	}
	full.Close()
	if err := a.Pass(Frames, 1, b); err != nil { // grows
		t.Fatal(err)
	}
	reserved(t, l, 11, 0, 0)
	b.Close()
	if err := a.Pass(Frames, 0, b); !errors.Is(err, ErrExhausted) {
		t.Fatal(err)
	}
	b.Credit(Frames, 5)
	a.Close()
	empty(t, l)
}

package budget

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// Who says what it needs when its turn has come is served in order all the same, and nobody passes it before it leaves.
func TestPlacesInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Limit: 10})
		all := admit(t, l, 10)
		order := make(chan string, 1)
		place, err := l.Queue(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			g := admit(t, l, 1)
			order <- "second"
			g.Close()
		}()
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			_, err := l.Queue(ctx, 5)
			gone <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if _, err := place.Try(1); !errors.Is(err, ErrExhausted) {
			t.Error(err)
		}
		all.Close()
		synctest.Wait()
		if len(order) > 0 {
			t.Error("it was passed before it said what it needs")
		}
		for _, need := range []int64{11, -1} {
			if _, err := place.Admit(t.Context(), need); err == nil {
				t.Errorf("%d bytes", need)
			}
		}
		first, err := place.Admit(t.Context(), 3)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(order) > 0 {
			t.Error("it was passed before it left")
		}
		place.Leave()
		place.Leave()
		if got := <-order; got != "second" {
			t.Error(got)
		}
		first.Close()
		synctest.Wait()
		empty(t, l)
	})
}

// Whoever gives up while it waits at the head makes room for the next.
func TestPlaceIsLostWithItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Limit: 10})
		all := admit(t, l, 5)
		place, err := l.Queue(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error)
		go func() {
			_, err := place.Admit(ctx, 10)
			failed <- err
		}()
		served := make(chan *Grant)
		go func() { served <- admit(t, l, 5) }()
		synctest.Wait()
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		(<-served).Close()
		place.Leave()
		all.Close()
		empty(t, l)
	})
}

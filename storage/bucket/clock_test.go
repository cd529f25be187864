package bucket

import (
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
)

// Reads that overlap are waited for once, also where they were asked for ahead: what counts is the time for which somebody
// has no bytes.
func TestClockCountsTheTimeWithoutBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, store, _ := far(t, 3*piece)
		store.on = func(Range) error {
			time.Sleep(time.Second)
			return nil
		}
		var clock Clock
		read := func(o *Object, off int64) error { return o.ReadAt(t.Context(), make([]byte, 10), off) }
		clocked := o.Clocked(&clock)
		var both errgroup.Group
		both.Go(func() error { return read(clocked, 0) })
		both.Go(func() error {
			time.Sleep(time.Second / 2)
			defer func() {
				if got := clock.Total(); got != 3*time.Second/2 {
					t.Errorf("%v in the middle of a wait", got)
				}
			}()
			return read(clocked, piece)
		})
		if err := both.Wait(); err != nil || clock.Total() != 3*time.Second/2 {
			t.Errorf("%v, %v of two reads that overlap by half", err, clock.Total())
		}
		if err := read(o, 0); err != nil || clock.Total() != 3*time.Second/2 {
			t.Errorf("%v, %v with a read that has no clock", err, clock.Total())
		}
		a := clocked.Ahead(t.Context(), Reading{Ranges: []Range{{0, 2 * piece}}, Memory: func(n int) ([]byte, func(), error) {
			return make([]byte, n), func() {}, nil
		}})
		defer func() { _ = a.Close() }()
		for off := range int64(2) { // the second comes with the first
			if err := read(a, off*piece); err != nil || clock.Total() != 5*time.Second/2 {
				t.Errorf("%v, %v after read %d ahead", err, clock.Total(), off)
			}
		}
	})
}

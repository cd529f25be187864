package storage

import (
	"testing"
	"time"
)

// An outage is told when it begins and when it ends; the next one, if it begins within a minute, once that is over.
func TestOutagesAreToldOnce(t *testing.T) {
	var o outage
	now := time.Unix(1_000_000, 0)
	for _, step := range []struct {
		after time.Duration
		fails bool
		tell  bool
		long  time.Duration
	}{
		{0, false, false, 0},
		{time.Second, true, true, 0},
		{time.Second, true, false, 0},
		{2 * time.Minute, true, false, 0}, // the same one
		{time.Second, false, true, 2*time.Minute + 2*time.Second},
		{time.Second, false, false, 0},
		{time.Second, true, true, 0},
		{time.Second, false, true, time.Second},
		{time.Second, true, false, 0}, // too soon after the last one
		{time.Second, false, false, 0},
		{time.Second, true, false, 0},
		{time.Minute, true, true, 0}, // it lasts
		{time.Second, false, true, time.Minute + time.Second},
	} {
		now = now.Add(step.after)
		if step.fails {
			if tell := o.failed(now); tell != step.tell {
				t.Errorf("%v: failed: %v", now, tell)
			}
			continue
		}
		if long, tell := o.works(now); tell != step.tell || tell && long != step.long {
			t.Errorf("%v: works: %v %v", now, long, tell)
		}
	}
}

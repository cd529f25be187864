package storage

import (
	"sync"
	"time"
)

// outage knows whether the store of a mount is out of order, and what of that
// was told.
type outage struct {
	mu    sync.Mutex
	began time.Time // zero: it works
	told  time.Time // when last
	open  bool      // that it failed was told, and not yet that it works
}

// outagePause is the least time between outages that are told.
const outagePause = time.Minute

// failed notes a failure, and returns whether to tell.
func (o *outage) failed(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.began.IsZero() {
		o.began = now
	}
	if o.open || !o.told.IsZero() && now.Sub(o.told) < outagePause {
		return false
	}
	o.open, o.told = true, now
	return true
}

// works notes an answer, and returns whether to tell that an outage is over, and
// how long it was.
func (o *outage) works(now time.Time) (after time.Duration, tell bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	after, tell = now.Sub(o.began), o.open
	o.began, o.open = time.Time{}, false
	return after, tell
}

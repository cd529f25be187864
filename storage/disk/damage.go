package disk

import "time"

// damages are files found damaged that are still to be told of.
type damages struct {
	files   int64
	example string
	err     error // of the example
	telling bool  // somebody tells of them when the minute is over
}

// damaged notes that a file is not what was written. The first one is told at once, those of the minute after that
// together: a disk that dies has them by the thousands.
func (t *Tier) damaged(file string, err error) {
	t.mu.Lock()
	t.counts.Damaged++
	first := !t.untold.telling
	if t.untold.telling = true; !first {
		t.untold.files++
		t.untold.example, t.untold.err = file, err
	}
	t.mu.Unlock()
	if first {
		t.options.Events.Damaged(1, file, err)
		t.work.Go(t.tell)
	}
}

// tell tells what was found damaged, every minute until nothing was.
func (t *Tier) tell() {
	for more := true; more; {
		select {
		case <-time.After(t.pause):
		case <-t.ctx.Done():
		}
		t.mu.Lock()
		d := t.untold
		more = d.files > 0
		t.untold = damages{telling: more}
		t.mu.Unlock()
		if more {
			t.options.Events.Damaged(d.files, d.example, d.err)
		}
	}
}

package storage

import (
	"math"
	"sync"
	"time"
)

const (
	// paceSpan is over how long what comes from a store is measured, and
	// paceSpans how many of those count.
	paceSpan  = 250 * time.Millisecond
	paceSpans = 8
	// leastFlying is how many blocks are asked for at once before anything was
	// measured, and at least.
	leastFlying = 8
)

// pace finds out how many blocks of a mount are to be on their way at once so
// that the store, however far away, has always something to send: by Little's
// law its rate times the time until it answers, divided by what a block is. It
// asks for twice that, for as long as more is on its way the rate may grow. The
// zero value is ready.
type pace struct {
	mu     sync.Mutex
	flying int // requests
	began  time.Time
	bytes  int64
	late   time.Duration // the latest answer
	spans  [paceSpans]spanPace
	at     int

	size struct{ bytes, blocks float64 } // of all, what is long ago counts less
}

// spanPace is how it was for some time without a pause.
type spanPace struct {
	rate float64       // bytes a second
	late time.Duration // the latest answer
}

// ask notes that a request begins.
func (p *pace) ask(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.flying == 0 { // what nobody asked for did not come either
		p.began, p.bytes, p.late = now, 0, 0
	}
	p.flying++
}

// answered notes how long it took until the first byte of an answer came.
func (p *pace) answered(after time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = max(p.late, after)
}

// came notes that a request is over, and what it brought.
func (p *pace) came(now time.Time, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flying--
	p.bytes += bytes
	p.size.bytes += float64(bytes)
	if took := now.Sub(p.began); took >= paceSpan {
		p.spans[p.at%paceSpans] = spanPace{float64(p.bytes) / took.Seconds(), p.late}
		p.at++
		p.began, p.bytes, p.late = now, 0, 0
	}
}

// decoded notes that a block was made of what came.
func (p *pace) decoded() {
	const many = 1024
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.size.blocks++; p.size.blocks > many {
		p.size.blocks /= 2
		p.size.bytes /= 2
	}
}

// blocks is how many are best on their way, at most so many.
func (p *pace) blocks(most int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	var rate float64
	var late time.Duration
	for _, s := range p.spans {
		rate, late = max(rate, s.rate), max(late, s.late)
	}
	if p.size.bytes == 0 {
		return leastFlying
	}
	each := p.size.bytes / max(p.size.blocks, 1)
	n := math.Ceil(2*rate*late.Seconds()/each) + 1
	return max(leastFlying, int(min(n, float64(most))))
}

package gateway

import (
	"runtime"
	"time"
)

// collectDelay is how long after a stream was cut short the garbage is collected.
const collectDelay = time.Second

// collectSoon finds what gRPC has dropped of a stream that was cut short: a message that reaches its writer just after the
// client's reset is forgotten there, and only the collector can tell. An idle process would collect it minutes later.
func (s *Server) collectSoon() {
	if s.collecting.Swap(true) {
		return
	}
	time.AfterFunc(collectDelay, func() {
		s.collecting.Store(false)
		if messages, _ := s.conns.Queued(); messages > 0 {
			runtime.GC()
		}
	})
}

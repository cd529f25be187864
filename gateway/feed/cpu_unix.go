//go:build unix

package feed

import (
	"syscall"
	"time"
)

// processorTime is what the process has used so far, user and system.
func processorTime() (used time.Duration, known bool) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}

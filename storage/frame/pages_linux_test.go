package frame

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// A thread that may run on one processor only is told that one.
func TestProcessor(t *testing.T) {
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		t.Skip(err)
	}
	for cpu := range 1024 {
		if !may.IsSet(cpu) {
			continue
		}
		var one unix.CPUSet
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			t.Skip(err)
		}
		if got := processor(); got != cpu {
			t.Errorf("on processor %d it is said to be %d", cpu, got)
		}
	}
}

//go:build leases

package frame

import (
	"runtime/debug"
	"strings"
	"sync"
)

// traces remembers who took each live lease.
type traces struct {
	mu     sync.Mutex
	stacks map[*Lease]string
}

func (t *traces) add(l *Lease) {
	stack := string(debug.Stack())
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stacks == nil {
		t.stacks = make(map[*Lease]string)
	}
	t.stacks[l] = stack
}

func (t *traces) remove(l *Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.stacks, l)
}

// report lists the stacks at which live leases were taken.
func (t *traces) report() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	for _, stack := range t.stacks {
		b.WriteString("\nlease taken by ")
		b.WriteString(stack)
	}
	return b.String()
}

package storage

import "context"

// gate lets one caller in at a time, like a mutex, but those who wait can give up.
type gate chan struct{}

func newGate() gate { return make(gate, 1) }

// enter waits for its turn. Unless it fails, leave must follow.
func (g gate) enter(ctx context.Context) error {
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g gate) leave() { <-g }

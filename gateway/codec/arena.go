package codec

import (
	"fmt"

	"google.golang.org/grpc/mem"

	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
)

// chunk is the least that an arena takes from the pool at once, in bytes.
const chunk = 64 << 10

// arena is the memory for what one message has to copy: regions of the pool that leave with the message, and for
// pieces that Body.place copies anyway a heap buffer that stays with the encoder.
type arena struct {
	pool  *frame.Pool
	grant *budget.Grant
	held  holding // leaves with the message
	free  []byte  // what is left of the last region
	small []byte
}

func (a *arena) reset() {
	a.held, a.free, a.small = holding{}, nil, a.small[:0]
}

// take returns n bytes of undefined contents.
func (a *arena) take(n int) ([]byte, error) {
	if mem.IsBelowBufferPoolingThreshold(n) {
		if cap(a.small)-len(a.small) < n {
			a.small = make([]byte, 0, max(4<<10, 2*cap(a.small)))
		}
		from := len(a.small)
		a.small = a.small[:from+n]
		return a.small[from : from+n : from+n], nil
	}
	b, err := a.reserve(n)
	if err == nil {
		a.keep(n)
	}
	return b, err
}

// reserve returns at least n bytes that the next reserve may return again, unless keep is called before it.
func (a *arena) reserve(n int) ([]byte, error) {
	if len(a.free) < n {
		r, err := a.pool.Alloc(a.grant, budget.Batches, max(n, chunk))
		if err != nil {
			return nil, fmt.Errorf("memory for %d bytes of a message: %w", n, err)
		}
		a.held.regions = append(a.held.regions, r)
		a.free = r.Bytes()
	}
	return a.free[:n:n], nil
}

// keep ends the use of the first n reserved bytes by later calls.
func (a *arena) keep(n int) {
	a.free = a.free[min(n+padding(n), len(a.free)):]
}

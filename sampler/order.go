package sampler

// Order is what a plan makes of a snapshot's rows, over all epochs. It is immutable and safe for use by many
// goroutines.
type Order struct {
	plan   Plan
	layout *layout
}

// NewOrder lays out the shards of a plan, in ascending order of their numbers. It takes O(segments), with a split
// O(blocks). Errors wrap [ErrPlan], when the plan contradicts itself, or [ErrLimit].
func NewOrder(p Plan, shards []Shard) (*Order, error) {
	p = p.normal()
	if err := p.check(); err != nil {
		return nil, err
	}
	l, err := newLayout(shards)
	if err != nil {
		return nil, err
	}
	if p.Split != nil {
		if err := l.keep(*p.Split); err != nil {
			return nil, err
		}
	}
	return &Order{plan: p, layout: l}, nil
}

// OrderBytes is the most memory that [NewOrder] takes, known before it is called.
func OrderBytes(p Plan, shards []Shard) int64 {
	bytes, blocks := layoutBytes(shards)
	if p.Split != nil {
		bytes += 16 * blocks
	}
	return 256 + bytes
}

// Rows returns the rows of one epoch.
func (o *Order) Rows() int64 { return o.layout.total() }

// Blocks returns how many blocks have rows of the plan: fewer than the shards have, if a split leaves nothing of some.
func (o *Order) Blocks() int64 { return o.layout.count() }

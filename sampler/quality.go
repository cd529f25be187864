package sampler

import "sort"

// goodEffect is the design effect that [Order.GoodWindow] is asked to bring.
const goodEffect = 2

// DesignEffect says how much worse than at random a batch of so many rows (of all ranks) is mixed: the variance of a
// batch's mean, for a value that all rows of a block share, over that of rows drawn at random. 1 is as good as random.
// Blocks count as equally large. It is for reading only: nothing is decided by it.
func (o *Order) DesignEffect(batch int64) float64 {
	if o.Rows() == 0 {
		return 0
	}
	window := o.Blocks()
	switch o.plan.Shuffle {
	case ShuffleNone:
		window = 1
	case ShuffleWindow:
		window = min(window, o.plan.WindowBlocks)
	}
	return effect(batch, window, o.Blocks(), o.Rows())
}

// GoodWindow returns the smallest window, in blocks, that brings the design effect down to 2.
func (o *Order) GoodWindow(batch int64) int64 {
	blocks := o.Blocks()
	return 1 + int64(sort.Search(int(blocks), func(i int) bool {
		return effect(batch, int64(i)+1, blocks, o.Rows()) <= goodEffect
	}))
}

// effect is (B/n)(1−n/M) + (1−1/n)(1−B/(nS)) for batches of B rows, windows of n of M blocks and S = N/M rows a block,
// and not less than 0. Every product is rounded by itself, so that all processors give the same number.
func effect(batch, window, blocks, rows int64) float64 {
	b, n, m := float64(batch), float64(window), float64(blocks)
	s := float64(rows) / m
	between := float64(b / n * (1 - n/m))
	within := float64((1 - 1/n) * (1 - b/float64(n*s)))
	return max(0, between+within)
}

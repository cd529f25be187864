package wire

import "fmt"

// Validate finds what contradicts itself in a request ([ErrRequest]).
func (r *Request) Validate() error {
	for _, check := range []func() string{r.checkOrder, r.checkBatch, r.checkRanks, r.checkEpochs, r.checkPlaces} {
		if wrong := check(); wrong != "" {
			return fmt.Errorf("%w: %s", ErrRequest, wrong)
		}
	}
	return nil
}

func (r *Request) checkOrder() string {
	switch {
	case r.Shuffle == "none" && r.Seed != 0:
		return "seed does nothing without a shuffle: ask for one, or leave seed out"
	case r.Shuffle == "none" && r.Groups != 1:
		return "groups does nothing without a shuffle: ask for one, or leave groups out"
	case r.Shuffle != "window" && r.WindowBlocks != 0:
		return `window_blocks does nothing without shuffle "window": ask for that, or leave window_blocks out`
	case r.Split != nil && r.Split.From >= r.Split.To:
		return "split: from must be less than to"
	}
	return ""
}

func (r *Request) checkBatch() string {
	sized := r.BatchSize > 0 || r.GlobalBatchSize > 0
	switch {
	case r.BatchSize > 0 && r.GlobalBatchSize > 0 && r.BatchSize*r.WorldSize != r.GlobalBatchSize:
		return fmt.Sprintf("batch_size %d times world_size %d is not global_batch_size %d: give one of the two sizes",
			r.BatchSize, r.WorldSize, r.GlobalBatchSize)
	case r.Shuffle != "none" && !sized:
		return "a shuffle needs batch_size or global_batch_size"
	case r.WorldSize > 1 && !sized:
		return "world_size above 1 needs batch_size or global_batch_size"
	case r.Tail != "" && !sized:
		return "tail needs batch_size or global_batch_size"
	case r.MaxMessageBytes != 0 && r.MaxMessageBytes < minMessage:
		return fmt.Sprintf("max_message_bytes %d is less than %d", r.MaxMessageBytes, minMessage)
	}
	return ""
}

func (r *Request) checkRanks() string {
	switch {
	case r.Rank != nil && *r.Rank >= r.WorldSize:
		return fmt.Sprintf("rank %d is not less than world_size %d: ranks count from 0", *r.Rank, r.WorldSize)
	case r.NumWorkers > 1 && r.WorkerID == nil:
		return "num_workers above 1 needs worker_id"
	case r.WorkerID != nil && *r.WorkerID >= r.NumWorkers:
		return fmt.Sprintf("worker_id %d is not less than num_workers %d: workers count from 0", *r.WorkerID, r.NumWorkers)
	}
	return ""
}

func (r *Request) checkEpochs() string {
	switch {
	case r.NumEpochs == 0:
		return "num_epochs must be at least 1, or -1 for streams without end"
	case r.Epoch+r.NumEpochs > MaxEpoch:
		return fmt.Sprintf("epoch plus num_epochs is more than %d", MaxEpoch)
	}
	return ""
}

// checkPlaces keeps start and after within the epochs asked for, and in order.
func (r *Request) checkPlaces() string {
	switch {
	case r.Start != nil && r.outside(*r.Start):
		return fmt.Sprintf("start lies in epoch %d, outside the epochs asked for", r.Start.Epoch)
	case r.After != nil && r.outside(*r.After):
		return fmt.Sprintf("after lies in epoch %d, outside the epochs asked for", r.After.Epoch)
	case r.Start == nil || r.After == nil:
		return ""
	case r.Start.Plan != r.After.Plan:
		return "start and after are cursors of different plans"
	case r.After.Epoch < r.Start.Epoch || r.After.Epoch == r.Start.Epoch && r.After.Rows < r.Start.Rows:
		return "after lies before start"
	}
	return ""
}

// outside tells whether a place lies beyond the epochs asked for. The end of the last one is row 0 of the next.
func (r *Request) outside(c Cursor) bool {
	if c.Epoch < r.Epoch {
		return true
	}
	end := r.Epoch + r.NumEpochs
	return r.NumEpochs > 0 && (c.Epoch > end || c.Epoch == end && c.Rows > 0)
}

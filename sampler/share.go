package sampler

// Stream names one of the streams that share a schedule: worker Worker of Workers of rank Rank of Ranks. It takes its
// rank's share of every step whose number is Worker modulo Workers.
type Stream struct{ Rank, Ranks, Worker, Workers int64 }

// Next returns the first step of the stream at or after a step.
func (st Stream) Next(step int64) int64 {
	return step + ((st.Worker-step)%st.Workers+st.Workers)%st.Workers
}

// Share returns which of the rows of a step, sorted and followed by the padded ones, are a rank's.
func (st Step) Share(rank, ranks int64) (from, to int64) {
	rows := st.To - st.From + st.Padded
	return scale(rank, rows, ranks), scale(rank+1, rows, ranks)
}

// Final tells whether a stream that takes a step takes no other one of the same epoch: its receipt is due.
func (s *Schedule) Final(step Step, workers int64) bool {
	next := step.Number + workers
	return !s.endless() && next >= s.Count() || s.Step(next).Epoch != step.Epoch
}

// Share counts what one stream takes from a step on. All ranks together take what a single one would.
func (s *Schedule) Share(st Stream, from int64) Totals {
	if s.endless() {
		return Totals{Endless, Endless, Endless, Endless}
	}
	at, number := s.cut.Start, from
	switch {
	case from >= s.Count() && from > 0 || at.Epoch == s.cut.End || s.rows == 0:
		return Totals{}
	case from > 0: // else even an epoch without steps counts, for what it drops
		step := s.Step(from)
		at = Place{step.Epoch, step.From}
	}
	sum := s.part(st, at.Rows, number)
	number += s.steps(at.Rows)
	// Which steps of an epoch are the stream's depends on the number of its first step modulo the workers, and that comes
	// round after at most so many epochs.
	epochs := s.cut.End - at.Epoch - 1
	for i := range min(epochs, st.Workers) {
		times := (epochs-1-i)/st.Workers + 1
		sum.add(s.part(st, 0, number+i*s.each), times)
	}
	return sum
}

func (t *Totals) add(other Totals, times int64) {
	t.Rows += other.Rows * times
	t.Steps += other.Steps * times
	t.Padded += other.Padded * times
	t.Dropped += other.Dropped * times
}

// part counts what a stream takes of one epoch from a row on, where the step with the given number begins.
func (s *Schedule) part(st Stream, row, number int64) Totals {
	var t Totals
	steps := s.steps(row)
	if s.cut.Tail == Drop && s.cut.Batch > 0 {
		t.Dropped = (s.rows - row) % s.cut.Batch
	}
	own := st.Next(number) - number // the first of its steps, from here
	if own >= steps {
		return t
	}
	t.Steps = (steps-1-own)/st.Workers + 1
	if s.cut.Batch == 0 {
		t.Rows = s.blockRows(st, row, own)
		return t
	}
	rest := (s.rows - row) % s.cut.Batch
	full := t.Steps
	if rest > 0 && s.cut.Tail != Drop && (steps-1-own)%st.Workers == 0 { // its last one is the tail
		full--
		tail := Step{To: rest}
		if s.cut.Tail == Pad {
			tail.Padded = s.cut.Batch - rest
		}
		from, to := tail.Share(st.Rank, st.Ranks)
		t.Rows, t.Padded = to-from, max(to, rest)-max(from, rest)
	}
	from, to := Step{To: s.cut.Batch}.Share(st.Rank, st.Ranks)
	t.Rows += full * (to - from)
	return t
}

// blockRows counts a stream's rows of one epoch from a row on when steps are blocks. own is the first of its steps.
func (s *Schedule) blockRows(st Stream, row, own int64) (rows int64) {
	if st.Workers == 1 && st.Ranks == 1 {
		return s.rows - row
	}
	for b := s.layout.find(row) + own; b < s.layout.count(); b += st.Workers {
		from, to := Step{From: max(row, s.layout.begin(b)), To: s.layout.begin(b + 1)}.Share(st.Rank, st.Ranks)
		rows += to - from
	}
	return rows
}

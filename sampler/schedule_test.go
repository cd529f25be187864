package sampler

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// everybody is all streams of a job together.
var everybody = Stream{Ranks: 1, Workers: 1}

// drawCut draws how to cut an order that has rows.
func drawCut(t *rapid.T, o *Order) Cut {
	c := Cut{
		Batch: rapid.SampledFrom([]int64{1, 2, 3, 5, 8, 13, 64, 1000}).Draw(t, "G"),
		Tail:  rapid.SampledFrom([]Tail{Keep, Drop, Pad}).Draw(t, "tail"),
		Start: Place{rapid.Int64Range(0, 3).Draw(t, "epoch"), rapid.Int64Range(0, o.Rows()).Draw(t, "row")},
	}
	if o.plan.Shuffle == ShuffleNone && rapid.Bool().Draw(t, "blocks") {
		c.Batch, c.Tail = 0, Keep
	}
	if c.Tail == Drop {
		c.Batch = min(c.Batch, max(o.Rows(), 1))
	}
	c.End = c.Start.Epoch + rapid.Int64Range(1, 4).Draw(t, "epochs")
	return c
}

func drawSchedule(t *rapid.T) (*Order, *Schedule) {
	o := drawDataset(t, 30).order(t)
	s, err := NewSchedule(o, drawCut(t, o))
	if err != nil {
		t.Fatal(err)
	}
	return o, s
}

// Steps follow each other without a gap, and what the tail drops or repeats is what was told.
func TestStepsCoverEveryEpoch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, s := drawSchedule(t)
		place := s.cut.Start
		var got Totals
		for k := range s.Count() {
			st := s.Step(k)
			if place.Epoch < st.Epoch { // what is left of the epochs between was dropped, or nothing
				for ; place.Epoch < st.Epoch; place = (Place{Epoch: place.Epoch + 1}) {
					got.Dropped += o.Rows() - place.Rows
				}
			}
			if st.Number != k || (Place{st.Epoch, st.From}) != place || st.To <= st.From {
				t.Fatalf("step %d is %+v, after %+v", k, st, place)
			}
			got.Rows, got.Steps, got.Padded = got.Rows+st.To-st.From+st.Padded, got.Steps+1, got.Padded+st.Padded
			if st.Last {
				got.Dropped += o.Rows() - st.To
			}
			if next, err := s.Find(st.After); next != k+1 || err != nil {
				t.Fatalf("Find(%+v) = %d, %v", st.After, next, err)
			}
			place = st.After
		}
		for ; place.Epoch < s.cut.End; place = (Place{Epoch: place.Epoch + 1}) {
			got.Dropped += o.Rows() - place.Rows
		}
		if told := s.Share(everybody, 0); told != got {
			t.Fatalf("told %+v, got %+v", told, got)
		}
		if got.Dropped > 0 && s.cut.Tail != Drop || got.Padded > 0 && s.cut.Tail != Pad {
			t.Fatalf("%+v with tail %d", got, s.cut.Tail)
		}
	})
}

// Any place is either the border of a step or refused.
func TestFindTakesBordersOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, s := drawSchedule(t)
		borders := map[Place]int64{s.cut.Start: 0}
		for k := range s.Count() {
			st := s.Step(k)
			borders[Place{st.Epoch, st.From}] = k
			borders[st.After] = k + 1
			borders[Place{st.Epoch, st.To}] = k + 1
		}
		p := Place{rapid.Int64Range(-1, s.cut.End+1).Draw(t, "epoch"), rapid.Int64Range(-1, o.Rows()+1).Draw(t, "row")}
		got, err := s.Find(p)
		want, border := borders[p]
		if border && (err != nil || got != want) {
			t.Fatalf("Find(%+v) = %d, %v; want %d", p, got, err, want)
		}
		begins := p.Rows == 0 && p.Epoch > s.cut.Start.Epoch && p.Epoch <= s.cut.End // also of epochs without steps
		if !border && !begins && !errors.Is(err, ErrBorder) && !errors.Is(err, ErrPlace) {
			t.Fatalf("Find(%+v) = %d, %v", p, got, err)
		}
	})
}

func drawStreams(t *rapid.T) (ranks, workers int64) {
	return rapid.Int64Range(1, 9).Draw(t, "W"), rapid.Int64Range(1, 4).Draw(t, "n")
}

// The streams of all ranks and workers take every row of the steps once, each what it was told, and each the same
// number of steps as the streams of other ranks; receipts add up to the plan.
func TestStreamsPartitionTheRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, s := drawSchedule(t)
		ranks, workers := drawStreams(t)
		from := rapid.Int64Range(0, s.Count()).Draw(t, "from")
		var all Totals
		taken := make(map[Place]int) // by epoch and row
		for rank := range ranks {
			for worker := range workers {
				st := Stream{rank, ranks, worker, workers}
				told := s.Share(st, from)
				got := walk(o, s, st, from, taken)
				got.Dropped = told.Dropped
				if got != told {
					t.Fatalf("%+v: told %+v, got %+v", st, told, got)
				}
				if first := s.Share(Stream{0, ranks, worker, workers}, from); first.Steps != told.Steps {
					t.Fatalf("rank %d takes %d steps, rank 0 %d", rank, told.Steps, first.Steps)
				}
				all.Rows, all.Padded, all.Dropped = all.Rows+told.Rows, all.Padded+told.Padded, told.Dropped
			}
		}
		if want := s.Share(everybody, from); all.Rows != want.Rows || all.Padded != want.Padded || all.Dropped != want.Dropped {
			t.Fatalf("streams take %+v together, told %+v", all, want)
		}
		for row, n := range taken {
			if n != 1 {
				t.Fatalf("row %+v was given out %d times", row, n)
			}
		}
		if int64(len(taken)) != all.Rows-all.Padded {
			t.Fatalf("%d rows given out, told %d", len(taken), all.Rows-all.Padded)
		}
	})
}

// walk takes all steps of a stream.
func walk(o *Order, s *Schedule, st Stream, from int64, taken map[Place]int) (got Totals) {
	for k := st.Next(from); k < s.Count(); k += st.Workers {
		step := s.Step(k)
		r := reader{epoch: o.Epoch(step.Epoch)}
		rows, padded := r.share(step, st.Rank, st.Ranks)
		for _, row := range rows[:len(rows)-padded] {
			taken[Place{step.Epoch, row}]++
		}
		got.Rows, got.Padded, got.Steps = got.Rows+int64(len(rows)), got.Padded+int64(padded), got.Steps+1
	}
	return got
}

// A step's rows are those of its positions, sorted by group: for any number of ranks, one after the other.
func TestEveryWorldTakesTheSameSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, s := drawSchedule(t)
		if s.Count() == 0 {
			return
		}
		step := s.Step(rapid.Int64Range(0, s.Count()-1).Draw(t, "step"))
		e := o.Epoch(step.Epoch)
		at := e.positions()
		var positions []int64
		for p := step.From; p < step.To; p++ {
			positions = append(positions, p)
		}
		g := o.plan.Groups
		slices.SortStableFunc(positions, func(p, q int64) int { return int(p%g - q%g) })
		for i := range step.Padded {
			positions = append(positions, o.Rows()-1-i%o.Rows())
		}
		var want []int64
		for _, p := range positions {
			want = append(want, at[p])
		}
		ranks, _ := drawStreams(t)
		var got []int64
		r := reader{epoch: e}
		for rank := range ranks {
			rows, _ := r.share(step, rank, ranks)
			if from, to := step.Share(rank, ranks); int64(len(rows)) != to-from {
				t.Fatalf("rank %d of %d took %d rows, told %d", rank, ranks, len(rows), to-from)
			}
			got = append(got, rows...)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%d ranks take %v, want %v", ranks, got, want)
		}
	})
}

// From any row on, with other batches, ranks and workers, the rest of the epoch is the same global order: a step holds
// the rows of its positions, whoever takes them.
func TestResumeGoesOnInTheSameOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDataset(t, 30)
		whole := d.order(t).Epoch(0).positions()
		for at := int64(0); at < int64(len(whole)); { // every stretch a new start, on a new gateway
			o := d.order(t)
			batch := rapid.Int64Range(1, 20).Draw(t, "G")
			s, err := NewSchedule(o, Cut{Batch: batch, Start: Place{0, at}, End: 1})
			if err != nil {
				t.Fatal(err)
			}
			ranks, workers := drawStreams(t)
			r := reader{epoch: o.Epoch(0)}
			for k := range rapid.Int64Range(1, min(5, s.Count())).Draw(t, "steps") {
				var got []int64
				for worker := range workers {
					for rank := range ranks {
						if st := (Stream{rank, ranks, worker, workers}); st.Next(k) == k {
							rows, _ := r.share(s.Step(k), rank, ranks)
							got = append(got, rows...)
						}
					}
				}
				step := s.Step(k)
				want := whole[step.From:step.To]
				if step.From != at || d.plan.Groups == 1 && !slices.Equal(got, want) || !slices.Equal(sorted(got), sorted(want)) {
					t.Fatalf("from row %d: %v, want %v", at, got, want)
				}
				at = step.To
			}
		}
	})
}

// A stream's receipt is due with its last step of each epoch.
func TestReceiptsAreDueOnceAnEpoch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, s := drawSchedule(t)
		_, workers := drawStreams(t)
		for worker := range workers {
			due := make(map[int64]int64)
			last := make(map[int64]int64)
			for k := (Stream{0, 1, worker, workers}).Next(0); k < s.Count(); k += workers {
				step := s.Step(k)
				last[step.Epoch] = k
				if s.Final(step, workers) {
					due[step.Epoch] = k
				}
			}
			for epoch, k := range last {
				if due[epoch] != k || len(due) != len(last) {
					t.Fatalf("receipts at %v, last steps at %v", due, last)
				}
			}
		}
	})
}

// What all ranks were given adds up to the plan's sum over the range of the steps.
func TestReceiptsAddUpToThePlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, s := drawSchedule(t)
		ranks, _ := drawStreams(t)
		sums := NewSummer("s")
		given := make(map[int64]Sum)
		for k := range s.Count() {
			step := s.Step(k)
			r := reader{epoch: o.Epoch(step.Epoch)}
			for rank := range ranks {
				rows, padded := r.share(step, rank, ranks)
				for _, row := range rows[:len(rows)-padded] {
					given[step.Epoch] = sums.AddRange(given[step.Epoch], row, 1)
				}
			}
		}
		for epoch := s.cut.Start.Epoch; epoch < s.cut.End; epoch++ {
			from, to := s.Range(epoch)
			want, err := o.Epoch(epoch).Sum(t.Context(), "s", from, to)
			if err != nil || given[epoch] != want {
				t.Fatalf("epoch %d: given %s, want %s, %v", epoch, given[epoch], want, err)
			}
		}
	})
}

func TestEndless(t *testing.T) {
	o := dataset{Plan{}, []Shard{{Segments: []Segment{{10, 3}}}}}.order(t)
	s, err := NewSchedule(o, Cut{Batch: 4, Tail: Drop, Start: Place{5, 7}, End: Endless})
	if err != nil {
		t.Fatal(err)
	}
	if n, told := s.Count(), s.Share(everybody, 0); n != Endless || told != (Totals{-1, -1, -1, -1}) {
		t.Errorf("%d steps, %+v", n, told)
	}
	if st := s.Step(1_000_000); st.Epoch != 500_006 || st.From != 0 {
		t.Errorf("%+v", st)
	}
	if k, err := s.Find(Place{500_006, 4}); k != 1_000_001 || err != nil {
		t.Errorf("%d, %v", k, err)
	}
	if _, err := s.Find(Place{math.MaxInt64, 4}); !errors.Is(err, ErrPlace) {
		t.Error(err)
	}
	empty, err := NewSchedule(dataset{Plan{}, nil}.order(t), Cut{Batch: 4, Tail: Drop, End: Endless})
	if err != nil || empty.Count() != 0 || empty.Share(everybody, 0) != (Totals{}) {
		t.Errorf("no rows: %d steps, %+v, %v", empty.Count(), empty.Share(everybody, 0), err)
	}
}

func TestSchedulesThatCannotBe(t *testing.T) {
	o := dataset{Plan{}, []Shard{{Segments: []Segment{{10, 3}}}}}.order(t)
	for name, c := range map[string]struct {
		cut  Cut
		want error
	}{
		"short":        {Cut{Batch: 11, Tail: Drop, End: 1}, ErrShort},
		"beyond":       {Cut{Batch: 1, Start: Place{0, 11}, End: 1}, ErrPlace},
		"negative":     {Cut{Batch: 1, Start: Place{0, -1}, End: 1}, ErrPlace},
		"after":        {Cut{Batch: 1, Start: Place{1, 1}, End: 1}, ErrPlace},
		"before":       {Cut{Batch: 1, Start: Place{-1, 1}, End: 1}, ErrPlace},
		"batch":        {Cut{Batch: -1, End: 1}, ErrPlan},
		"huge batch":   {Cut{Batch: math.MaxInt64, End: 1}, ErrPlan},
		"uncountable":  {Cut{Batch: 1 << 60, Tail: Pad, End: 100}, ErrLimit},
		"many epochs":  {Cut{Batch: 1, End: math.MaxInt64}, ErrLimit},
		"tail":         {Cut{Batch: 1, Tail: 9, End: 1}, ErrPlan},
		"at the end":   {Cut{Batch: 1, Start: Place{1, 0}, End: 1}, nil},
		"short rest":   {Cut{Batch: 10, Tail: Drop, Start: Place{0, 9}, End: 1}, nil},
		"end of epoch": {Cut{Batch: 10, Tail: Drop, Start: Place{0, 10}, End: 1}, nil},
	} {
		if _, err := NewSchedule(o, c.cut); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// The rest that a start leaves may be too short for a step; it is then dropped, and told.
func TestShortRestIsTold(t *testing.T) {
	o := dataset{Plan{}, []Shard{{Segments: []Segment{{10, 3}}}}}.order(t)
	s, err := NewSchedule(o, Cut{Batch: 4, Tail: Drop, Start: Place{0, 7}, End: 1})
	if told := s.Share(everybody, 0); err != nil || told != (Totals{Dropped: 3}) {
		t.Errorf("%+v, %v", told, err)
	}
}

// Ranks that get unequal counts hang in their collective: 4 files of 10 rows, filtered unevenly, over 2 and 3 ranks.
func TestB83_RanksTakeEqualSteps(t *testing.T) {
	d := dataset{plan: Plan{Split: &Split{1, 0, 6500}}}
	for i := range 4 {
		d.shards = append(d.shards, Shard{Identity: string(rune('a' + i)), Row: int64(10 * i), Segments: []Segment{{10, 3}}})
	}
	o := d.order(t)
	for ranks := int64(2); ranks <= 3; ranks++ {
		for _, tail := range []Tail{Drop, Pad, Keep} {
			s, err := NewSchedule(o, Cut{Batch: 4 * ranks, Tail: tail, End: 1})
			if err != nil {
				t.Fatal(err)
			}
			var rows int64
			taken := make(map[Place]int)
			for rank := range ranks {
				st := Stream{rank, ranks, 0, 1}
				told, got := s.Share(st, 0), walk(o, s, st, 0, taken)
				if got.Dropped = told.Dropped; got != told || told.Steps != s.Count() {
					t.Errorf("%d ranks, tail %d: rank %d told %+v, got %+v", ranks, tail, rank, told, got)
				}
				if tail != Keep && got.Rows != 4*s.Count() {
					t.Errorf("%d ranks, tail %d: rank %d got %d rows in %d steps", ranks, tail, rank, got.Rows, s.Count())
				}
				rows += got.Rows
			}
			if told := s.Share(everybody, 0); rows-told.Padded+told.Dropped != o.Rows() {
				t.Errorf("%d ranks, tail %d: %d rows of %d, %+v", ranks, tail, rows, o.Rows(), told)
			}
		}
	}
}

// Skipping and then sharing out must not give each rank everything, nor must sharing out and then skipping.
func TestB84_SkippingAndRanks(t *testing.T) {
	o := dataset{Plan{Shuffle: ShuffleWindow, WindowBlocks: 3, Groups: 2, Seed: 4}, []Shard{{Segments: []Segment{{90, 9}, {11, 2}}}}}.order(t)
	whole := o.Epoch(0).positions()
	for _, skip := range []int64{0, 1, 8, 50} {
		before, err1 := NewSchedule(o, Cut{Batch: 8, Start: Place{0, skip}, End: 1})
		after, err2 := NewSchedule(o, Cut{Batch: 8, End: 1})
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		for _, c := range []struct {
			s    *Schedule
			from int64
			rows []int64
		}{{before, 0, whole[skip:]}, {after, skip / 8, whole[skip/8*8:]}} {
			taken := make(map[Place]int)
			for rank := range int64(3) {
				walk(o, c.s, Stream{rank, 3, 0, 1}, c.from, taken)
			}
			var rows []int64
			for row, n := range taken {
				if rows = append(rows, row.Rows); n != 1 {
					t.Errorf("skip %d: row %d came %d times", skip, row.Rows, n)
				}
			}
			if !slices.Equal(sorted(rows), sorted(c.rows)) {
				t.Errorf("skip %d: %d rows, want %d", skip, len(rows), len(c.rows))
			}
		}
	}
}

// A window of about 100 rows over 1,000: stopping after k rows and going on gives exactly the rest, in order.
func TestB85_ResumingAShuffledStream(t *testing.T) {
	o := dataset{Plan{Shuffle: ShuffleWindow, WindowBlocks: 10, Groups: 1, Seed: 9}, []Shard{{Segments: []Segment{{1000, 100}}}}}.order(t)
	whole := o.Epoch(0).positions()
	for _, k := range []int64{1, 20, 99, 100, 101, 999} {
		s, err := NewSchedule(o, Cut{Batch: 7, Start: Place{0, k}, End: 1})
		if err != nil {
			t.Fatal(err)
		}
		r := reader{epoch: o.Epoch(0)}
		var got []int64
		for i := range s.Count() {
			rows, _ := r.share(s.Step(i), 0, 1)
			got = append(got, rows...)
		}
		if !slices.Equal(got, whole[k:]) {
			t.Errorf("after %d rows: %d rows that are not the rest", k, len(got))
		}
	}
}

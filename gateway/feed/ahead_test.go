package feed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/storage/budget"
)

// needs lists the windows of a span that a stream needs from its next step on, in order, by the sampler's word.
func needs(s *Stream, span, most int) (all []place) {
	seen := map[place]bool{}
	for number, steps := s.step, 0; s.has(number) && len(all) < most && steps < 600; number, steps = number+s.walk.Stream.Workers, steps+1 {
		step := s.walk.Schedule.Step(number)
		for run := range s.walk.Order.Epoch(step.Epoch).Runs(step, s.walk.Stream.Rank, s.walk.Stream.Ranks) {
			at := place{step.Epoch, run.Span, run.Window}
			if run.Span != span || run.Padded || seen[at] {
				continue
			}
			seen[at] = true
			all = append(all, at)
		}
	}
	return all
}

// rules tells which rule of prefetching a stream breaks between two of its batches.
func (s *Stream) rules() error {
	p := s.plan
	depth, share := s.depth(), p.feed.ledger.Most()/(2*p.feed.open.Load())
	p.mu.Lock()
	defer p.mu.Unlock()
	for span, a := range s.next {
		list, before := a.list, s.inside[span]
		want := needs(s, span, len(list)+1)
		if len(want) > 0 && want[0] == before.at {
			want = want[1:] // not all of it was taken yet
		}
		if len(list) > depth {
			return fmt.Errorf("span %d: %d windows are read ahead, the depth is %d", span, len(list), depth)
		}
		for i, c := range list {
			if i < len(want) && c.w.at != want[i] {
				return fmt.Errorf("span %d: window %v is read ahead, where %v is needed", span, c.w.at, want[i])
			}
			if share -= c.w.bytes; i > 0 && share < 0 && c.w.users == 1 && c.w.state != idle {
				return fmt.Errorf("span %d: window %v is beyond the stream's share", span, c.w.at)
			}
			a, b := p.walk.Blocks.At(before.pieces[0].Block), p.walk.Blocks.At(c.w.pieces[0].Block)
			follows := a.Shard == b.Shard && a.Segment == b.Segment
			if later := list[i:]; c.w.load == nil && !follows {
				for _, l := range later {
					if l.w.load != nil && l.w.users == 1 { // else another stream needs it now
						return fmt.Errorf("span %d: window %v was begun before %v", span, l.w.at, c.w.at)
					}
				}
			}
			before = c.w
		}
	}
	return nil
}

// drawHeavyWalk draws a walk whose blocks are of 4 MiB.
func drawHeavyWalk(t *rapid.T, r *rig) Walk {
	q := request{
		dataset: rapid.SampledFrom([]string{"segments", "segments", "long"}).Draw(t, "dataset"), columns: []string{"id", "pad"},
		ranks: rapid.Int64Range(1, 3).Draw(t, "ranks"), workers: rapid.Int64Range(1, 2).Draw(t, "workers"),
		cut: sampler.Cut{Batch: rapid.SampledFrom([]int64{60, 200, 500}).Draw(t, "batch"), End: sampler.Endless, Tail: sampler.Keep},
	}
	if rapid.Bool().Draw(t, "shuffled") {
		q.plan = sampler.Plan{Shuffle: sampler.ShuffleWindow, WindowBlocks: rapid.Int64Range(1, 3).Draw(t, "window"), Groups: rapid.Int64Range(1, 2).Draw(t, "groups")}
	}
	return r.walk(t, q)
}

// Whatever is read, and with whatever memory: what is needed next is begun first, no stream has more than its part, and
// nothing else is read ahead.
func TestPrefetchKeepsItsRules(t *testing.T) {
	need(t)
	rapid.Check(t, func(t *rapid.T) {
		r := newRig(t, 1<<30)
		w, other := drawHeavyWalk(t, r), drawHeavyWalk(t, r)
		most := max(r.most(t, w), r.most(t, other))
		r.account(t, budget.Options{Limit: most*int64(len(streams(w))+1) + rapid.Int64Range(0, 12).Draw(t, "MiB")<<22}, nothing)
		r.Feed = New(r.store, r.pool, r.ledger, r.cache, Decoders{Min: rapid.IntRange(1, 6).Draw(t, "decoders")})
		var open []*Stream
		for _, w := range append(streams(w), other) {
			s, err := r.Open(context.Background(), w)
			must(t, err)
			open = append(open, s)
		}
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			for _, s := range open {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
				b, err := s.Next(ctx)
				cancel()
				if errors.Is(err, io.EOF) || errors.Is(err, context.DeadlineExceeded) { // it may wait for one that is behind
					continue
				}
				must(t, err)
				b.Release()
				must(t, s.rules())
			}
		}
		for _, s := range open {
			s.Close()
		}
		r.close(t)
	})
}

// In stored order, with memory for it, all that may be on its way is begun when the stream enters its first block: one block
// of each segment, for those that follow are decoded by the same scanner.
func TestBlocksOfSeveralSegmentsAreReadAhead(t *testing.T) {
	need(t)
	r := newRig(t, 1<<30)
	r.Feed = New(r.store, r.pool, r.ledger, r.cache, Decoders{Min: 5})
	s := r.asStored(t, "batches") // each block is a segment
	take(t, s, 1)
	if got, want := s.begun(), []bool{true, true, true, true, true}; !slices.Equal(got, want) {
		t.Errorf("begun are %v of the blocks ahead, not %v", got, want)
	}
	s.Close()
	r.close(t)
}

// begun lists which of the windows that are read ahead in a stream's only span were begun.
func (s *Stream) begun() (all []bool) {
	for _, c := range s.next[0].list {
		all = append(all, c.w.load != nil)
	}
	return all
}

// asStored opens a stream over the numbers of a data set as they are stored, in one epoch.
func (r *rig) asStored(t *testing.T, dataset string) *Stream {
	t.Helper()
	return r.open(t, r.walk(t, request{dataset: dataset, columns: []string{"id"}, cut: sampler.Cut{End: 1, Tail: sampler.Keep}}))
}

// Nothing that is needed later is begun while there is no memory for what is needed sooner, however little it takes.
func TestNothingIsBegunPastWhatWasRefused(t *testing.T) {
	need(t)
	r := newRig(t, 1<<30)
	r.Feed = New(r.store, r.pool, r.ledger, r.cache, Decoders{Min: 3})
	s := r.asStored(t, "uneven")
	m := r.ledger.Stats()
	others, err := r.ledger.Try(m.Limit - m.Reserved - 1<<19) // what is left does for each window but the one of 800 kB
	must(t, err)
	take(t, s, 1)
	if got, want := s.begun(), []bool{true, false, false}; !slices.Equal(got, want) {
		t.Errorf("begun are %v of the windows ahead, not %v", got, want)
	}
	others.Close()
	take(t, s, 1<<30)
	s.Close()
	r.close(t)
}

// A stream reads ahead, beyond its next window, an equal part of half the memory and no more, though more is free.
func TestStreamsReadAheadEqualParts(t *testing.T) {
	need(t)
	for _, test := range []struct{ streams, want int }{{1, 7}, {4, 3}} { // 11 MiB and 2.75 for windows of 0.8
		r := newRig(t, 1<<30)
		r.account(t, budget.Options{Limit: 22 << 20}, nothing)
		r.Feed = New(r.store, r.pool, r.ledger, r.cache, Decoders{Min: 7 * test.streams})
		s, open := r.asStored(t, "even"), []*Stream(nil)
		for range test.streams - 1 {
			open = append(open, r.asStored(t, "one"))
		}
		take(t, s, 1)
		want := make([]bool, 7)
		for i := range test.want {
			want[i] = true
		}
		if got := s.begun(); !slices.Equal(got, want) {
			t.Errorf("%d streams: begun are %v of the windows ahead, not %v", test.streams, got, want)
		}
		for _, s := range append(open, s) {
			s.Close()
		}
		r.close(t)
	}
}

// The blocks of a segment are decoded one after the other by one scanner: only the first of them is begun.
func TestASegmentIsReadAheadByOneScanner(t *testing.T) {
	need(t)
	r := newRig(t, 1<<30)
	r.Feed = New(r.store, r.pool, r.ledger, r.cache, Decoders{Min: 4})
	s := r.asStored(t, "long")
	take(t, s, 1)
	if got, want := s.begun(), []bool{true, false, false, false}; !slices.Equal(got, want) {
		t.Errorf("begun are %v of the blocks ahead, not %v", got, want)
	}
	s.Close()
	r.close(t)
}

// What is read ahead ends with the stream that needs it.
func TestPrefetchEndsWithItsStream(t *testing.T) {
	need(t)
	r := newRig(t, 1<<30)
	r.Feed = New(r.store, r.pool, r.ledger, r.cache, Decoders{Min: 4})
	stays := r.open(t, r.walk(t, request{ // of another plan
		dataset: "batches", columns: []string{"id"}, plan: sampler.Plan{Shuffle: sampler.ShuffleWindow, WindowBlocks: 2},
		cut: sampler.Cut{Batch: 10, End: 1, Tail: sampler.Keep},
	}))
	s := r.asStored(t, "batches")
	take(t, s, 1)
	s.Close()
	if n := r.reading.Load(); n != 0 || r.cache.Stats().Leased != 0 {
		t.Errorf("%d blocks are being decoded, %d leased after the only stream of a plan has ended", n, r.cache.Stats().Leased)
	}
	if got := r.ledger.Stats(); got.Grants != 3 { // of the stream that stays, of its convoy, and of what is kept
		t.Errorf("%+v", got)
	}
	stays.Close()
	r.close(t)
}

// What is kept goes for what is needed sooner, and never what is needed as soon: blocks of a window that are there stay
// while others make room for the rest of it.
func TestAWindowMakesNoRoomOfItsOwnBlocks(t *testing.T) {
	need(t)
	r := newKeepingRig(t, 1<<30, 0)
	q := job(sampler.ShuffleWindow, 0, 1)
	q.columns = []string{"id", "pad"}
	w := r.walk(t, q)
	must(t, r.Warm(context.Background(), w, func(Warmth) error { return nil }))
	p := r.join(w)
	window := p.use(p.epoch(0), place{0, 0, 1})
	tables, held := p.missing(window)
	if len(held) != len(window.pieces) || tables != p.tables(window.epoch, window.pieces) {
		t.Fatalf("%d of %d blocks are there, %d bytes missing", len(held), len(window.pieces), tables)
	}
	var bytes int64
	for _, l := range held {
		bytes += l.Bytes()
	}
	room := func(n int64) {
		g, err := r.ledger.Try(n)
		must(t, err)
		g.Close()
	}
	room(r.ledger.Most() - bytes) // which takes all but those
	if s := r.cache.Stats(); s.Blocks != len(held) || s.Kept != bytes {
		t.Errorf("%d blocks of %d bytes are kept, not the window's %d of %d", s.Blocks, s.Kept, len(held), bytes)
	}
	release(held)
	room(r.ledger.Most())
	if s := r.cache.Stats(); s.Blocks != 0 {
		t.Errorf("%d blocks are kept that nobody holds any more", s.Blocks)
	}
	p.leave(window)
	r.part(p)
	r.close(t)
}

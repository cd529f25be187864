package sampler

import (
	"math"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestPlansDifferByEachPart(t *testing.T) {
	window := Plan{Snapshot: "a", Shuffle: ShuffleWindow, WindowBlocks: 8, Groups: 1, Seed: 1}
	plans := []Plan{
		{Snapshot: "a", Shards: []int{0, 1}},
		{Snapshot: "b", Shards: []int{0, 1}},
		{Snapshot: "a", Shards: []int{0}},
		{Snapshot: "a", Shards: []int{1}},
		{Snapshot: "a"},
		{},
		{Snapshot: "a", Shards: []int{0, 2}},
		{Snapshot: "a", Split: &Split{}},
		{Snapshot: "a", Split: &Split{Seed: 1}},
		{Snapshot: "a", Split: &Split{From: 1}},
		{Snapshot: "a", Split: &Split{To: 1}},
		{Snapshot: "a", Shuffle: ShuffleFull, Groups: 1, Seed: 1},
		window,
	}
	for _, change := range []func(*Plan){
		func(p *Plan) { p.WindowBlocks = 9 }, func(p *Plan) { p.Groups = 2 }, func(p *Plan) { p.Seed = 2 },
	} {
		p := window
		change(&p)
		plans = append(plans, p)
	}
	seen := make(map[[32]byte]bool)
	for _, p := range plans {
		if h := p.Hash(); seen[h] {
			t.Errorf("%+v has the hash of another plan", p)
		} else {
			seen[h] = true
		}
	}
}

// What does nothing does not make another plan.
func TestPlansAreTheSame(t *testing.T) {
	for _, pair := range [][2]Plan{
		{{Snapshot: "a"}, {Snapshot: "a", WindowBlocks: 8, Groups: 4, Seed: 2}},
		{{Shuffle: ShuffleFull, Groups: 2}, {Shuffle: ShuffleFull, Groups: 2, WindowBlocks: 8}},
	} {
		if pair[0].Hash() != pair[1].Hash() {
			t.Errorf("%+v and %+v are different plans", pair[0], pair[1])
		}
	}
}

// Rows are summed in any order and grouping: cut a range anywhere, add the pieces in any order.
func TestSumsAreAdditive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewSummer(rapid.StringMatching("[0-9a-f]{64}").Draw(t, "snapshot"))
		first := rapid.Int64Range(0, math.MaxInt64-4000).Draw(t, "first")
		left, right := rapid.Int64Range(0, 2000).Draw(t, "left"), rapid.Int64Range(0, 2000).Draw(t, "right")
		start := Sum{Hi: rapid.Uint64().Draw(t, "hi"), Lo: rapid.Uint64().Draw(t, "lo")}
		whole := s.AddRange(start, first, left+right)
		a, b := s.AddRange(Sum{}, first, left), s.AddRange(Sum{}, first+left, right)
		if got := start.Add(b).Add(a); got != whole {
			t.Fatalf("%s, want %s", got, whole)
		}
		if got := s.AddRange(s.AddRange(start, first+left, right), first, left); got != whole {
			t.Fatalf("%s, want %s", got, whole)
		}
	})
}

func TestSumWrapsAt128Bits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) Sum {
			return Sum{Hi: rapid.Uint64().Draw(t, label), Lo: rapid.Uint64().Draw(t, label)}
		}
		a, b := draw("a"), draw("b")
		n := func(s Sum) *big.Int { v, _ := new(big.Int).SetString(s.String(), 16); return v }
		want := new(big.Int).Add(n(a), n(b))
		want.And(want, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 128), big.NewInt(1)))
		if n(a.Add(b)).Cmp(want) != 0 || len(a.Add(b).String()) != 32 {
			t.Fatalf("%s + %s = %s", a, b, a.Add(b))
		}
	})
}

func BenchmarkAddRange(b *testing.B) {
	s := NewSummer(strings.Repeat("0", 64))
	var sum Sum
	for b.Loop() {
		sum = s.AddRange(sum, 12345, 1000)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/row")
}

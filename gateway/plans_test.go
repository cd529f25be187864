package gateway

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/headrace/headrace/sampler"
)

func TestDifferenceOfPlans(t *testing.T) {
	base := sampler.Plan{Snapshot: strings.Repeat("a", 64), Shards: []int{0, 1, 2}, Shuffle: sampler.ShuffleWindow, WindowBlocks: 8, Groups: 1, Seed: 7}
	name := func(p sampler.Plan) planName {
		h := p.Hash()
		return planName{"vision", "d", hex.EncodeToString(h[:])[:cursorDigits]}
	}
	var known plans
	known.add(name(base), traitsOf(base, 3))
	for _, c := range []struct {
		change func(*sampler.Plan)
		want   []string
	}{
		{func(p *sampler.Plan) { p.Seed = 8 }, []string{"seed was 7 and is 8"}},
		{func(p *sampler.Plan) { p.Snapshot = strings.Repeat("b", 64) }, []string{"snapshot was aaa"}},
		{func(p *sampler.Plan) { p.Shards = []int{0, 2} }, []string{"shards was 3 of 3", "and is 2 of 3"}},
		{func(p *sampler.Plan) { p.Shuffle, p.WindowBlocks = sampler.ShuffleFull, 0 }, []string{"shuffle was window and is full"}},
		{func(p *sampler.Plan) { p.WindowBlocks, p.Groups = 9, 2 }, []string{"window_blocks was 8 and is 9", "groups was 1 and is 2"}},
		{func(p *sampler.Plan) { p.Split = &sampler.Split{Seed: 1, To: 9000} }, []string{"split was none and is 0 to 9000 by seed 1"}},
	} {
		other := base
		c.change(&other)
		got := known.difference(name(base), traitsOf(other, 3))
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%q lacks %q", got, want)
			}
		}
		if strings.Contains(got, "epoch") || strings.Contains(got, "split was none and is none") {
			t.Errorf("what does not differ is named: %q", got)
		}
	}
	digits := name(base).digits
	for _, nobodys := range []planName{
		{"vision", "d", strings.Repeat("0", cursorDigits)}, {"audio", "d", digits}, {"vision", "other", digits},
	} {
		got := known.difference(nobodys, traitsOf(sampler.Plan{Snapshot: strings.Repeat("b", 64)}, 1))
		if !strings.Contains(got, "may not be left out") || strings.Contains(got, "was") {
			t.Errorf("%+v, a plan that is not theirs or nobody's: %q", nobodys, got)
		}
	}
}

func TestPlansForgetTheOldest(t *testing.T) {
	var known plans
	for i := range 3 * len(known.last) {
		known.add(planName{digits: fmt.Sprintf("%032x", i)}, traits{})
	}
	if len(known.of) != len(known.last) {
		t.Errorf("%d plans are kept, %d should be", len(known.of), len(known.last))
	}
}

package gateway

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/snapshot"
)

// Who asks for more than can be is told what can be, and that is so.
func TestTooLargeWindowsAreAnswered(t *testing.T) {
	snap, err := snapshot.New("d", []*snapshot.Shard{{
		Key: "a", Schema: arrow.NewSchema(nil, nil), Segments: []snapshot.Segment{{Rows: 1000, Bytes: 100 << 20}},
	}}, snapshot.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	blocks, bytes := int64(snap.Blocks(nil).Len()), snap.Blocks(nil).Bytes()
	advice := regexp.MustCompile(`: window_blocks may be (\d+) at most|groups may be (\d+) at most, each with windows of window_blocks 1`)
	for _, c := range []struct {
		memory, window, groups int64
		want                   string
	}{
		{1 << 30, 4096, 1, ""},
		{1 << 30, 4, 16, ""},
		{64 << 20, 4096, 1, "window_blocks may be 8 at most"},
		{64 << 20, 8, 3, "window_blocks may be 2 at most"},
		{64 << 20, 1, 27, "groups may be 8 at most"},
		{64 << 20, 3, 9, "groups may be 8 at most"},
		{4 << 20, 3, 9, "not even one block can be"},
	} {
		p := sampler.Plan{Shuffle: sampler.ShuffleWindow, WindowBlocks: c.window, Groups: c.groups}
		err := affordable(p, blocks, bytes, c.memory)
		if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, budget.ErrTooLarge) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		if err == nil {
			continue
		}
		if said := advice.FindStringSubmatch(err.Error()); said != nil {
			if fmt.Sscan(said[1], &p.WindowBlocks); said[2] != "" {
				p.WindowBlocks = 1
				fmt.Sscan(said[2], &p.Groups)
			}
			if err := affordable(p, blocks, bytes, c.memory); err != nil {
				t.Errorf("%+v, as it was told to: %v", c, err)
			}
		}
	}
}

// A full shuffle holds everything: one of more than half the memory is refused, with the numbers and what fits instead.
func TestFullShufflesThatDoNotFit(t *testing.T) {
	const blocks, bytes = 27, 100 << 20
	for memory, fits := range map[int64]bool{1 << 30: true, 2 * bytes: true, 2*bytes - 2: false, 64 << 20: false} {
		err := affordable(sampler.Plan{Shuffle: sampler.ShuffleFull, Groups: 1}, blocks, bytes, memory)
		if (err == nil) != fits {
			t.Errorf("%d bytes of memory: %v", memory, err)
		}
		if err == nil {
			continue
		}
		for _, want := range []string{fmt.Sprint(int64(bytes)), fmt.Sprint(memory / 2), "use window"} {
			if !errors.Is(err, budget.ErrTooLarge) || !strings.Contains(err.Error(), want) {
				t.Errorf("%d bytes of memory: %v, want %s in it", memory, err, want)
			}
		}
	}
}

package main

import (
	"bytes"
	"testing"

	"github.com/headrace/headrace/gateway/wire"
)

func TestWarmTellsHowFarItIs(t *testing.T) {
	var out bytes.Buffer
	drawWarm(&out, wire.WarmMeta{Blocks: 1402, Seen: 701, Loaded: 5 << 30})
	if got, want := out.String(), "\r\x1b[K[===============               ] 701 of 1,402 blocks, 5.0 GiB loaded"; got != want {
		t.Errorf("%q", got)
	}
	drawWarm(nil, wire.WarmMeta{}) // no terminal
	for _, c := range []struct {
		last wire.WarmMeta
		want string
	}{
		{wire.WarmMeta{Blocks: 1402, Seen: 1402, Kept: 1402, Loaded: 5 << 30}, "in memory: 1,402 of 1,402 blocks, 5.0 GiB of them loaded now\n"},
		{wire.WarmMeta{Blocks: 9, Seen: 9, Mapped: 9}, "in memory: 0 of 9 blocks, 0 B of them loaded now\nin mapped files, which the system's page cache keeps: 9 blocks\n"},
		{wire.WarmMeta{Blocks: 1, Seen: 1, Kept: 1, Full: true}, "in memory: 1 of 1 block, 0 B of them loaded now\nall memory that nobody needs is in use: more needs a larger memory limit\n"},
	} {
		out.Reset()
		tellWarm(&out, c.last)
		if out.String() != c.want {
			t.Errorf("%+v: %q", c.last, out.String())
		}
	}
}
